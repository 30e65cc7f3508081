// SPDX-License-Identifier: Apache-2.0
// Prints the benchmarks that a program leaves out, with the reasons. The names are shortened to patterns that
// a shell such as bash expands: step/zs2/{fp32,bf16}/none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace left_out {

/// The parts of a benchmark's name. The name is all parts one after the other.
using Parts = std::vector<std::string>;

inline std::string name_of(Parts const& parts) {
  std::string name;
  for (std::string const& part : parts) name += part;
  return name;
}

/// A set of names: every combination of one text for each part.
using Pattern = std::vector<std::vector<std::string>>;

/// Returns the pattern as text, such as "/ranks:{1,4}". If a part has several texts, the part's text begins
/// with the segments and titles that all of them have in common. The rest of each text is in braces.
inline std::string text_of(Pattern const& pattern) {
  std::string text;
  for (std::vector<std::string> const& texts : pattern) {
    std::string common = texts.front();
    for (std::string const& one : texts) {
      auto const differ = std::mismatch(common.begin(), common.end(), one.begin(), one.end()).first;
      common.erase(differ, common.end());
    }
    if (texts.size() > 1) common.erase(common.find_last_of("/:") + 1);
    text += common;
    if (texts.size() == 1) continue;
    char before = '{';
    for (std::string const& one : texts) {
      text += before + one.substr(common.size());
      before = ',';
    }
    text += '}';
  }
  return text;
}

/// Returns patterns that together contain each of the names once, and no other name. All names must have the
/// same number of parts.
inline std::vector<Pattern> patterns_of(std::vector<Parts> const& names) {
  std::vector<Pattern> patterns;
  for (Parts const& parts : names) {
    Pattern& single = patterns.emplace_back();
    for (std::string const& part : parts) single.push_back({part});
  }
  for (std::size_t at = names.empty() ? 0 : names.front().size(); at-- > 0;) {
    std::map<Pattern, std::size_t> places;  // patterns without their part `at`, and their places in `merged`
    std::vector<Pattern> merged;            // the patterns that differ only in the part `at` become one
    for (Pattern& pattern : patterns) {
      std::vector<std::string> const own = std::exchange(pattern[at], {});
      auto const [found, fresh] = places.emplace(pattern, merged.size());
      if (fresh) merged.push_back(std::move(pattern));
      std::vector<std::string>& texts = merged[found->second][at];
      texts.insert(texts.end(), own.begin(), own.end());
    }
    patterns = std::move(merged);
  }
  return patterns;
}

/// The benchmarks of a program that do not run, in groups of one reason.
class List {
 public:
  void add(Parts const& name, std::string const& reason) {
    auto const same = std::find_if(groups_.begin(), groups_.end(),
                                   [&](Group const& group) { return group.reason == reason; });
    Group& group = same == groups_.end() ? groups_.emplace_back(Group{reason, {}}) : *same;
    group.names.push_back(name);
    ++count_;
  }
  std::size_t count() const { return count_; }

  /// Returns the text that the program prints: a line with the numbers of benchmarks, and for each reason one
  /// line with the reason and one line for each pattern of names. `listed` is the number of benchmarks that
  /// run.
  std::string text(std::string const& program, std::size_t listed) const {
    std::string text = program + ": " + std::to_string(listed) + " benchmarks can run here, and " +
                       std::to_string(count_) + " are left out" + (count_ > 0 ? ":" : "") + "\n";
    for (Group const& group : groups_) {
      text += std::to_string(group.names.size()) + " left out: " + group.reason + "\n";
      for (Pattern const& pattern : patterns_of(group.names)) text += "  " + text_of(pattern) + "\n";
    }
    return text;
  }
  /// Prints the text to the standard error stream, so that a report on the standard output stays valid JSON.
  void print(std::string const& program, std::size_t listed) const {
    std::fputs(text(program, listed).c_str(), stderr);
  }

 private:
  struct Group {
    std::string reason;
    std::vector<Parts> names;
  };
  std::vector<Group> groups_;
  std::size_t count_ = 0;
};

}  // namespace left_out
