// SPDX-License-Identifier: Apache-2.0
// How long the parts of steps take on this machine, for a file from which plan and compare predict steps.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/machine_times.hpp"
#include "common/models.hpp"
#include "common/values.hpp"

namespace tessera {
inline namespace v0 {
namespace info {

/// What is measured.
struct Measuring {
  std::string device;
  cli::Names precisions;
  std::vector<int> ranks;
  double seconds = 30;  ///< in all, about
  /// A model whose own sizes are measured first, two of its layers; none: built-in sizes alone.
  std::optional<cli::ModelChoice> model;
  std::int64_t batch = 1, sequence = 128;  ///< of that
  std::filesystem::path nvme_path;  ///< where state of a rank lies on a disk; empty: disks are not measured
};

/// Runs steps of small models under recipes that have every kind of entry, a few of each, and times their
/// entries. Tells `said` in a line what was left out, and why. Throws what training does.
cli::MachineTimes measure(Measuring const& what, std::function<void(std::string const&)> const& said);

}  // namespace info
}  // namespace v0
}  // namespace tessera
