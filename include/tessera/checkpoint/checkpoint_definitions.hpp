// SPDX-License-Identifier: Apache-2.0
// Defines the functions of checkpoint/checkpoint.hpp. Needs nlohmann-json and xxHash.
#pragma once

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/checkpoint/async.hpp"
#include "tessera/checkpoint/checkpoint.hpp"
#include "tessera/checkpoint/files.hpp"
#include "tessera/checkpoint/info.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tessera/checkpoint/writer.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"
#include "tessera/train/state_access.hpp"
#include "tessera/train/trainer_interface.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_INLINE void save_checkpoint(AnyTrainer& trainer, std::filesystem::path const& folder,
                                    CheckpointOptions const& options) {
  detail::CheckpointWriter(trainer.state(), folder, options).run();
}

TESSERA_INLINE CheckpointInfo resume(AnyTrainer& trainer, std::filesystem::path const& folder) {
  return detail::CheckpointReader(trainer.state(), folder).run();
}

TESSERA_INLINE Checkpoints::Checkpoints(std::filesystem::path folder, int keep)
    : folder_(detail::without_slash(std::move(folder))), keep_(keep) {}

TESSERA_INLINE std::filesystem::path Checkpoints::path(std::int64_t step) const {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return folder_ / name;
}

TESSERA_INLINE std::vector<std::int64_t> Checkpoints::steps() const {
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

TESSERA_INLINE std::optional<std::int64_t> Checkpoints::newest() const {
  auto const all = steps();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

TESSERA_INLINE void Checkpoints::lock() {
  make_folder(folder_);
  lock_ = files::Descriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock_) files::file_error(folder_, "open the folder", errno);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(ErrorKind::failed, files::path_text(folder_) +
                                       ": another run writes its checkpoints there; give another folder");
  std::error_code code;
  std::filesystem::directory_iterator entry(folder_, code);
  for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
    std::string const name = entry->path().filename().string();
    std::error_code ignored;
    if (name.starts_with(".step-") && (name.ends_with(".partial") || name.ends_with(".old")))
      std::filesystem::remove_all(entry->path(), ignored);
  }
  files::sweep_temporaries(folder_);
}

TESSERA_INLINE std::filesystem::path Checkpoints::save(AnyTrainer& trainer,
                                                       CheckpointOptions const& options) const {
  StateAccess& state = trainer.state();
  std::filesystem::path const to = path(state.scalars().attempted);
  detail::CheckpointWriter(state, to, options).run();
  detail::together(state.transport(), "latest", [&] {
    if (state.plan().is_root()) named(to);
  });
  return to;
}

TESSERA_INLINE std::filesystem::path Checkpoints::save(AnyTrainer& trainer, AsyncCheckpoint& async,
                                                       CheckpointOptions const& options) const {
  async.wait();
  std::filesystem::path const to = path(trainer.state().scalars().attempted);
  async.save(trainer, to, options, [this, to] { named(to); });
  return to;
}

TESSERA_INLINE void Checkpoints::named(std::filesystem::path const& newest) const {
  write_file(folder_ / "latest", newest.filename().string() + "\n");
  remove_old();
}

TESSERA_INLINE void Checkpoints::remove_old() const {
  auto const all = steps();
  if (keep_ <= 0 || all.size() <= static_cast<std::size_t>(keep_)) return;
  for (std::size_t index = 0; index + static_cast<std::size_t>(keep_) < all.size(); ++index) {
    std::filesystem::path const old = path(all[index]);
    std::filesystem::path const away = folder_ / ("." + old.filename().string() + ".old");
    if (::rename(old.c_str(), away.c_str()) != 0) files::file_error(old, "rename", errno);
    std::error_code code;
    std::filesystem::remove_all(away, code);
    if (code) files::file_error(old, "remove", code.value());
  }
}

}  // namespace v0
}  // namespace tessera
