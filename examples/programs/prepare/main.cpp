// SPDX-License-Identifier: Apache-2.0
// Provides the program `prepare`, which converts text to token files with the files of a tokenizer.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/data/token_file.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/json_lines.hpp"

#include "cli/command_line.hpp"
#include "cli/program.hpp"
#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "prepare/settings.hpp"
#include "prepare/token_writer.hpp"
#include "text/pipeline.hpp"

namespace ts = tessera;
namespace cli = programs::cli;
namespace text = programs::text;

namespace {

using Json = nlohmann::ordered_json;

constexpr char examples[] =
    "Examples:\n"
    "  prepare book.txt --tokenizer gpt2/ --output book.bin\n"
    "  prepare corpus/*.jsonl.zst --tokenizer llama3/ --output corpus.bin --validation-share 0.001 --threads "
    "8\n"
    "  zcat dump.gz | prepare - --tokenizer opt/ --output dump.bin --data-bytes 100MB\n"
    "\nAn interrupted run continues with --resume, unless it read standard input.\n";

Json read_json(std::filesystem::path const& path) {
  auto const bytes = ts::FileBytes::open(path.string());
  auto const* const begin = reinterpret_cast<char const*>(bytes.data());
  std::string_view const text(begin, bytes.size());
  Json const json = ts::json_lines::nests_too_deeply(text) ? Json() : Json::parse(text, nullptr, false);
  if (!json.is_object())
    throw ts::Error(ts::ErrorKind::data,
                    ts::files::path_text(path.string()) + ": is damaged; remove it and start again");
  return json;
}

/// Converts the inputs to token files, from the beginning or from the position at which an earlier run ended.
class Run {
 public:
  explicit Run(cli::Preparation const& p)
      : p_(p),
        terminal_(cli::Terminal::of(STDOUT_FILENO)),
        bar_(std::cout, p.flags.quiet ? cli::Terminal{} : terminal_),
        piped_(std::any_of(p.inputs.files.begin(), p.inputs.files.end(),
                           [](auto const& file) { return file.path == "-"; })) {}
  ~Run() {
    // Without a state file no later run can resume, so the incomplete files are useless and are removed.
    std::error_code code;
    if (training_ && !std::filesystem::exists(p_.state, code))
      for (auto const& path : {p_.flags.output, p_.flags.validation_output})
        if (!path.empty()) std::filesystem::remove(cli::TokenWriter::partial(path), code);
  }

  int run() {
    open_outputs();
    // A read of standard input possibly never returns, so a signal ends the program after at most 2 s. A run
    // that reads standard input cannot be resumed.
    cli::Interrupt const interrupt(piped_ ? 2 : 0);
    if (!p_.flags.quiet) std::cout << box() << std::flush;
    std::int64_t const total = p_.flags.data_bytes > 0 ? p_.flags.data_bytes : p_.inputs.bytes();
    bar_.start("prepare", total / 1000000);
    started_ = saved_at_ = Clock::now();
    std::int64_t const before = tokens();
    text::PipelineOptions options{
        p_.flags.threads, p_.flags.field, p_.flags.data_bytes, position_,
        text::stretch_for(
            p_.flags.data_bytes > 0 && p_.inputs.bytes() > 0 ? std::min(total, p_.inputs.bytes()) : total,
            p_.flags.validation_share)};
    bool stopped = false;
    text::encode_inputs(*p_.tokenizer, p_.inputs.files, options, [&](text::Encoded const& block) {
      consume(block);
      double const seconds = since(started_);
      bar_.show((p_.flags.data_bytes > 0 ? position_.bytes : position_.packed) / 1000000,
                seconds > 0 ? static_cast<double>(tokens() - before) / seconds : 0.0, "MB");
      if (!piped_ && since(saved_at_) >= static_cast<double>(p_.flags.save_every)) save();
      stopped = cli::Interrupt::caught();
      return !stopped;
    });
    bar_.clear();
    if (stopped) {
      if (!piped_) save();
      say("interrupted by " + cli::Interrupt::name() + " after " + cli::grouped(position_.bytes) +
          " bytes; " +
          (piped_ ? "standard input cannot be read again, so nothing was kept; start the same command again"
                  : "continue with the same command and --resume"));
      return cli::Interrupt::exit_code();
    }
    finish(since(started_), tokens() - before);
    return 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  }
  std::int64_t tokens() const { return training_->tokens() + (validation_ ? validation_->tokens() : 0); }
  void say(std::string const& line) const {
    if (!p_.flags.quiet) std::cout << line << std::endl;
  }

