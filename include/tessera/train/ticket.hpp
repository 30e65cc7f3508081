// SPDX-License-Identifier: Apache-2.0
// What a step returns at once: its report, or what went wrong, for when somebody asks.
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
  /// Waits for this step, the first time; throws what went wrong in it.
  virtual StepReport const& wait() = 0;
};

/// A step that was started. `get` waits for that step only and throws what went wrong in it. On the CPU the
/// work is done when the ticket exists. Read it before the trainer goes.
class Ticket {
 public:
  explicit Ticket(StepReport report) : report_(std::move(report)) {}
  explicit Ticket(std::exception_ptr failure) : failure_(std::move(failure)) {}
  explicit Ticket(std::shared_ptr<PendingStep> pending) : pending_(std::move(pending)) {}

  StepReport const& get() const& {
    if (failure_) std::rethrow_exception(failure_);
    return pending_ ? pending_->wait() : report_;
  }
  /// By value from a ticket that is about to go, as in `step(batch).get()`, so that no reference dangles.
  StepReport get() && { return static_cast<Ticket const&>(*this).get(); }
  operator StepReport() const { return get(); }

 private:
  StepReport report_;
  std::exception_ptr failure_;
  std::shared_ptr<PendingStep> pending_;
};

}  // namespace v0
}  // namespace tessera
