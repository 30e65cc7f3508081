// SPDX-License-Identifier: Apache-2.0
// Samples the power and utilisation of the GPUs, by default ten times a second, on a separate thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "machine/nvml.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The use of GPUs over a span of time. Power is the sum over all GPUs. A figure is absent if a GPU does not
/// report it.
struct GpuUse {
  std::optional<double> util_pct;  ///< mean over GPUs and time
  /// in W; the mean is from energy counters if all GPUs have them
  std::optional<double> power_w, peak_power_w;
  std::optional<double> temp_start_c, temp_end_c;  ///< degrees Celsius of the hottest GPU
  std::optional<double> temp_min_c, temp_max_c;    ///< the lowest and the highest of all GPUs and samples
  /// in W, the peak of each GPU in the order of the ranks; empty if a GPU does not report its power
  std::vector<double> peak_power_each_w = {};
};

/// Computes the use of GPUs from samples.
class GpuSums {
 public:
  /// The minimum time in seconds from the first to the last sample. A result over a shorter time would be
  /// wrong, because the driver updates its values up to a second late.
  static constexpr double min_seconds = 2.5;

  /// Adds one sample of each GPU. `now` is the time of these samples in seconds, on any clock.
  void add(double now, std::vector<nvml::Sample> const& gpus) {
    auto const power_of = [](nvml::Sample const& gpu) {
      return gpu.power_instant_w ? gpu.power_instant_w : gpu.power_w;
    };
    auto const sum = [&](auto const& of) {
      std::optional<double> all = gpus.empty() ? std::nullopt : std::optional(0.0);
      for (nvml::Sample const& gpu : gpus) {
        auto const one = of(gpu);
        all = all && one ? std::optional(*all + static_cast<double>(*one)) : std::nullopt;
      }
      return all;
    };
    Moment last{now, sum([](auto const& gpu) { return gpu.energy_j; }), std::nullopt};
    peaks_.resize(gpus.size());
    for (std::size_t at = 0; at < gpus.size(); ++at) {
      if (auto const power = power_of(gpus[at]); power)
        peaks_[at] = std::max(peaks_[at].value_or(0.0), static_cast<double>(*power));
      if (!gpus[at].temperature_c) continue;
      double const temp_c = *gpus[at].temperature_c;
      last.temp_c = std::max(last.temp_c.value_or(temp_c), temp_c);
      coldest_ = std::min(coldest_.value_or(temp_c), temp_c);
      hottest_ = std::max(hottest_.value_or(temp_c), temp_c);
    }
    util_.add(sum([](auto const& gpu) { return gpu.utilization_pct; }), static_cast<double>(gpus.size()));
    power_.add(sum(power_of), 1.0);
    if (!first_) first_ = last;
    last_ = last;
    ++samples_;
  }
  std::int64_t samples() const { return samples_; }

  /// Returns the use since the first sample; nullopt if the samples span less than `min_seconds`.
  std::optional<GpuUse> use() const {
    if (!first_ || last_.seconds - first_->seconds < min_seconds) return std::nullopt;
    GpuUse found{util_.mean(), power_.mean(), power_.most(), first_->temp_c,
                 last_.temp_c, coldest_,      hottest_};
    if (power_.most())
      for (auto const& peak : peaks_) found.peak_power_each_w.push_back(*peak);
    if (first_->energy_j && last_.energy_j && *last_.energy_j > *first_->energy_j)
      found.power_w = (*last_.energy_j - *first_->energy_j) / (last_.seconds - first_->seconds);
    return found;
  }

 private:
  struct Moment {
    double seconds = 0.0;
    std::optional<double> energy_j, temp_c;
  };
  struct Mean {
    double sum = 0.0, peak = 0.0;
    std::int64_t samples = 0;
    bool whole = true;
    void add(std::optional<double> const& value, double parts) {
      whole = whole && value;
      if (!value) return;
      sum += *value / parts;
      peak = std::max(peak, *value);
      ++samples;
    }
    bool known() const { return whole && samples > 0; }
    std::optional<double> mean() const {
      return known() ? std::optional(sum / static_cast<double>(samples)) : std::nullopt;
    }
    std::optional<double> most() const { return known() ? std::optional(peak) : std::nullopt; }
  };

  std::optional<Moment> first_;
  Moment last_;
  std::int64_t samples_ = 0;
  Mean util_, power_;
  std::vector<std::optional<double>> peaks_;  // the highest power of each GPU
  std::optional<double> coldest_, hottest_;
};

/// Samples GPUs on a thread while the object exists. `gpus` are their NVML indices.
class GpuWatch {
 public:
  GpuWatch(nvml::Library const& library, std::vector<int> gpus,
           std::chrono::milliseconds interval = std::chrono::milliseconds(100))
      : library_(library), gpus_(std::move(gpus)), thread_([this, interval](std::stop_token const& stop) {
          std::unique_lock lock(mutex_);
          do {
            lock.unlock();
            std::vector<nvml::Sample> now;
            for (int const gpu : gpus_) now.push_back(library_.sample(gpu));
            std::chrono::duration<double> const time = std::chrono::steady_clock::now().time_since_epoch();
            lock.lock();
            sums_.add(time.count(), now);
          } while (!wake_.wait_for(lock, stop, interval, [] { return false; }) && !stop.stop_requested());
        }) {}

  /// Removes all samples so far. A new span starts now.
  void begin() {
    std::lock_guard const lock(mutex_);
    sums_ = GpuSums();
  }
  GpuSums sums() const {
    std::lock_guard const lock(mutex_);
    return sums_;
  }

 private:
  nvml::Library const& library_;
  std::vector<int> gpus_;
  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  GpuSums sums_;
  std::jthread thread_;  // declared last, so that it starts after and ends before the members that it uses
};

}  // namespace cli
}  // namespace programs
