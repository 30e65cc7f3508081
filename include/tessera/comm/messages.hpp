// SPDX-License-Identifier: Apache-2.0
// Defines how bytes move between two processes. Implementations: shared memory and MPI.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {

/// Moves bytes between this process and others. One thread uses it. Bytes from one process to another arrive
/// in the order in which they were sent. The sizes of both calls must agree. No function waits.
class Messages {
 public:
  Messages() = default;
  Messages(Messages const&) = delete;
  Messages& operator=(Messages const&) = delete;
  virtual ~Messages() = default;

  /// Returns the name for reports.
  virtual std::string_view name() const noexcept = 0;
  /// Starts to send. The memory must not change until `progress` has returned true.
  virtual void send(int to, void const* data, std::int64_t bytes) = 0;
  /// Starts to receive. The memory holds the bytes when `progress` has returned true.
  virtual void receive(int from, void* data, std::int64_t bytes) = 0;
  /// Advances everything that was started. Returns whether all of it is complete.
  virtual bool progress() = 0;
  /// Gives up everything that was started, because the communicator has failed. Memory that other processes
  /// can reach may be freed afterwards. May wait for half a second.
  virtual void abandon() noexcept {}
};

}  // namespace comm
}  // namespace v0
}  // namespace tessera