  void open_outputs() {
    bool const state = std::filesystem::exists(p_.state);
    if (state && !p_.flags.resume)
      throw ts::Error(ts::ErrorKind::usage, ts::files::path_text(p_.state.string()) +
                                                ": a run of this --output ended early; give --resume to "
                                                "continue, or remove that file to start again");
    if (!state) {
      if (p_.flags.resume) say("--resume: there is nothing to resume, so this run starts at the beginning");
      training_.emplace(p_.flags.output, p_.ids);
      if (!p_.flags.validation_output.empty()) validation_.emplace(p_.flags.validation_output, p_.ids);
      return;
    }
    Json const json = read_json(p_.state);
    try {
      if (json.at("fingerprint") != p_.fingerprint)
        throw ts::Error(ts::ErrorKind::config,
                        ts::files::path_text(p_.state.string()) +
                            ": belongs to a run with other inputs, another tokenizer or other flags; repeat "
                            "its command, or remove the file to start again");
      Json const& at = json.at("position");
      position_ = {at.at("file"), at.at("offset"), at.at("line"), at.at("bytes"), at.at("packed")};
      documents_ = json.at("documents");
      empty_ = json.at("empty");
      replaced_ = json.at("replaced");
      parts_ = json.at("parts");
      auto const open = [&](std::optional<cli::TokenWriter>& writer, std::filesystem::path const& path,
                            char const* key) {
        writer.emplace(path, p_.ids, json.at(key).at("tokens").get<std::int64_t>(),
                       json.at(key).at("hash").get<std::string>());
      };
      open(training_, p_.flags.output, "training");
      if (!p_.flags.validation_output.empty()) open(validation_, p_.flags.validation_output, "validation");
    } catch (nlohmann::json::exception const&) {
      throw ts::Error(ts::ErrorKind::data,
                      ts::files::path_text(p_.state.string()) + ": is damaged; remove it and start again");
    }
    say("continues after " + cli::grouped(position_.bytes) + " bytes and " + cli::grouped(tokens()) +
        " tokens");
  }

  void consume(text::Encoded const& block) {
    std::size_t begin = 0;
    std::span<std::uint32_t const> const ids = block.ids;
    for (std::size_t const end : block.ends) {
      double const share = p_.flags.validation_share, at = static_cast<double>(parts_++);
      bool const held_out = validation_ && std::floor((at + 1) * share) > std::floor(at * share);
      (held_out ? *validation_ : *training_).write(ids.subspan(begin, end - begin));
      begin = end;
    }
    documents_ += block.documents;
    empty_ += block.empty;
    replaced_ += block.replaced;
    position_ = block.after;
  }

  /// Writes the state file, from which a later run can resume. Before this, syncs the written tokens to disk.
  void save() {
    Json json;
    json["schema_version"] = 1;
    json["fingerprint"] = p_.fingerprint;
    json["position"] = {{"file", position_.file},
                        {"offset", position_.offset},
                        {"line", position_.line},
                        {"bytes", position_.bytes},
                        {"packed", position_.packed}};
    json["documents"] = documents_;
    json["empty"] = empty_;
    json["replaced"] = replaced_;
    json["parts"] = parts_;
    auto const add = [&](char const* key, cli::TokenWriter& writer) {
      writer.sync();
      json[key] = {{"tokens", writer.tokens()}, {"hash", writer.hash()}};
    };
    add("training", *training_);
    if (validation_) add("validation", *validation_);
    ts::write_file(p_.state, json.dump() + "\n");
    saved_at_ = Clock::now();
  }

