// SPDX-License-Identifier: Apache-2.0
// Defines the description of one operation (its name and cost), the lanes (queues) of a step, and the
// interfaces that record and time operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {
inline namespace v0 {

/// A queue for the entries of a training step, such as a CUDA stream. An entry is one computation or one
/// transfer. Entries of one lane run in order. Entries of different lanes run concurrently unless one waits
/// for another.
enum class Lane : std::uint8_t {
  compute,
  communication,
  download,  ///< copies from device memory to host memory
  upload,    ///< copies from host memory to device memory; a separate lane, so that they overlap downloads
  host,
  gathering,  ///< all-gathers of weights before they are needed, on a separate communicator
  disk,       ///< reads and writes of files
  gradients   ///< computation of parameter gradients, which can overlap the lane `compute`
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

/// Describes an operation that is about to run: its name, the number of its floating-point operations, and
/// the number of bytes that it must read and write. `name` must stay valid until the program ends, as a
/// string literal does.
struct Operation {
  char const* name = "";
  double flops = 0;
  double bytes = 0;
};

/// Receives descriptions of operations from a context, the object that runs the operations of one rank on a
/// device. A context with a recorder does not run operations; it passes the description of each operation to
/// the recorder. If the context is called in a way that is forbidden during a step (a read of device memory
/// by the host, a wait), the context reports this call to the recorder as a violation.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void operation(Operation const& operation) = 0;
  virtual void violation(char const* what) = 0;
};

/// Receives the times at which the entries (computations and transfers) of a step ran, in nanoseconds of the
/// machine's monotonic clock. A context with a timer (`begin_timing`) calls `ran` for each entry in the order
/// of enqueueing, and then for the whole step as entry -1. The functions of a timer must not throw.
class EntryTimer {
 public:
  virtual ~EntryTimer() = default;
  virtual std::int64_t now() noexcept = 0;
  virtual void ran(int entry, std::int64_t begin, std::int64_t end) noexcept = 0;
};

/// Runs the operations of one rank on a device. `Place` is the device as a type, Cpu or Cuda. A context owns
/// the threads or streams that run the operations. Each backend specialises this template.
template <class Place>
class Context;

}  // namespace v0
}  // namespace tessera
