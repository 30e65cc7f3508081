// SPDX-License-Identifier: Apache-2.0
// Provides Messages, the interface that moves bytes between processes. It has two implementations:
// SharedMemory and Mpi.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {

/// Moves bytes between this process and the other processes of a launch. Only one thread may use an object.
/// For each `send`, the receiving process must call `receive` with the same size. The messages from one
/// process to another arrive in the order in which they were sent. `send`, `receive` and `progress` do not
/// wait.
class Messages {
 public:
  Messages() = default;
  Messages(Messages const&) = delete;
  Messages& operator=(Messages const&) = delete;
  virtual ~Messages() = default;

  /// Returns the name for reports, such as "shared memory".
  virtual std::string_view name() const noexcept = 0;
  /// Starts to send `bytes` bytes to rank `to`. The caller must not change the memory until `progress` has
  /// returned true.
  virtual void send(int to, void const* data, std::int64_t bytes) = 0;
  /// Starts to receive `bytes` bytes from rank `from`. The bytes have arrived when `progress` has returned
  /// true.
  virtual void receive(int from, void* data, std::int64_t bytes) = 0;
  /// Continues all sends and receives that were started. Returns whether all of them are complete.
  virtual bool progress() = 0;
  /// Gives up all sends and receives that were started, because the communicator has failed. Afterwards the
  /// caller may free the memory that they used. May wait for up to half a second.
  virtual void abandon() noexcept {}
};

}  // namespace comm
}  // namespace v0
}  // namespace tessera
