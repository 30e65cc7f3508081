// SPDX-License-Identifier: Apache-2.0
// Provides a harness that runs the programs of this build in a temporary folder, and that reads their output
// and their files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <stdlib.h>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "support/file_support.hpp"

namespace test {

using file_support::has;
using file_support::read;
using Json = nlohmann::json;

/// Parses the text of a table. Each line of the text is a row of the table, and " | " separates the cells of
/// a row. Returns the cells of each row.
inline std::vector<std::vector<std::string>> table(std::string const& text) {
  std::regex const separator(R"( \| ?)");
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines >> std::ws, line);)
    rows.emplace_back(std::sregex_token_iterator(line.begin(), line.end(), separator, -1),
                      std::sregex_token_iterator());
  REQUIRE(!rows.empty());
  return rows;
}

/// Returns several copies of the table text `rows`, one after the other: one copy for each word of `values`,
/// which are separated by spaces. In each copy, this word replaces every match of the regular expression
/// `name`.
inline std::string each(std::string const& name, std::string const& values, std::string const& rows) {
  std::string all;
  std::istringstream list(values);
  for (std::string value; list >> value;) all += std::regex_replace(rows, std::regex(name), value) + "\n";
  return all;
}

/// Checks the text `text`. Each line of `expressions`, without its indentation, is a regular expression. Each
/// expression must match somewhere in the text.
inline void shows(std::string const& text, std::string const& expressions) {
  std::istringstream lines(expressions);
  for (std::string line; std::getline(lines >> std::ws, line);)
    CHECK_MESSAGE(std::regex_search(text, std::regex(line)), line, " does not match in ", text);
}

/// Returns all parts of the text that match the regular expression.
inline std::vector<std::string> matches(std::string const& text, std::string const& expression) {
  std::regex const compiled(expression);
  return {std::sregex_token_iterator(text.begin(), text.end(), compiled), std::sregex_token_iterator()};
}

/// Returns the text with all matches of a regular expression replaced. The expression must match at least
/// once.
inline std::string replaced(std::string const& text, std::string const& expression, std::string const& by) {
  std::string const result = std::regex_replace(text, std::regex(expression), by);
  CHECK_MESSAGE(result != text, expression, " does not match in ", text);
  return result;
}

/// field(document, key or index...) returns the value at this path in a JSON document. If the value is
/// missing, the test case ends.
template <class... Keys>
Json field(Json const& document, Keys const&... keys) {
  Json const* value = &document;
  ((value = &value->at(keys)), ...);
  return *value;
}

/// How a command ended: its exit code and its output. If a signal ended the command, the exit code is 128
/// plus the number of the signal, as in a shell.
struct Result {
  int code = 0;
  std::string out;
  std::string err;
};

/// Executes shell commands (of `sh`) in a temporary folder. The commands find the programs of this build in
/// $PATH. $TESSERA_SOURCE is the folder of the repository.
class Shell {
 public:
  Shell() {
    std::filesystem::create_directory(work_);
    ::setenv("PATH", (TESSERA_PROGRAM_FOLDERS ":" + std::string(::getenv("PATH"))).c_str(), 1);
    ::setenv("TESSERA_SOURCE", TESSERA_SOURCE, 1);
    // The programs ignore the GPUs of this machine, so other work on the GPUs does not change the results.
    ::setenv("TESSERA_NVML", "none", 1);
  }

  void write(std::string_view file, std::string_view bytes) const {
    file_support::write(work_ / file, bytes);
  }
  std::string text(std::string_view file) const { return read(work_ / file); }
  Json json(std::string_view file) const { return Json::parse(text(file)); }
  std::vector<Json> json_lines(std::string_view file) const {
    std::vector<Json> documents;
    std::istringstream lines(text(file));
    for (std::string line; std::getline(lines, line);) documents.push_back(Json::parse(line));
    return documents;
  }
  bool exists(std::string_view file) const { return std::filesystem::exists(work_ / file); }
  Json files() const {  // all files and folders, at any depth
    std::set<std::string> found;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(work_)) found.insert(entry.path());
    return found;
  }

  /// Executes a script of `sh` without standard input, and returns its exit code and output. After `seconds`
  /// seconds this function kills the script, and the test case fails and ends.
  Result run(std::string const& script, int seconds = 100) const {
    INFO(script);
    ::setenv("TESSERA_SCRIPT", script.c_str(), 1);
    std::string const command = "cd '" + work_.string() + "' && exec timeout -k 1 " +
                                std::to_string(seconds) +
                                R"( sh -ec "$TESSERA_SCRIPT" < /dev/null 2> ../errors)";
    std::FILE* const pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe != nullptr);
    Result result;
    char bytes[4096];
    while (std::size_t const count = std::fread(bytes, 1, sizeof bytes, pipe))
      result.out.append(bytes, count);
    int const status = ::pclose(pipe);
    result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.err = read(folder_ / "errors");
    if (result.code == 124) FAIL("killed after ", seconds, " s: ", result.out, result.err);
    return result;
  }

  /// Executes a script of `sh` that must end with the exit code `code`. If `code` is 0, the script must not
  /// write to stderr. Returns the output, which must match the regular expressions.
  std::string ends(int code, std::string const& script, std::string const& expressions = "") const {
    Result const result = run(script);
    INFO(script, "\n", result.out, result.err);
    REQUIRE(result.code == code);
    if (code == 0) CHECK(result.err == "");
    shows(result.out, expressions);
    return result.out;
  }
  std::string passes(std::string const& script, std::string const& expressions = "") const {
    return ends(0, script, expressions);
  }

  /// Starts `command` with its stdout in out.txt and its stderr in err.txt. Waits until a line of the file
  /// `file` matches the grep pattern `pattern`, then waits another `seconds` seconds. Then sends the signals
  /// `signals`, such as "INT TERM", to the command. Returns the exit code of the command, or 99 if no line
  /// matches within 30 s.
  int signalled(std::string const& signals, std::string const& pattern, std::string const& file,
                std::string const& command, std::string const& seconds = "0") const {
    return run(command + " > out.txt 2> err.txt & pid=$!; tries=0; until grep -q '" + pattern + "' " + file +
               " 2> /dev/null; do tries=$((tries + 1)); [ $tries -lt 600 ] || { kill -9 $pid; exit 99; };"
               "sleep 0.05; done; sleep " +
               seconds + "; for one in " + signals + "; do kill -$one $pid || :; done; wait $pid")
        .code;
  }

  /// Runs `command` once for each row of a table. A row of the table is "exit code | flags | text | text".
  /// The command gets the flags of the row and must end with its exit code. The command must print one line
  /// "error: ..." that contains all texts of the row, and it must not leave a new file or folder.
  void refuses(std::string const& command, std::string const& rows) const {
    for (std::vector<std::string> const& row : table(rows)) {
      REQUIRE(row.size() > 2);
      INFO(command, " ", row[1]);
      auto const before = files();
      Result const result = run(command + " " + row[1]);
      CHECK(std::to_string(result.code) == row[0]);
      shows(result.err, R"(^error: .+\n$)");
      for (std::size_t i = 2; i < row.size(); ++i)
        CHECK_MESSAGE(has(result.err, row[i]), result.err, " lacks ", row[i]);
      CHECK(files() == before);
    }
  }

 private:
  file_support::TemporaryFolder folder_;
  std::filesystem::path work_ = folder_ / "work";
};

}  // namespace test
