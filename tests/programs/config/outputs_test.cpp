// SPDX-License-Identifier: Apache-2.0
// Tests that each program refuses an output file that would overwrite one of its input files. All programs
// share one list of flags whose values are file names.
#include "cli/outputs.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "cli/command_line.hpp"
#include "results/results.hpp"

namespace fs = std::filesystem;
namespace cli = programs::cli;
namespace results = programs::results;
using tessera::Error;
using tessera::ErrorKind;

namespace {

/// Creates a temporary folder and makes it the current folder. The destructor restores the old folder and
/// removes the temporary one.
struct Here {
  fs::path before = fs::current_path();
  fs::path folder = fs::temp_directory_path() / ("tessera-outputs-" + std::to_string(::getpid()));
  Here() {
    fs::create_directories(folder);
    fs::current_path(folder);
  }
  ~Here() {
    fs::current_path(before);
    fs::remove_all(folder);
  }
};

void make(fs::path const& path) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  std::ofstream(path) << "x";
}

/// Parses the command line `words` of an artificial program that has all flags for files, and checks its
/// files. `more` are further output files of the program. `model` is a folder that the program reads. Returns
/// the error, or an empty string if the check accepts the files.
std::string said(std::vector<std::string> const& words, std::vector<cli::NamedPath> const& more = {},
                 fs::path const& model = {}) {
  cli::CommandLine line("program", "", "");
  std::vector<std::string> values(32);
  std::size_t next = 0;
  for (char const* flag : {"--data",         "--validation",  "--input",
                           "--machine",      "--config",      "--from",
                           "--marks",        "--adapter",     "--tokenizer",
                           "--init",         "--log",         "--save",
                           "--save-adapter", "--checkpoint",  "--trace",
                           "--json",         "--csv",         "--html",
                           "--markdown",     "--output",      "--validation-output",
                           "--measure",      "--tensorboard", "--svg"})
    line.text(flag, "PATH", values[next++], "");
  std::vector<char const*> all{"program"};
  for (std::string const& word : words) all.push_back(word.c_str());
  CHECK(line.parse(static_cast<int>(all.size()), all.data()));
  try {
    cli::ProgramFiles(line, {model}).check(more);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return {};
}

constexpr char same[] = " are the same file; writing one would destroy the other, give another name";
constexpr char inside[] = " reads; give a name outside that folder";

}  // namespace

TEST_CASE("no output is an input, by whatever spelling, in any program") {
  Here const here;
  make("in");
  fs::create_hard_link("in", "hard");
  fs::create_symlink("in", "soft");
  fs::create_symlink(".", "again");
  for (std::string const output :
       {"--log", "--save", "--checkpoint", "--trace", "--json", "--csv", "--html", "--markdown", "--output",
        "--validation-output", "--measure", "--save-adapter"})
    for (std::string const path : {"in", "./in", "again/in", "hard", "soft"}) {
      for (std::string const input :
           {"--data", "--validation", "--input", "--machine", "--config", "--from", "--marks", "--init"}) {
        INFO(output << " " << path << " " << input);
        // --save may name the file of --init.
        bool const saved_over = output == "--save" && input == "--init";
        CHECK(said({output, path, input, "in"}) ==
              (saved_over ? "" : output + " '" + path + "' and " + input + " 'in'" + same));
      }
      CHECK(said({output, path}, {}, "in") == output + " '" + path + "' and --model 'in'" + same);
    }
  CHECK(said({"--json", "out", "--data", "in"}).empty());
}

TEST_CASE("a file of flags is an input") {
  Here const here;
  std::ofstream("some.flags") << "--machine other\n";
  CHECK(said({"@some.flags", "--json", "./some.flags"}) ==
        std::string("--json './some.flags' and @FILE 'some.flags'") + same);
  CHECK(said({"@some.flags", "--json", "other"}) ==
        std::string("--json 'other' and --machine 'other'") + same);
  CHECK(said({"@some.flags", "--json", "x"}).empty());
}

