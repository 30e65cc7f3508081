// SPDX-License-Identifier: Apache-2.0
// Checks that a program overwrites neither its inputs nor its other outputs. Compares files instead of names,
// since links and different spellings can lead to one file.
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

/// A path from the command line, with the flag that gave it and the file or folder that it leads to. The path
/// "-" is standard output.
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
  /// Returns whether the file is in this folder, or is linked to a file in it.
  bool holds(NamedPath const& file) const;
  /// Returns whether the file is directly in this folder, or is linked to a file directly in it, and that
  /// file's name satisfies `owns_name`.
  bool holds(NamedPath const& file, bool (*owns_name)(std::string const& name)) const;

 private:
  std::string flag_;
  std::filesystem::path path_, place_;
  struct stat status_ {};
  bool exists_ = false;
};

class CommandLine;

/// The files and folders that a command line reads and writes. The flags of all programs are listed in
/// outputs.cpp.
class ProgramFiles {
 public:
  /// Collects the paths of all flags. `models` holds the files and folders of models separately, since
  /// --model may also give a name. `others` holds further inputs, such as files in folders that a flag names.
  explicit ProgramFiles(CommandLine const& line, std::vector<std::filesystem::path> const& models = {},
                        std::vector<NamedPath> const& others = {});

  /// Throws Error(usage), which names both paths, if an output would overwrite an input or another output.
  /// `more` holds outputs whose paths are derived from the value of a flag.
  void check(std::vector<NamedPath> const& more = {}) const;

 private:
  enum class Reads {
    whole,      ///< a file, or all that a folder holds
    model,      ///< a file, or the files of a model or adapter in a folder
    tokenizer,  ///< a file, or the files of a tokenizer in a folder
    weights     ///< as `whole`, but --save may overwrite a single file: it is replaced after the last
                ///< step
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
