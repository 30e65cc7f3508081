// SPDX-License-Identifier: Apache-2.0
// Checks that a program overwrites neither its inputs nor another of its outputs. Compares the files
// themselves instead of their names, because links and different spellings can lead to one file.
#pragma once

#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/data/file_bytes.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Returns whether a file of this name in a model's folder belongs to a tokenizer.
bool is_tokenizer_file(std::string const& name);

/// A path from the command line, the flag that gave it, and the file or folder to which it leads. The path
/// "-" means standard output.
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
  std::string const& flag() const { return flag_; }
  bool is_folder() const { return exists_ && S_ISDIR(status_.st_mode); }
  /// Returns the flag and the path for messages: "--log 'run.jsonl'".
  std::string text() const { return flag_ + " '" + files::path_text(path_) + "'"; }

  bool same(NamedPath const& other) const {
    bool const one = exists_ && other.exists_ && status_.st_dev == other.status_.st_dev &&
                     status_.st_ino == other.status_.st_ino;
    return one || place_ == other.place_;
  }
  /// Returns whether this path is a folder that contains `file`. A file with several hard links is also in
  /// the folder if one of its links is there.
  bool holds(NamedPath const& file) const;
  /// Returns whether `file` is directly in this folder and `owns_name` returns true for its name. A file with
  /// several hard links, or a target of a symbolic link, also counts if such a link is directly in the
  /// folder.
  bool holds(NamedPath const& file, bool (*owns_name)(std::string const& name)) const;

 private:
  std::string flag_;
  std::filesystem::path path_, place_;
  struct stat status_ {};
  bool exists_ = false;
};

class CommandLine;

/// The files and folders that a program reads and writes according to its command line. The file outputs.cpp
/// lists the flags that name them, for all programs.
class ProgramFiles {
 public:
  /// Collects the paths that the flags name. `models` holds the files and folders that --model names. They
  /// are passed separately because the value of --model can also be the name of a built-in model, which is
  /// not a path. `others` holds further inputs, such as files inside a folder that a flag names.
  explicit ProgramFiles(CommandLine const& line, std::vector<std::filesystem::path> const& models = {},
                        std::vector<NamedPath> const& others = {});

  /// Throws Error(usage) if an output would overwrite an input or another output. The message names both
  /// paths. `more` holds outputs whose paths the program derives from the value of a flag.
  void check(std::vector<NamedPath> const& more = {}) const;

 private:
  /// Says which files the program reads if an input path names a file, and which files it reads if the path
  /// names a folder.
  enum class Reads {
    whole,      ///< a file, or everything in a folder
    model,      ///< a file, or the files of a model or adapter in a folder
    tokenizer,  ///< a file, or the files of a tokenizer in a folder
    /// like `whole`, but if the path names a file, --save may replace this file: --save writes only after the
    /// last step, when the weights have been read
    weights
  };
  struct Input {
    NamedPath path;
    Reads reads;
  };
  static bool is_read(Input const& input, NamedPath const& output);

  std::vector<Input> inputs_;
  std::vector<NamedPath> outputs_;
};

}  // namespace cli
}  // namespace programs
