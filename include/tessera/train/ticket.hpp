// SPDX-License-Identifier: Apache-2.0
// Defines Ticket, the future of a training step. A step returns its ticket at once, and `get` waits for the
// step's report.
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include "tessera/train/options.hpp"

namespace tessera {
inline namespace v0 {

/// A step that a device is still working on.
class PendingStep {
 public:
  virtual ~PendingStep() = default;
  /// Returns the report of this step. The first call waits for the step. Throws the step's error.
  virtual StepReport const& wait() = 0;
};

/// A step that was started. `get` waits for this step only and throws its error. On the CPU, the step is
/// complete when its ticket is returned. Call `get` before the trainer is destroyed.
class Ticket {
 public:
  explicit Ticket(StepReport report) : report_(std::move(report)) {}
  explicit Ticket(std::exception_ptr failure) : failure_(std::move(failure)) {}
  explicit Ticket(std::shared_ptr<PendingStep> pending) : pending_(std::move(pending)) {}

  StepReport const& get() const& {
    if (failure_) std::rethrow_exception(failure_);
    return pending_ ? pending_->wait() : report_;
  }
  /// Returns a copy from a temporary ticket, as in `step(batch).get()`, so that no reference dangles.
  StepReport get() && { return static_cast<Ticket const&>(*this).get(); }
  operator StepReport() const { return get(); }

 private:
  StepReport report_;
  std::exception_ptr failure_;
  std::shared_ptr<PendingStep> pending_;
};

}  // namespace v0
}  // namespace tessera
