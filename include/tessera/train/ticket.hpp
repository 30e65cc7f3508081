// SPDX-License-Identifier: Apache-2.0
// What a step returns at once: its report, or what went wrong, for when somebody asks.
#pragma once

#include <exception>
#include <utility>

#include "tessera/train/options.hpp"

namespace tessera::inline v0 {

/// A step that was started. `get` waits for that step only and throws what went wrong in it. On the CPU the
/// work is done when the ticket exists.
class Ticket {
 public:
  explicit Ticket(StepReport report) : report_(std::move(report)) {}
  explicit Ticket(std::exception_ptr failure) : failure_(std::move(failure)) {}

  StepReport const& get() const& {
    if (failure_) std::rethrow_exception(failure_);
    return report_;
  }
  /// By value from a ticket that is about to go, as in `step(batch).get()`, so that no reference dangles.
  StepReport get() && {
    if (failure_) std::rethrow_exception(failure_);
    return std::move(report_);
  }
  operator StepReport() const { return get(); }

 private:
  StepReport report_;
  std::exception_ptr failure_;
};

}  // namespace tessera::inline v0
