// SPDX-License-Identifier: Apache-2.0
// Provides copies of values between the host and the memory of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/tensor/array.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// An upload of at most this number of bytes goes through pinned memory and does not wait for the GPU.
inline constexpr std::int64_t direct_upload_bytes = std::int64_t{1} << 20;

namespace detail {

inline void expect_transfer(char const* name, std::size_t values, Shape const& shape, bool empty) {
  if (empty ? values != 0 : static_cast<std::int64_t>(values) != shape.elements())
    throw_error(ErrorKind::usage, {name, " got ", values, " values of the host for a tensor of the shape ",
                                   empty ? "[0]" : to_string(shape), "; give as many values as elements"});
}

}  // namespace detail

/// Copies the values of the host to a tensor, in the order of the operations: later operations see the new
/// values, earlier ones the old values. The caller may change `from` when the function returns.
/// Synchronisation: an upload on the CPU does not wait. An upload of at most direct_upload_bytes bytes to a
/// GPU waits only until the eighth upload before it has ended. A larger upload to a GPU first waits for all
/// enqueued work, throws the first failure of this work, and returns when the copy has ended. Throws
/// Error(usage) if the numbers of values differ.
template <class T, class P>
void upload(Context<P>& context, std::type_identity_t<std::span<T const>> from, Tensor<T, P> to) {
  detail::expect_transfer("upload", from.size(), to.shape(), !to);
  if (from.empty()) return;
  if constexpr (!Context<P>::immediate) {
    if (to.bytes() > direct_upload_bytes) {
      context.synchronize();
      context.raise();
      context.write(to.data(), from.data(), from.size_bytes());
      return;
    }
  }
  context.upload(to.data(), from.data(), from.size_bytes());
}
template <class T, class P>
void upload(Context<P>& context, std::type_identity_t<std::span<T const>> from, Array<T, P>& to) {
  upload(context, from, to.view());
}

/// Copies the values of a tensor to the host. Waits for all enqueued work and returns when the copy has
/// ended. Throws Error(failed) with the first failure of this work, and Error(usage) if the numbers of values
/// differ.
template <class T, class P>
void download(Context<P>& context, Tensor<T, P> from,
              std::type_identity_t<std::span<std::remove_const_t<T>>> to) {
  detail::expect_transfer("download", to.size(), from.shape(), !from);
  if (!to.empty()) context.read(from.data(), to.data(), to.size_bytes());
}
template <class T, class P>
void download(Context<P>& context, Array<T, P> const& from, std::type_identity_t<std::span<T>> to) {
  download(context, from.view(), to);
}

/// Returns the values of an array on the host. Waits like the functions above.
template <class T, class P>
std::vector<T> download(Context<P>& context, Array<T, P> const& from) {
  std::vector<T> values(static_cast<std::size_t>(from.elements()));
  download(context, from.view(), values);
  return values;
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
