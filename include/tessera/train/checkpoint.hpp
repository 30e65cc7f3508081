// SPDX-License-Identifier: Apache-2.0
// Checkpoints: a folder that holds all of a run's state, and a folder of such folders. Needs nlohmann-json
// and xxHash.
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/fwd.hpp"
#include "tessera/io/file.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/async_checkpoint.hpp"
#include "tessera/train/checkpoint_info.hpp"
#include "tessera/train/checkpoint_reader.hpp"
#include "tessera/train/checkpoint_writer.hpp"
#include "tessera/train/state_access.hpp"

namespace tessera {
inline namespace v0 {

/// Writes all state of a trainer as a new folder, which appears whole or not at all; all ranks call it
/// together and see the same file system. Waits for the steps under way. Each rank writes what it holds, a
/// chunk at a time; takes SaveStaging::bytes of host memory a rank, of the plan where
/// TrainerOptions::checkpoints says so. Throws Error(failed) with path and reason, on all ranks the same.
template <class AnyKindOfTrainer>
void save_checkpoint(AnyKindOfTrainer& trainer, std::filesystem::path const& folder,
                     CheckpointOptions const& options = {}) {
  detail::CheckpointWriter(detail::state_of(trainer), folder, options).run();
}

/// Replaces all state of a trainer by that of a checkpoint, which may come from another stage, world,
/// offload, precision or device: the next step is the one after the checkpoint's. All ranks call it together.
/// Reads every file once against its checksum. Throws Error(data) that names the file or tensor, on all ranks
/// the same; then the trainer may be half filled.
template <class AnyKindOfTrainer>
CheckpointInfo resume(AnyKindOfTrainer& trainer, std::filesystem::path const& folder) {
  return detail::CheckpointReader(detail::state_of(trainer), folder).run();
}

/// A folder of checkpoints, one a step: `step-00000010`, and `latest`, a file that names the newest. One run
/// at a time may have it. Every rank may make one.
class Checkpoints {
 public:
  /// `keep`: how many stay, the newest; 0: all.
  explicit Checkpoints(std::filesystem::path folder, int keep = 0)
      : folder_(detail::without_slash(std::move(folder))), keep_(keep) {}

  std::filesystem::path path(std::int64_t step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
    return folder_ / name;
  }
  /// The steps that have a checkpoint, rising. None where there is no such folder.
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    std::error_code code;
    std::filesystem::directory_iterator entry(folder_, code);
    for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
      std::string const name = entry->path().filename().string();
      std::int64_t step = 0;
      if (!name.starts_with("step-")) continue;
      auto const [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
      if (error == std::errc() && end == name.data() + name.size() && path(step).filename() == name)
        found.push_back(step);
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  std::optional<std::int64_t> newest() const {
    auto const all = steps();
    return all.empty() ? std::nullopt : std::optional(all.back());
  }

  /// Makes the folder, takes it for this object until it goes, and removes what saves and removals that were
  /// killed have left. One rank calls it. Throws Error(failed) when another run has the folder.
  void take() {
    make_folder(folder_);
    taken_ = detail::Descriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!taken_) detail::file_error(folder_, "open the folder", errno);
    if (::flock(taken_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw Error(ErrorKind::failed, detail::path_text(folder_) +
                                         ": another run writes its checkpoints there; give another folder");
    std::error_code code;
    std::filesystem::directory_iterator entry(folder_, code);
    for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
      std::string const name = entry->path().filename().string();
      std::error_code ignored;
      if (name.starts_with(".step-") && (name.ends_with(".partial") || name.ends_with(".old")))
        std::filesystem::remove_all(entry->path(), ignored);
    }
    detail::sweep_temporaries(folder_);
  }

  /// Saves the step that the trainer is at, then removes the oldest that are too many; all ranks together.
  /// Gives the folder.
  template <class AnyKindOfTrainer>
  std::filesystem::path save(AnyKindOfTrainer& trainer, CheckpointOptions const& options = {}) const {
    StateAccess& state = detail::state_of(trainer);
    std::filesystem::path const to = path(state.scalars().attempted);
    detail::CheckpointWriter(state, to, options).run();
    detail::together(state.transport(), "latest", [&] {
      if (state.plan().is_root()) named(to);
    });
    return to;
  }
  /// The same beside the steps that follow; this object outlives the save. Waits for the one before.
  template <class AnyKindOfTrainer>
  std::filesystem::path save(AnyKindOfTrainer& trainer, AsyncCheckpoint& beside,
                             CheckpointOptions const& options = {}) const {
    beside.wait();
    std::filesystem::path const to = path(detail::state_of(trainer).scalars().attempted);
    beside.save(trainer, to, options, [this, to] { named(to); });
    return to;
  }

 private:
  /// On rank 0, once a checkpoint has its name.
  void named(std::filesystem::path const& newest) const {
    write_file(folder_ / "latest", newest.filename().string() + "\n");
    remove_old();
  }
  /// One that is being removed has another name first: what has the name of a checkpoint is whole.
  void remove_old() const {
    auto const all = steps();
    if (keep_ <= 0 || all.size() <= static_cast<std::size_t>(keep_)) return;
    for (std::size_t index = 0; index + static_cast<std::size_t>(keep_) < all.size(); ++index) {
      std::filesystem::path const old = path(all[index]);
      std::filesystem::path const away = folder_ / ("." + old.filename().string() + ".old");
      if (::rename(old.c_str(), away.c_str()) != 0) detail::file_error(old, "rename", errno);
      std::error_code code;
      std::filesystem::remove_all(away, code);
      if (code) detail::file_error(old, "remove", code.value());
    }
  }

  std::filesystem::path folder_;
  int keep_;
  detail::Descriptor taken_;
};

}  // namespace v0
}  // namespace tessera