  void finish(double seconds, std::int64_t made) {
    if (training_->tokens() == 0 && documents_ + empty_ > 0 && validation_ && validation_->tokens() > 0)
      throw ts::Error(ts::ErrorKind::data, "--validation-share " + cli::shortest(p_.flags.validation_share) +
                                               " selects all documents; lower it");
    if (training_->tokens() == 0)
      throw ts::Error(ts::ErrorKind::data,
                      "the inputs hold no text (" + cli::grouped(empty_) + " empty documents)");
    if (validation_ && validation_->tokens() == 0)
      throw ts::Error(ts::ErrorKind::data,
                      "--validation-share " + cli::shortest(p_.flags.validation_share) + " of " +
                          cli::grouped(parts_) +
                          " documents or stretches of text selects none; raise it, or give more");
    for (auto* const writer : {&training_, &validation_}) {
      if (!*writer) continue;
      (*writer)->commit();
      describe(**writer, writer == &validation_);
    }
    std::error_code code;
    std::filesystem::remove(p_.state, code);
    double const speed = static_cast<double>(position_.bytes) / 1e6 / std::max(seconds, 1e-9);
    say(cli::grouped(documents_) + (documents_ == 1 ? " document, " : " documents, ") +
        (empty_ > 0 ? cli::grouped(empty_) + " empty ones left out, " : std::string()) +
        cli::grouped(position_.bytes) + " bytes, " + cli::grouped(tokens()) + " tokens in " +
        cli::duration_text(seconds) +
        (made == tokens() ? ", " + cli::fixed(speed, 1) + " MB/s" : std::string()));
    if (replaced_ > 0)
      say("some bytes are not valid UTF-8: replaced " + cli::grouped(replaced_) + " times by U+FFFD");
    std::string const vocabulary = " --vocabulary " + std::to_string(p_.tokenizer->vocabulary());
    say("train --data " + p_.flags.output.string() + vocabulary +
        (validation_ ? " --validation " + p_.flags.validation_output.string() : std::string()));
  }

