// SPDX-License-Identifier: Apache-2.0
// One operation as data, and who may listen instead of running it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {
inline namespace v0 {

/// Entries of one lane run in order; entries of different lanes run together unless a wait orders them.
enum class Lane : std::uint8_t {
  compute,
  communication,
  download,  ///< copies from the device to the other tiers
  upload,    ///< and back: a link carries both ways at once
  host,
  gathering,  ///< communication in a channel of its own: what comes ahead of use
  disk,       ///< reads and writes of files
  gradients   ///< of parameters, beside what else computes
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

/// What an operation is about to do: its name, its floating-point operations, and the bytes it reads and
/// writes at least once. `name` outlives the program's operations (a string literal).
struct Operation {
  char const* name = "";
  double flops = 0;
  double bytes = 0;
};

/// Listens to a context. A context with a recorder reports each operation and does not run it; a call that a
/// step must not make (for the host's view of device memory, a wait) is reported as a violation.
class Recorder {
 public:
  virtual ~Recorder() = default;
  virtual void operation(Operation const& operation) = 0;
  virtual void violation(char const* what) = 0;
};

/// Hears when the entries of a step ran, in nanoseconds of the machine's monotonic clock: a context that was
/// given one (`begin_timing`) tells it of each entry, in the order in which they were enqueued, and then of
/// the step as entry -1. It must not throw.
class EntryTimer {
 public:
  virtual ~EntryTimer() = default;
  virtual std::int64_t now() noexcept = 0;
  virtual void ran(int entry, std::int64_t begin, std::int64_t end) noexcept = 0;
};

/// Where operations are enqueued: the workers, the workspace and the order of one rank on one place. Each
/// backend specialises it.
template <class Place>
class Context;

}  // namespace v0
}  // namespace tessera