TEST_CASE("folders of models, tokenizers, adapters and data keep their files") {
  Here const here;
  for (char const* file :
       {"config.json", "model.safetensors", "tokenizer.json", "vocab.json", "merges.txt",
        "adapter_config.json", "adapter_model.safetensors", "model-00001-of-00002.safetensors"})
    make(fs::path("hf") / file);
  fs::create_hard_link("hf/config.json", "hard");
  for (std::string const path : {"hf/config.json", "./hf/../hf/model.safetensors", "hf/tokenizer.json",
                                 "hard", "hf/model-00001-of-00002.safetensors"}) {
    CHECK(said({"--json", path}, {}, "hf") ==
          "--json '" + path + "' leads into the folder that --model 'hf'" + inside);
    CHECK(said({"--log", path, "--adapter", "hf"}) ==
          "--log '" + path + "' leads into the folder that --adapter 'hf'" + inside);
  }
  CHECK(said({"--log", "hf/merges.txt", "--tokenizer", "hf"}) ==
        std::string("--log 'hf/merges.txt' leads into the folder that --tokenizer 'hf'") + inside);
  CHECK(said({"--log", "hf/new", "--data", "hf"}) ==
        std::string("--log 'hf/new' leads into the folder that --data 'hf'") + inside);
  CHECK(said({"--tensorboard", "hf/new", "--data", "hf"}) ==
        std::string("--tensorboard 'hf/new' leads into the folder that --data 'hf'") + inside);
  // A program may write an output into the model's folder if the output is not a file of the model. A program
  // may save an adapter in the folder from which it reads this adapter.
  CHECK(said({"--log", "hf/run.jsonl", "--tokenizer", "hf"}).empty());
  CHECK(said({"--save-adapter", "hf", "--adapter", "hf"}).empty());
  CHECK(said({"--save-adapter", "hf/new"}, {}, "hf").empty());
  fs::current_path("hf");  // a user may work inside the model's folder
  CHECK(said({"--json", "plan.json"}, {}, ".").empty());
  CHECK(said({"--json", "config.json"}, {}, ".") ==
        std::string("--json 'config.json' leads into the folder that --model '.'") + inside);
}

TEST_CASE("the description of a token file is an input like the file") {
  Here const here;
  make("b.bin");
  CHECK(said({"--data", "b.bin", "--log", "b.bin.json"}).empty());  // b.bin.json does not exist
  make("b.bin.json");
  CHECK(said({"--data", "b.bin", "--log", "b.bin.json"}) ==
        std::string("--log 'b.bin.json' and --data 'b.bin.json'") + same);
}

TEST_CASE("--save may replace the one file of --init, but not the folder that the file is in") {
  Here const here;
  make(fs::path("hub") / "model.safetensors");
  CHECK(said({"--save", "hub/model.safetensors", "--init", "hub/model.safetensors"}).empty());
  CHECK(said({"--save", "hub", "--init", "hub/model.safetensors"}) ==
        "--save 'hub' is a folder that holds --init 'hub/model.safetensors', and would replace files there; "
        "give "
        "another folder");
  CHECK(said({"--save", "other", "--init", "hub/model.safetensors"}).empty());
}

TEST_CASE("two outputs are two files") {
  Here const here;
  CHECK(said({"--json", "x", "--csv", "./x"}) ==
        "--json 'x' and --csv './x' are the same file; give two names");
  CHECK(said({"--save", "x", "--log", "x/config.json"}, {{"--save", "x/config.json"}}) ==
        "--log 'x/config.json' and --save 'x/config.json' are the same file; give two names");
  CHECK(said({"--checkpoint", "x", "--tensorboard", "x"}).empty());
  for (std::string const folder : {"--tensorboard", "--svg", "--save-adapter"})
    CHECK(said({"--log", "x", folder, "./x"}) ==
          "--log 'x' and " + folder + " './x' are the same file; give two names");
}

TEST_CASE("the schema and the page of results describe every column as the list of columns does") {
  auto const read = [](char const* name) {
    std::ifstream file(std::filesystem::path(TESSERA_SOURCE) / name);
    REQUIRE(file);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  results::Row const schema = results::Row::parse(read("docs/results.schema.json")).at("$defs").at("row");
  std::string const page = read("docs/programs.md");
  results::Row const columns = results::column_schemas();
  for (auto const& column : columns.items()) {
    std::string const name = column.key();
    INFO(name);
    CHECK(schema.at("properties").at(name) == column.value());
    CHECK(std::find(schema.at("required").begin(), schema.at("required").end(), name) !=
          schema.at("required").end());
    CHECK(page.find("`" + name + "`") != std::string::npos);
  }
  CHECK(columns.size() == std::size(results::columns));
  auto const shown = std::count_if(
      std::begin(results::columns), std::end(results::columns),
      [](results::Column const& column) { return !column.terminal.header.empty() && column.number; });
  CHECK(results::terminal_columns().size() == static_cast<std::size_t>(shown));
}
