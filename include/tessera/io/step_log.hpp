// SPDX-License-Identifier: Apache-2.0
// Writes the log of a training run: one JSON object per line, readable during the run. Needs nlohmann-json.
#pragma once

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"

namespace tessera {
inline namespace v0 {

/// The values of one optimizer step, which become one line of the log.
struct StepRecord {
  std::int64_t step = 1;  ///< from 1
  double loss = 0;        ///< mean over the global batch, before the update
  double grad_norm = 0;   ///< global norm of the gradients before clipping
  double lr = 0;
  double scale = 1;      ///< the loss scale; 1 without loss scaling
  bool skipped = false;  ///< the gradients were not finite, so the weights did not change
  double tokens_per_sec = 0;
  double ms = 0;
  /// The mean loss if masked targets count with loss 0. Empty if no target is masked.
  std::optional<double> loss_with_padding = std::nullopt;
};

/// A log in JSON Lines. Each line is one write to the file. So a reader never sees a part of a line, and a
/// crash of the process loses no logged line. If a line cannot be written completely because the disk is
/// full, its written part is removed before the error is thrown, so the log stays valid. Numbers have enough
/// digits to restore the same double. A number that is not finite becomes null. Throws Error(failed) with the
/// path and the reason. Not thread-safe. The file is locked against other runs while the log is open.
class JsonlLog {
 public:
  /// Opens the log. With `append`, new lines follow the old lines; otherwise the file is emptied.
  explicit JsonlLog(std::filesystem::path path, bool append = false) : path_(std::move(path)) {
    bool const stream = files::inspect_destination(path_).stream;
    int const flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    file_ = stream ? files::open_stream(path_) : files::Descriptor(::open(path_.c_str(), flags, 0666));
    if (!file_) files::file_error(path_, "open the log", errno);
    if (stream) return;
    files::lock_for_run(file_.get(), path_);
    if (!append && ::ftruncate(file_.get(), 0) != 0) files::file_error(path_, "empty the log", errno);
  }

  std::filesystem::path const& path() const noexcept { return path_; }

  /// Writes a line with the fields "step", "loss", "grad_norm", "lr", "scale", "skipped", "tokens_per_sec"
  /// and "ms", and "loss_with_padding" if it is set.
  void write(StepRecord const& record) {
    nlohmann::ordered_json line = nlohmann::ordered_json::object();
    line["step"] = record.step;
    line["loss"] = record.loss;
    line["grad_norm"] = record.grad_norm;
    line["lr"] = record.lr;
    line["scale"] = record.scale;
    line["skipped"] = record.skipped;
    line["tokens_per_sec"] = record.tokens_per_sec;
    line["ms"] = record.ms;
    if (record.loss_with_padding) line["loss_with_padding"] = *record.loss_with_padding;
    put(line);
  }

  /// Writes a line of another kind, such as settings, a validation loss or an event. `line` must be an object
  /// without a field `step`.
  void note(nlohmann::ordered_json const& line) {
    if (!line.is_object() || line.contains("step"))
      throw Error(ErrorKind::usage, files::path_text(path_) +
                                        ": a note in the log must be a JSON object without the field step");
    put(line);
  }

  /// Waits until every line is on the disk. Returns at once if the log is a device or a pipe.
  void sync() {
    if (::fsync(file_.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
      files::file_error(path_, "sync", errno);
  }

 private:
  void put(nlohmann::ordered_json const& line) {
    std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    text += '\n';
    struct stat before {};
    bool const known = ::fstat(file_.get(), &before) == 0 && S_ISREG(before.st_mode);
    try {
      files::write_all(file_.get(), text.data(), text.size(), path_);
    } catch (Error const&) {
      // The part of the line in a regular file is removed. A device or a pipe has already received its bytes.
      if (known) (void)!::ftruncate(file_.get(), before.st_size);
      throw;
    }
  }

  std::filesystem::path path_;
  files::Descriptor file_;
};

}  // namespace v0
}  // namespace tessera
