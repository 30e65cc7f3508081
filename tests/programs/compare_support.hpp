// SPDX-License-Identifier: Apache-2.0
// Provides helpers for the tests that run the program `compare` on a small text with small models.
#pragma once

#include "programs/harness.hpp"

namespace test {

/// Runs the program `compare` in a temporary folder with the file text.txt. The flags that it provides
/// describe training runs of some milliseconds.
struct Compare : Shell {
  static inline std::string const small = " --model layers=2,heads=2,channels=32 --sequence 16 --batch 2 ";
  static inline std::string const brief = small + "--data text.txt --steps 3 --warmup 1 ";

  Compare() {
    passes(
        "yes 'In the beginning was the word, and the word was counted. ' | head -200 | tr -d '\\n' > "
        "text.txt");
  }

  /// Runs `compare` and returns the JSON document of its results. `compare` must end with the exit code
  /// `code`, and its output must match the regular expressions.
  Json document(std::string const& flags, std::string const& expressions = "", int code = 0) const {
    ends(code, "compare --json document.json " + flags, expressions);
    return json("document.json");
  }
  Json rows(std::string const& flags, std::string const& expressions = "", int code = 0) const {
    return document(flags, expressions, code).at("rows");
  }

  std::vector<std::string> lines(std::string const& file) const {
    std::vector<std::string> found;
    std::istringstream all(text(file));
    for (std::string line; std::getline(all, line);) found.push_back(line);
    return found;
  }

  /// Returns the paths of all files in a folder and its subfolders, one path per line and sorted.
  std::string listed(std::string const& folder) const {
    return passes("cd " + folder + "; find . -type f | cut -c 3- | LC_ALL=C sort");
  }
};

/// Returns an array with the value of the key `key` in each row of the result table `rows`.
inline Json column(Json const& rows, char const* key) {
  Json values = Json::array();
  for (Json const& row : rows) values.push_back(row.at(key));
  return values;
}

}  // namespace test
