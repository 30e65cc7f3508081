// SPDX-License-Identifier: Apache-2.0
// Provides FirstFailure, which keeps the first failed CUDA call of a context. The functions that enqueue work
// do not throw, so the failure is thrown later.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The first failure of one context. Later failures are consequences of the first one, so they are not kept.
class FirstFailure {
 public:
  FirstFailure() = default;
  FirstFailure(FirstFailure const&) = delete;
  FirstFailure& operator=(FirstFailure const&) = delete;

  explicit operator bool() const noexcept { return text_.has_value(); }
  void keep(std::string text) noexcept {
    if (!text_) text_ = std::move(text);
  }
  /// If `status` is an error, and no earlier failure is kept, keeps it as the failure of the call `what`.
  template <class Status>
  void check(Status status, char const* what) noexcept {
    if (succeeded(status) || text_) return;
    text_ = std::string("CUDA: ") + what + " failed: " + text_of(status);
  }
  /// Throws Error(failed) with the kept failure, if there is one.
  void raise() const {
    if (text_) throw Error(ErrorKind::failed, *text_);
  }

 private:
  std::optional<std::string> text_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
