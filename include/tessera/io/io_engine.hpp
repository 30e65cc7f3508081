// SPDX-License-Identifier: Apache-2.0
// Provides engines that run several reads and writes at given file offsets at once. The engine with threads
// is always available. The engine with io_uring is available in programs that link tessera::uring.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unistd.h>

#include "tessera/backend/cpu/pool.hpp"

namespace tessera {
inline namespace v0 {

/// A read or a write at a file offset, and its result.
struct IoRequest {
  std::byte* address = nullptr;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::int64_t result = 0;  ///< bytes transferred, possibly fewer than requested; a negative result is -errno
};

/// Runs several requests at once. Only one call of `run` at a time is allowed.
class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual std::string_view name() const noexcept = 0;
  /// Runs `count` requests on the descriptor `file`, stores each request's result in IoRequest::result, and
  /// then returns. `write` says whether the requests are writes or reads. Two requests must not touch the
  /// same bytes.
  virtual void run(int file, bool write, IoRequest* requests, std::int64_t count) noexcept = 0;
};

/// The type of a function that opens an engine. The engine keeps up to `depth` requests running. If the
/// system does not permit the engine, the function returns null and stores the reason in `why_not`.
using OpenIoEngine = std::unique_ptr<IoEngine> (*)(int depth, std::string& why_not);

/// The function that opens the preferred engine. It is null if the program links no engine other than
/// IoThreads. If the program links io/uring.cpp, that file sets this variable before `main`.
inline std::atomic<OpenIoEngine> preferred_io_engine{nullptr};

/// Runs each request with pread or pwrite on one of `depth` threads.
class IoThreads final : public IoEngine {
 public:
  /// Throws Error(failed) if the system does not start `depth` threads.
  explicit IoThreads(int depth) : pool_(depth) {}
  static std::unique_ptr<IoEngine> open(int depth, std::string&) {
    return std::make_unique<IoThreads>(depth);
  }

  std::string_view name() const noexcept override { return "threads"; }
  void run(int file, bool write, IoRequest* requests, std::int64_t count) noexcept override {
    pool_.parallel_for(count, [=](std::int64_t index, int) {
      IoRequest& request = requests[index];
      auto const bytes = static_cast<std::size_t>(request.bytes);
      ssize_t const moved = write ? ::pwrite(file, request.address, bytes, request.offset)
                                  : ::pread(file, request.address, bytes, request.offset);
      request.result = moved < 0 ? -errno : moved;
    });
  }

 private:
  cpu::ThreadPool pool_;
};

/// Returns a new engine. Opens it with `open` or, if `open` is null, with `preferred_io_engine`. If this
/// fails or both are null, returns an IoThreads. Stores the name of the engine in `description`. If it is
/// IoThreads instead of another engine, the reason follows the name: "threads: io_uring: Operation not
/// permitted".
inline std::unique_ptr<IoEngine> open_io_engine(OpenIoEngine open, int depth, std::string& description) {
  if (open == nullptr) open = preferred_io_engine.load();
  std::string why_not = "io_uring is not linked";
  if (open != nullptr) {
    if (std::unique_ptr<IoEngine> engine = open(depth, why_not)) {
      description = engine->name();
      return engine;
    }
  }
  description = "threads: " + why_not;
  return std::make_unique<IoThreads>(depth);
}

}  // namespace v0
}  // namespace tessera
