// SPDX-License-Identifier: Apache-2.0
// global batch = batch x ranks x accumulation: what is not given is derived, and what does not fit is refused
// with the equation, its numbers and the nearest that do.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "tessera/core/error.hpp"

namespace tessera::inline v0 {
namespace cli {

struct BatchRelation {
  std::int64_t batch = 1;
  std::int64_t ranks = 1;
  std::int64_t accumulation = 1;

  std::int64_t global() const { return batch * ranks * accumulation; }
  /// "batch 4 x ranks 4 x accumulation 2 = 32".
  std::string text() const {
    return "batch " + std::to_string(batch) + " x ranks " + std::to_string(ranks) + " x accumulation " +
           std::to_string(accumulation) + " = " + std::to_string(global());
  }
};

/// Refuses products beyond 2^31 - 1 sequences a step.
inline BatchRelation checked_relation(BatchRelation relation) {
  std::int64_t product = 0;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (__builtin_mul_overflow(relation.batch, relation.ranks, &product) ||
      __builtin_mul_overflow(product, relation.accumulation, &product) || product > most)
    throw Error(ErrorKind::config, "--batch " + std::to_string(relation.batch) + " x --ranks " +
                                       std::to_string(relation.ranks) + " x --accumulation " +
                                       std::to_string(relation.accumulation) +
                                       " is more than 2147483647 sequences a step; lower one of them");
  return relation;
}

/// Settles the relation. Without a global batch, `batch` and `accumulation` stand as they are (accumulation 1
/// unless given). With one, whichever of the two was not given is derived; with neither, the batch is the
/// largest one up to `default_batch` that divides the samples of a rank. Throws Error(config) for an
/// impossible relation.
inline BatchRelation batch_relation(std::optional<std::int64_t> global, std::int64_t ranks,
                                    std::optional<std::int64_t> batch,
                                    std::optional<std::int64_t> accumulation, std::int64_t default_batch) {
  if (!global) return checked_relation({batch.value_or(default_batch), ranks, accumulation.value_or(1)});
  std::int64_t const wanted = *global;
  auto const number = [](std::int64_t value) { return std::to_string(value); };
  auto const fail = [&](std::string const& equation, std::int64_t unit) {
    std::int64_t const below = wanted / unit * unit, above = below + unit;
    throw Error(ErrorKind::config, "--global-batch " + number(wanted) + " is impossible: " + equation +
                                       "; the nearest are --global-batch " +
                                       (below > 0 ? number(below) + " and " : std::string()) + number(above));
  };
  if (batch && accumulation) {
    BatchRelation const relation = checked_relation({*batch, ranks, *accumulation});
    if (relation.global() != wanted)
      throw Error(ErrorKind::config, "--global-batch " + number(wanted) + " contradicts " + relation.text() +
                                         "; give --global-batch " + number(relation.global()) +
                                         ", or leave out --accumulation");
    return relation;
  }
  if (batch) {
    std::int64_t const unit = checked_relation({*batch, ranks, 1}).global();
    if (wanted % unit != 0)
      fail("batch " + number(*batch) + " x ranks " + number(ranks) + " x accumulation = " + number(wanted) +
               " needs accumulation " + number(wanted) + " / " + number(unit),
           unit);
    return checked_relation({*batch, ranks, wanted / unit});
  }
  std::int64_t const unit = checked_relation({1, ranks, accumulation.value_or(1)}).global();
  if (wanted % unit != 0)
    fail("batch x ranks " + number(ranks) + " x accumulation " + number(accumulation.value_or(1)) + " = " +
             number(wanted) + " needs batch " + number(wanted) + " / " + number(unit),
         unit);
  std::int64_t each = wanted / unit;  // samples of a rank
  if (accumulation) return checked_relation({each, ranks, *accumulation});
  std::int64_t largest = 1;
  for (std::int64_t size = 1; size <= default_batch; ++size)
    if (each % size == 0) largest = size;
  return checked_relation({largest, ranks, each / largest});
}

}  // namespace cli
}  // namespace tessera::inline v0
