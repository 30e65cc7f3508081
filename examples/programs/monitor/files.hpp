// SPDX-License-Identifier: Apache-2.0
// Provides the output files of the program `monitor`, which grow while `monitor` takes samples. After each
// write the file has a valid format, such as complete JSON.
#pragma once

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"

namespace programs {
using namespace tessera;
namespace monitor {

/// An output file, or a stream (a pipe, or "-" for standard output). A write error is stored and not thrown,
/// so that the monitored command can continue.
class GrowingFile {
 public:
  explicit GrowingFile(std::filesystem::path path) : path_(std::move(path)) {
    attempt([&] {
      bool const standard = path_ == "-";
      file_ = files::Descriptor(standard ? ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                                         : ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
      if (!file_) files::file_error(path_, "write", errno);
      struct stat status {};
      stream_ = standard || ::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode);
      if (stream_) return;
      files::lock_for_run(file_.get(), path_);
      if (::ftruncate(file_.get(), 0) != 0) files::file_error(path_, "empty the file", errno);
    });
  }

  void add(std::string const& text) { pending_ += text; }

  /// Writes the text that `add` has collected, then `end`, which completes the file's format. The next call
  /// overwrites `end`. A stream cannot be overwritten, so it gets `end` only if `last` is true.
  void write(std::string const& end, bool last) {
    attempt([&] {
      std::string text = pending_;
      if (last || !stream_) text += end;
      if (!stream_ && ::lseek(file_.get(), written_, SEEK_SET) < 0) files::file_error(path_, "write", errno);
      files::write_all(file_.get(), text.data(), text.size(), path_);
      written_ += static_cast<off_t>(pending_.size());
    });
    pending_.clear();
  }

  /// Returns the first write error; nullopt if there was none.
  std::optional<Error> const& error() const { return error_; }

 private:
  template <class Action>
  void attempt(Action&& action) {
    if (error_) return;
    try {
      action();
    } catch (Error const& error) {
      error_ = error;
    }
  }

  std::filesystem::path path_;
  files::Descriptor file_;
  bool stream_ = false;
  off_t written_ = 0;
  std::string pending_;
  std::optional<Error> error_;
};

}  // namespace monitor
}  // namespace programs
