// SPDX-License-Identifier: Apache-2.0
// Describes one operation as data, and defines the interfaces that record and time operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {
inline namespace v0 {

/// A queue for the entries (operations) of a training step, such as a CUDA stream. Entries of one lane run in
/// order. Entries of different lanes run concurrently unless one waits for another.
enum class Lane : std::uint8_t {
  compute,
  communication,
  download,  ///< copies from the device to the other tiers
  upload,    ///< copies back to the device, concurrent with downloads
  host,
  gathering,  ///< communication that runs ahead of its use, on a separate channel
  disk,       ///< reads and writes of files
  gradients   ///< gradients of parameters, concurrent with other compute
};
inline constexpr std::size_t lane_count = 8;

constexpr std::string_view name_of(Lane lane) {
  switch (lane) {
    case Lane::compute:
      return "compute";
    case Lane::communication:
      return "communication";
    case Lane::download:
      return "download";
    case Lane::upload:
      return "upload";
    case Lane::host:
      return "host";
    case Lane::gathering:
      return "gathering";
    case Lane::disk:
      return "disk";
    case Lane::gradients:
      return "gradients";
  }
  return "?";
}

/// Describes an operation that is about to run: its name, its floating-point operations, and the bytes it
/// reads and writes at least once. `name` must outlive the program's operations (a string literal).
struct Operation {
  char const* name = "";
  double flops = 0;
  double bytes = 0;
};

/// Receives the operations of a context. A context with a recorder reports each operation instead of running
/// it. It reports a call that is forbidden during a step (a read of device memory by the host, a wait) as a
/// violation.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void operation(Operation const& operation) = 0;
  virtual void violation(char const* what) = 0;
};

/// Receives the times at which the entries of a step ran, in nanoseconds of the machine's monotonic clock. A
/// context with a timer (`begin_timing`) reports each entry in the order of enqueueing, and then the whole
/// step as entry -1. Its functions must not throw.
class EntryTimer {
 public:
  virtual ~EntryTimer() = default;
  virtual std::int64_t now() noexcept = 0;
  virtual void ran(int entry, std::int64_t begin, std::int64_t end) noexcept = 0;
};

/// Enqueues the operations of one rank on a place, such as Cpu or Cuda. Holds its threads or streams and its
/// workspace. Each backend specialises it.
template <class Place>
class Context;

}  // namespace v0
}  // namespace tessera
