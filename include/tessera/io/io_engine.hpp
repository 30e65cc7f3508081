// SPDX-License-Identifier: Apache-2.0
// Provides engines that run several positioned reads and writes at once: threads, which are always available,
// and io_uring in programs that link tessera::uring.
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

/// One positioned read or write, and its result.
struct IoRequest {
  std::byte* address = nullptr;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::int64_t result = 0;  ///< bytes transferred, possibly fewer than requested, or -errno
};

/// Runs several requests at once. Only one call of run() at a time is allowed.
class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual std::string_view name() const noexcept = 0;
  /// Fills in the result of every request, then returns. No two requests may touch the same bytes.
  virtual void run(int file, bool write, IoRequest* requests, std::int64_t count) noexcept = 0;
};

/// Opens an engine that keeps `depth` requests running. Returns null and the reason if the system refuses.
using OpenIoEngine = std::unique_ptr<IoEngine> (*)(int depth, std::string& why_not);

/// The engine that files use instead of threads; null: none. A program that links an engine registers it
/// before the first file is made.
inline std::atomic<OpenIoEngine> preferred_io_engine{nullptr};

/// Runs each request on a thread, `depth` at once, with pread and pwrite.
class IoThreads final : public IoEngine {
 public:
  /// Throws Error(failed) if the system does not start that many threads.
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

/// Opens an engine with `open`, or the preferred engine if `open` is null. If that fails or there is none,
/// returns an IoThreads. `description` gets the engine's name and, if another was wanted, the reason why it
/// is not used: "threads: io_uring: Operation not permitted".
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
