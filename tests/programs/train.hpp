// SPDX-License-Identifier: Apache-2.0
// Provides helpers for the tests of the program `train`: a short text, the flags of the smallest model, and
// readers of its log.
#pragma once

#include "programs/harness.hpp"

namespace test {

/// Runs the program `train` in a temporary folder with the file text.txt, which has 2,200 to 2,400 bytes.
struct Train : Shell {
  static inline std::string const tiny =
      "train --model layers=1,heads=2,channels=8,positions=16 --sequence 8 --batch 2 ";
  static inline std::string const small = tiny + "--data text.txt ";
  static inline std::string const words = [] {
    std::string text;
    for (int i = 0; i <= 40; ++i)
      text += "The quick brown fox number " + std::to_string(i) + " jumps over the lazy dog. ";
    return text;
  }();

  Train() { write("text.txt", words); }

  /// Reads the log `log`, which has one JSON object per line. Returns the objects that have the key `key`.
  std::vector<Json> lines(std::string const& log, std::string const& key) const {
    std::vector<Json> found;
    for (Json const& line : json_lines(log))
      if (line.contains(key)) found.push_back(line);
    return found;
  }
  Json summary(std::string const& log) const { return field(lines(log, "summary").at(0), "summary"); }
  std::string weights_hash(std::string const& log) const { return summary(log).at("weights_hash"); }

  /// Checks that a JSON document has the values in `values`, which is JSON too. An object in `values` is
  /// compared key by key, so the document may have more keys.
  static void has_values(Json const& document, std::string const& values) {
    Json patched = document;
    patched.merge_patch(Json::parse(values));
    CHECK(patched.dump() == document.dump());  // also compares 1 with 1.0 as different
  }
  void json_has(std::string const& file, std::string const& values) const { has_values(json(file), values); }
  /// Checks that the first line of the log `log` records the settings in `settings`, which is a JSON object.
  void logs(std::string const& log, std::string const& settings) const {
    has_values(field(json_lines(log).at(0), "config"), settings);
  }

  /// Sets keys of the JSON file `file` to the values in `values`, which is a JSON object. The value "NONE"
  /// removes a key.
  void change(std::string const& file, std::string const& values) const {
    Json document = json(file);
    Json const changes = Json::parse(values);
    for (auto const& [key, value] : changes.items())
      if (value == "NONE")
        document.erase(key);
      else
        document[key] = value;
    write(file, document.dump());
  }

  bool equal(std::string const& a, std::string const& b) const { return text(a) == text(b); }
};

}  // namespace test
