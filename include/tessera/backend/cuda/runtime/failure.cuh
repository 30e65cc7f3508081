// SPDX-License-Identifier: Apache-2.0
// Keeps the first failure of the calls that enqueue work, since these calls do not throw.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/stream_memory.cuh"  // the text of the driver's errors
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The first failure of one context. Later ones are not kept, because they follow from it.
class FirstFailure {
 public:
  FirstFailure() = default;
  FirstFailure(FirstFailure const&) = delete;
  FirstFailure& operator=(FirstFailure const&) = delete;

  explicit operator bool() const noexcept { return text_.has_value(); }
  void keep(std::string text) noexcept {
    if (!text_) text_ = std::move(text);
  }
  /// Keeps the failure of a call, if it failed. `what` is a string literal.
  template <class Status>
  void check(Status status, char const* what) noexcept {
    if (succeeded(status) || text_) return;
    text_ = std::string("CUDA: ") + what + " failed: " + text_of(status);
  }
  /// Throws Error(failed) with the failure, if there is one.
  void raise() const {
    if (text_) throw Error(ErrorKind::failed, *text_);
  }

 private:
  std::optional<std::string> text_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
