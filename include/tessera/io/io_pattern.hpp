// SPDX-License-Identifier: Apache-2.0
// Chooses the size of disk requests and the number of simultaneous requests, by measuring a few candidates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tessera/detail/clock.hpp"
#include "tessera/io/io_engine.hpp"

namespace tessera {
inline namespace v0 {

/// The size of each disk request in bytes, and the number of requests that run at once.
struct IoPattern {
  std::int64_t request_bytes = 0;
  int depth = 0;
  friend bool operator==(IoPattern const&, IoPattern const&) = default;
};

namespace detail {

/// Returns `given`, with each value that is 0 (not set) replaced by the value of `other`.
constexpr IoPattern completed(IoPattern given, IoPattern other) {
  return {given.request_bytes > 0 ? given.request_bytes : other.request_bytes,
          given.depth > 0 ? given.depth : other.depth};
}

/// The pattern for files that are too small for a trial: 8 requests of 1 MiB.
inline constexpr IoPattern usual_pattern{std::int64_t{1} << 20, 8};

/// Writes `bytes` bytes from `buffer` to the start of `file` and reads them again. Returns the duration in
/// seconds. If a request fails, returns 1e9 or more.
inline double round_seconds(IoEngine& engine, int file, IoPattern pattern, std::byte* buffer,
                            std::int64_t bytes) {
  std::vector<IoRequest> requests;
  for (std::int64_t at = 0; at < bytes; at += pattern.request_bytes)
    requests.push_back({buffer + at, at, std::min(pattern.request_bytes, bytes - at)});
  auto const start = std::chrono::steady_clock::now();
  double failed = 0;
  for (bool const write : {true, false}) {
    engine.run(file, write, requests.data(), static_cast<std::int64_t>(requests.size()));
    for (IoRequest const& request : requests)
      if (request.result != request.bytes) failed = 1e9;
  }
  return failed + std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Measures five patterns and returns the fastest one. If a value of `given` is not 0, all five patterns have
/// this value. A pattern is measured in two rounds. A round writes 16 MiB of zeros to the start of the file
/// and reads them again. The trial stops at the first round that ends more than 0.5 s after the start of the
/// trial. The usual pattern is tried first. A later pattern replaces the best one so far only if it needs
/// more than 5% less time.
inline IoPattern fastest_pattern(int file, OpenIoEngine open, IoPattern given) {
  constexpr std::int64_t mebibyte = std::int64_t{1} << 20, bytes = 16 * mebibyte;
  struct Free {
    void operator()(std::byte* buffer) const noexcept { ::operator delete (buffer, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte, Free> const buffer(new (::operator new (bytes, std::align_val_t{4096}))
                                                    std::byte[bytes]());
  IoPattern best = completed(given, usual_pattern);
  double least = 0;
  auto const start = std::chrono::steady_clock::now();
  for (IoPattern const candidate : {usual_pattern, IoPattern{mebibyte, 16}, IoPattern{2 * mebibyte, 8},
                                    IoPattern{4 * mebibyte, 4}, IoPattern{mebibyte / 2, 16}}) {
    IoPattern const pattern = completed(given, candidate);
    std::string ignored;
    std::unique_ptr<IoEngine> const engine = open_io_engine(open, pattern.depth, ignored);
    for (int round = least == 0 ? 0 : 1; round < 3; ++round) {
      double const seconds = round_seconds(*engine, file, pattern, buffer.get(), bytes);
      if (std::chrono::steady_clock::now() - start > std::chrono::milliseconds(500)) return best;
      // The first round of the first pattern does not count. It needs more time, because the file system
      // allocates the blocks of the file.
      if (round > 0 && (least == 0 || seconds < 0.95 * least)) {
        least = seconds;
        best = pattern;
      }
    }
  }
  return best;
}

/// Returns `given`, with each value that is 0 (not set) chosen by a trial. The trial overwrites the contents
/// of `file`, which has `bytes` bytes. A process runs one trial for each combination of folder, engine and
/// `given`; other threads wait until it ends. A file below 64 MiB gets the usual pattern without a trial.
inline IoPattern choose_pattern(std::string const& folder, int file, std::int64_t bytes, OpenIoEngine open,
                                IoPattern given) {
  struct Known {
    std::string folder;
    OpenIoEngine open;
    IoPattern given, found;
  };
  static std::mutex mutex;
  static std::vector<Known> known;
  if (completed(given, usual_pattern) == given) return given;
  std::lock_guard const lock(mutex);
  for (Known const& trial : known)
    if (trial.folder == folder && trial.open == open && trial.given == given) return trial.found;
  if (bytes < (std::int64_t{64} << 20)) return completed(given, usual_pattern);
  IoPattern const found = fastest_pattern(file, open, given);
  known.push_back({folder, open, given, found});
  return found;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
