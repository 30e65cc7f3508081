// SPDX-License-Identifier: Apache-2.0
// Defines learning-rate schedules: shapes, settings and the rate of each step.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

/// The shape of the learning rate after the warm-up. warmup_lr, warmup_decay_lr and warmup_cosine_lr give the
/// same rate at every step as the schedules of DeepSpeed with these names.
enum class RateShape : std::uint8_t {
  constant,
  linear,
  cosine,
  warmup_lr,
  warmup_decay_lr,
  warmup_cosine_lr
};

/// Whether the last step of the schedule must come after the warm-up: true for the two shapes of Tessera that
/// fall to a final value at that step. DeepSpeed's schedules accept an earlier step.
constexpr bool needs_end(RateShape shape) {
  switch (shape) {
    case RateShape::linear:
    case RateShape::cosine:
      return true;
    case RateShape::constant:
    case RateShape::warmup_lr:
    case RateShape::warmup_decay_lr:
    case RateShape::warmup_cosine_lr:
      break;
  }
  return false;
}

/// Whether total_steps must be set: true for every shape that falls.
constexpr bool has_end(RateShape shape) {
  return needs_end(shape) || shape == RateShape::warmup_decay_lr || shape == RateShape::warmup_cosine_lr;
}

/// The learning rate as a function of the step. During `warmup_steps`, the rate rises linearly from
/// learning_rate / warmup_steps to learning_rate. Then it is constant, or it falls linearly or by half a
/// cosine. A falling rate reaches final_fraction * learning_rate at `total_steps`.
///
/// The rates of DeepSpeed's WarmupLR, WarmupDecayLR and WarmupCosineLR rise from `first_rate` over at least 2
/// steps. They rise with the logarithm of the step, or linearly if `log_warmup` is false. Then WarmupLR is
/// constant, WarmupDecayLR falls linearly to `first_rate`, and WarmupCosineLR falls by a cosine to
/// final_fraction * learning_rate at `total_steps`. These schedules count applied updates with a lag of one:
/// the first two updates have the first rate. There is one exception: the first update of WarmupCosineLR has
/// rate 0.
struct RateSchedule {
  double learning_rate = 3e-4;
  RateShape shape = RateShape::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;
  double final_fraction = 0.0;
  double first_rate = 0.0;
  bool log_warmup = true;

  /// Whether the schedule counts all steps, including skipped ones. If not, it counts applied updates.
  TESSERA_HOST_DEVICE bool counts_skipped() const {
    switch (shape) {
      case RateShape::constant:
      case RateShape::linear:
      case RateShape::cosine:
        return true;
      case RateShape::warmup_lr:
      case RateShape::warmup_decay_lr:
      case RateShape::warmup_cosine_lr:
        break;
    }
    return false;
  }

  /// Returns the learning rate of step number `step`, from 0. If counts_skipped() is true, the number counts
  /// all steps. If not, it counts only the steps that updated the weights.
  TESSERA_HOST_DEVICE double at(std::int64_t step) const {
    if (!counts_skipped()) return of_deepspeed(step - 1);
    if (step < warmup_steps)
      return learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
    if (total_steps <= warmup_steps) return learning_rate;
    double const progress = std::fmin(
        1.0, static_cast<double>(step - warmup_steps) / static_cast<double>(total_steps - warmup_steps));
    switch (shape) {
      case RateShape::linear:
        return falling(1.0 - progress);
      case RateShape::cosine:
        return falling(half_cosine(progress));
      case RateShape::constant:
      case RateShape::warmup_lr:  // of_deepspeed computes these three
      case RateShape::warmup_decay_lr:
      case RateShape::warmup_cosine_lr:
        break;
    }
    return learning_rate;
  }

 private:
  TESSERA_HOST_DEVICE static double half_cosine(double progress) {
    return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  }
  /// Returns a rate between the peak and the final rate. `remaining` is 1 at the peak and 0 at the final
  /// rate.
  TESSERA_HOST_DEVICE double falling(double remaining) const {
    return learning_rate * (final_fraction + (1.0 - final_fraction) * remaining);
  }

  /// Returns the rate of DeepSpeed's scheduler after `last` + 1 calls of its function step().
  TESSERA_HOST_DEVICE double of_deepspeed(std::int64_t last) const {
    bool const cosine = shape == RateShape::warmup_cosine_lr;
    if (last < 0) return cosine ? 0.0 : first_rate;
    double const now = static_cast<double>(last), warm = std::fmax(2.0, static_cast<double>(warmup_steps));
    double const fall = std::fmax(1.0, static_cast<double>(total_steps) - warm);
    double risen = 1.0;
    if (now < warm)
      risen = log_warmup ? std::log(now + 1.0) / std::log(warm) : now / warm;
    else if (cosine)
      return falling(half_cosine(std::fmin(1.0, (now - warm + 1.0) / fall)));
    else if (shape == RateShape::warmup_decay_lr)
      risen = std::fmax(0.0, (static_cast<double>(total_steps) - now) / fall);
    return first_rate + (learning_rate - first_rate) * risen;
  }
};

}  // namespace v0
}  // namespace tessera
