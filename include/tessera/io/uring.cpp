// SPDX-License-Identifier: Apache-2.0
// Provides the engine of the CMake target tessera::uring. The engine sends requests through a ring of Linux's
// io_uring, with liburing. If a program links the target, this source is compiled into it, and its engine
// becomes the preferred one before main starts.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <liburing.h>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "tessera/data/file_bytes.hpp"
#include "tessera/io/io_engine.hpp"

namespace {

class Uring final : public tessera::IoEngine {
 public:
  static std::unique_ptr<tessera::IoEngine> open(int depth, std::string& why_not) {
    std::unique_ptr<Uring> engine(new Uring);
    // The engine does not work everywhere. Containers often forbid the system call, and kernels before Linux
    // 5.6 lack the operation IORING_OP_READ.
    int const code = [&] {
      std::lock_guard const lock(mapping());
      return ::io_uring_queue_init(static_cast<unsigned>(depth), &engine->ring_, 0);
    }();
    if (code != 0) {
      why_not = "io_uring: " + tessera::files::errno_text(-code);
      return nullptr;
    }
    engine->open_ = true;
    engine->depth_ = depth;
    ::io_uring_probe* const known = ::io_uring_get_probe_ring(&engine->ring_);
    bool const reads = known != nullptr && ::io_uring_opcode_supported(known, IORING_OP_READ) != 0;
    ::io_uring_free_probe(known);
    if (reads) return engine;
    why_not = "io_uring: this kernel has no plain reads; Linux 5.6 or newer has";
    return nullptr;
  }
  ~Uring() override {
    std::lock_guard const lock(mapping());
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  std::string_view name() const noexcept override { return "io_uring"; }

  void run(int file, bool write, tessera::IoRequest* requests, std::int64_t count) noexcept override {
    for (std::int64_t index = 0; index < count; ++index) requests[index].result = unknown;
    std::int64_t next = 0, in_flight = 0;
    // If the ring fails, the loop still waits for the requests that the kernel already has, because the
    // kernel still reads or writes the memory of these requests.
    while (in_flight > 0 || (next < count && failure_ == 0)) {
      for (; failure_ == 0 && next < count && in_flight + ready() < depth_; ++next)
        if (!fill(file, write, requests[next])) break;
      ::io_uring_cqe* done = nullptr;
      int const code =
          failure_ == 0 ? ::io_uring_submit_and_wait(&ring_, 1) : ::io_uring_wait_cqe(&ring_, &done);
      if (code < 0 && code != -EINTR && (in_flight == 0 || (code != -EAGAIN && code != -EBUSY))) {
        if (failure_ != 0) break;
        failure_ = code;
      }
      if (failure_ == 0 && code > 0) in_flight += code;
      for (; ::io_uring_peek_cqe(&ring_, &done) == 0; --in_flight) {
        static_cast<tessera::IoRequest*>(::io_uring_cqe_get_data(done))->result = done->res;
        ::io_uring_cqe_seen(&ring_, done);
      }
    }
    for (std::int64_t index = 0; index < count; ++index)
      if (requests[index].result == unknown) requests[index].result = failure_;
  }

 private:
  static constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::min();

  Uring() = default;
  /// Returns the mutex that serializes setup and teardown of rings. liburing may map a new ring at the
  /// address of an old one. Without the mutex, the thread sanitizer sees no order between the teardown of the
  /// old ring and the setup of the new one, and reports a race.
  static std::mutex& mapping() {
    static std::mutex mutex;
    return mutex;
  }
  /// Returns the number of requests that are filled in but not yet submitted to the kernel.
  std::int64_t ready() const noexcept { return ::io_uring_sq_ready(&ring_); }

  bool fill(int file, bool write, tessera::IoRequest& request) noexcept {
    ::io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) return false;
    auto const bytes = static_cast<unsigned>(request.bytes);
    auto const offset = static_cast<std::uint64_t>(request.offset);
    if (write)
      ::io_uring_prep_write(entry, file, request.address, bytes, offset);
    else
      ::io_uring_prep_read(entry, file, request.address, bytes, offset);
    ::io_uring_sqe_set_data(entry, &request);
    return true;
  }

  ::io_uring ring_{};
  bool open_ = false;
  std::int64_t depth_ = 0;
  int failure_ = 0;  // error code of the ring; if it is not 0, no new requests are submitted
};

[[maybe_unused]] bool const registered = (tessera::preferred_io_engine.store(Uring::open), true);

}  // namespace