  void describe(cli::TokenWriter const& writer, bool validation) const {
    Json json;
    json["schema_version"] = 1;
    json["tokens"] = writer.tokens();
    json["ids"] = ts::name_of(p_.ids);
    json["hash"] = writer.hash();
    json["tokenizer"] = {{"path", p_.flags.tokenizer},
                         {"files", p_.tokenizer->description()},
                         {"hash", p_.tokenizer->hash()},
                         {"vocabulary", p_.tokenizer->vocabulary()}};
    json["document"] = p_.tokenizer->document_form();
    json["documents"] = documents_;
    json["empty_documents"] = empty_;
    json["replaced"] = replaced_;
    json["bytes"] = position_.bytes;
    json["validation_share"] = p_.flags.validation_share;
    json["is_validation"] = validation;
    for (auto const& file : p_.inputs.files)
      json["inputs"].push_back({{"path", file.path}, {"size", file.size}});
    ts::write_file(std::filesystem::path(writer.path()) += ".json",
                   json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  std::string box() const {
    cli::Box box("prepare");
    auto const& inputs = p_.inputs;
    std::size_t const count = inputs.files.size();
    std::string const what = count == 1
                                 ? (inputs.files[0].path == "-" ? "standard input" : inputs.files[0].path)
                                 : cli::grouped(static_cast<std::int64_t>(count)) + " files";
    box.add("inputs",
            ts::files::path_text(what) +
                (inputs.bytes() > 0 ? ", " + cli::grouped(inputs.bytes()) + " bytes" : "") +
                (inputs.skipped > 0 ? ", " + cli::grouped(inputs.skipped) + " skipped" : ""),
            "flag");
    box.add("tokenizer",
            p_.tokenizer->description() + ", " + cli::grouped(p_.tokenizer->vocabulary()) + " tokens",
            "flag");
    box.add("document", ts::files::printable(p_.tokenizer->document_form()),
            p_.flags.end_of_text.empty() ? "tokenizer" : "flag");
    box.add("output", ts::files::path_text(p_.flags.output.string()) + ", " + ts::name_of(p_.ids), "flag");
    if (validation_)
      box.add("validation",
              ts::files::path_text(p_.flags.validation_output.string()) + ", " +
                  cli::shortest(p_.flags.validation_share) + " of the documents",
              "flag");
    box.add("threads", std::to_string(p_.flags.threads), p_.flags.all_cores ? "machine" : "flag");
    return box.text(terminal_.width);
  }

  cli::Preparation const& p_;
  cli::Terminal terminal_;
  cli::Progress bar_;
  bool piped_;  // reads standard input, which no later run can read again
  std::optional<cli::TokenWriter> training_, validation_;
  text::Position position_;
  std::int64_t documents_ = 0, empty_ = 0, parts_ = 0, replaced_ = 0;
  Clock::time_point started_, saved_at_;
};

template <class Id>
std::uint32_t largest_id(ts::files::FileReader const& file, ts::TokenLayout const& layout) {
  std::vector<Id> block(1 << 16);
  std::uint32_t largest = 0;
  for (std::int64_t at = 0; at < layout.tokens;) {
    std::int64_t const some = std::min(layout.tokens - at, static_cast<std::int64_t>(block.size()));
    file.read(layout.offset + static_cast<std::size_t>(at) * sizeof(Id), block.data(),
              static_cast<std::size_t>(some) * sizeof(Id));
    largest = std::max<std::uint32_t>(largest, *std::max_element(block.begin(), block.begin() + some));
    at += some;
  }
  return largest;
}

std::uint32_t largest_token(ts::files::FileReader const& file, ts::TokenLayout const& layout) {
  return layout.format == ts::TokenFormat::u16 ? largest_id<std::uint16_t>(file, layout)
                                               : largest_id<std::uint32_t>(file, layout);
}

/// Checks the header and the tokens of a token file against the .json file with the same name. Returns the
/// exit code of the program.
int check(cli::PrepareFlags const& flags) {
  std::filesystem::path const& path = flags.check;
  std::string const name = ts::files::path_text(path.string());
  auto const fail = [&](std::string const& what) { throw ts::Error(ts::ErrorKind::data, name + what); };
  Json const json = read_json(std::filesystem::path(path) += ".json");
  if (!json.contains("schema_version")) fail(".json: has no schema_version");
  if (Json const& version = json["schema_version"]; version != 1)
    fail(".json: has schema_version " + ts::files::printable(version.dump(), 40) +
         ", but only 1 can be read; check it with the version of prepare that wrote it");
  for (char const* key : {"hash", "ids"})
    if (!json.contains(key) || !json[key].is_string()) fail(".json: has no " + std::string(key));
  if (!json.contains("tokens") || !json["tokens"].is_number_integer()) fail(".json: has no tokens");
  for (char const* key : {"documents", "empty_documents", "replaced", "bytes"}) {
    if (json.contains(key) && !json[key].is_number_unsigned())
      fail(".json: has " + std::string(key) + " " + ts::files::printable(json[key].dump(), 40) +
           ", a whole number of 0 or more is needed");
  }
  Json const vocabulary = json.contains("tokenizer") && json["tokenizer"].is_object()
                              ? json["tokenizer"].value("vocabulary", Json())
                              : Json();
  if (!vocabulary.is_number_unsigned()) fail(".json: has no tokenizer.vocabulary");
  ts::files::FileReader const file(path.string(), true);
  std::vector<std::byte> head(std::min(file.size(), ts::token_head_bytes));
  file.read(0, head.data(), head.size());
  ts::TokenLayout const layout = ts::token_layout(head, file.size(), name);
  std::string const again = "; the file is damaged, prepare it again";
  if (layout.offset == 0) fail(": has no header, which prepare always writes" + again);
  std::span<std::byte const> const rest = std::span(head).subspan(12, layout.offset - 12);
  if (std::any_of(rest.begin(), rest.end(), [](std::byte value) { return value != std::byte{0}; }))
    fail(": its header holds more than magic, version and number of tokens" + again);
  if (std::string const ids = json["ids"]; ids != ts::name_of(layout.format))
    fail(std::string(": its header gives ") + ts::name_of(layout.format) + ", and its .json " +
         ts::files::printable(ids, 40) + again);
  if (std::int64_t const tokens = json["tokens"]; tokens != layout.tokens)
    fail(": its header gives " + cli::grouped(layout.tokens) + " tokens, but its .json " +
         cli::grouped(tokens) + again);
  std::string const found = cli::hash_of_file(path, layout.offset), recorded = json["hash"];
  if (found != recorded)
    fail(": its tokens have the hash " + found + ", but its .json gives " + recorded + again);
  if (std::uint32_t const largest = largest_token(file, layout); vocabulary.get<std::uint64_t>() <= largest)
    fail(".json: has a tokenizer.vocabulary of " + cli::grouped(vocabulary.get<std::int64_t>()) +
         ", but the largest token is " + cli::grouped(largest) + again);
  if (!flags.quiet) std::cout << path.string() << ": is unchanged since it was written, " << found << "\n";
  return 0;
}

int prepare(int argc, char const* const* argv) {
  cli::CommandLine line(
      "prepare", "Writes token files from text: prepare INPUT... --tokenizer DIR --output F.bin", examples);
  cli::PrepareFlags flags;
  cli::declare(line, flags);
  if (!line.parse(argc, argv)) return 0;
  if (!flags.check.empty()) {
    cli::need_check_alone(line, flags);
    return check(flags);
  }
  cli::Preparation const preparation = cli::resolve(line, std::move(flags));
  return Run(preparation).run();
}

}  // namespace

int main(int argc, char** argv) {
  return cli::guarded([&] { return prepare(argc, argv); });
}
