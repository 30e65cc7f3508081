// SPDX-License-Identifier: Apache-2.0
// Learning rates over attempted steps.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace tessera {
inline namespace v0 {

/// How the learning rate changes after the warm-up.
enum class RateShape : std::uint8_t { constant, linear, cosine };

/// The learning rate as a pure function of the step. `warmup_steps` rise linearly from rate / warmup_steps to
/// the rate; then constant, or linear or half a cosine down to `final_fraction` of it at `total_steps` (which
/// linear and cosine need).
struct RateSchedule {
  double learning_rate = 3e-4;
  RateShape shape = RateShape::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;
  double final_fraction = 0.0;

  /// The rate of a step, counted from 0; skipped steps count.
  double at(std::int64_t step) const {
    if (step < warmup_steps)
      return learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    if (shape == RateShape::constant || total_steps <= warmup_steps) return learning_rate;
    double const way = std::fmin(
        1.0, static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps));
    double const kept =
        shape == RateShape::linear ? 1.0 - way : 0.5 * (1.0 + std::cos(std::numbers::pi * way));
    return learning_rate * (final_fraction + (1.0 - final_fraction) * kept);
  }
};

}  // namespace v0
}  // namespace tessera
