// SPDX-License-Identifier: Apache-2.0
// Outputs against inputs: a program must not write what it reads, nor one file twice. Names do not decide
// that: links, other spellings and folders lead to the same file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <utility>
#include <vector>

#include "common/values.hpp"

namespace tessera {
inline namespace v0 {
namespace cli {

/// A path of the command line, with its flag, and the file or folder that it leads to. "-" is standard
/// output.
class NamedPath {
 public:
  NamedPath(std::string flag, std::filesystem::path path) : flag_(std::move(flag)), path_(std::move(path)) {
    std::error_code code;
    std::filesystem::path const meant = path_ == "-" ? std::filesystem::path("/dev/stdout") : path_;
    std::filesystem::path const whole = std::filesystem::absolute(meant, code);
    place_ = std::filesystem::weakly_canonical(whole, code);
    if (code) place_ = whole.lexically_normal();
    exists_ = ::stat(meant.c_str(), &status_) == 0;
  }

  bool empty() const { return path_.empty(); }
  bool is_folder() const { return exists_ && S_ISDIR(status_.st_mode); }
  /// "--log 'run.jsonl'".
  std::string text() const { return flag_ + " '" + v0::detail::path_text(path_) + "'"; }

  bool same(NamedPath const& other) const {
    bool const one = exists_ && other.exists_ && status_.st_dev == other.status_.st_dev &&
                     status_.st_ino == other.status_.st_ino;
    return one || place_ == other.place_;
  }
  /// Whether a file lies in this folder, or is another name of one that does.
  bool holds(NamedPath const& file) const {
    if (!is_folder()) return false;
    if (std::mismatch(place_.begin(), place_.end(), file.place_.begin(), file.place_.end()).first ==
        place_.end())
      return true;
    if (!file.exists_ || file.status_.st_nlink < 2) return false;
    std::error_code code;
    std::filesystem::recursive_directory_iterator entry(
        place_, std::filesystem::directory_options::skip_permission_denied, code);
    for (; !code && entry != std::filesystem::recursive_directory_iterator(); entry.increment(code))
      if (std::filesystem::equivalent(entry->path(), file.place_, code)) return true;
    return false;
  }

 private:
  std::string flag_;
  std::filesystem::path path_, place_;
  struct stat status_ {};
  bool exists_ = false;
};

/// Refuses an output that is an input or lies in a folder of inputs. Throws Error(usage).
inline void check_apart(std::vector<NamedPath> const& outputs, std::vector<NamedPath> const& inputs) {
  for (NamedPath const& output : outputs)
    for (NamedPath const& input : inputs) {
      if (output.empty() || input.empty()) continue;
      if (!input.is_folder() && output.same(input))
        refuse(output.text() + " and " + input.text() +
               " are the same file; writing one would destroy the other, give another name");
      if (input.holds(output))
        refuse(output.text() + " leads into the folder that " + input.text() +
               " reads; give a name outside that folder");
    }
}

/// Refuses two outputs that are one file. Throws Error(usage).
inline void check_distinct(std::vector<NamedPath> const& outputs) {
  for (std::size_t a = 0; a < outputs.size(); ++a)
    for (std::size_t b = a + 1; b < outputs.size(); ++b)
      if (!outputs[a].empty() && !outputs[b].empty() && outputs[a].same(outputs[b]))
        refuse(outputs[a].text() + " and " + outputs[b].text() + " are the same file; give two names");
}

}  // namespace cli
}  // namespace v0
}  // namespace tessera
