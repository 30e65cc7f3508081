// SPDX-License-Identifier: Apache-2.0
// Solves the equation global batch = batch x ranks x accumulation for the value that is not given. The batch
// is the number of samples in a micro-batch of one rank. The accumulation is the number of micro-batches of
// one rank in a step. If there is no solution, throws an error with the equation, its numbers and the nearest
// possible values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/train/options.hpp"

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

struct BatchRelation {
  std::int64_t batch = 1;
  std::int64_t ranks = 1;
  std::int64_t accumulation = 1;

  std::int64_t global() const { return batch * ranks * accumulation; }
  /// Returns the equation as text: "batch 4 x ranks 4 x accumulation 2 = 32".
  std::string text() const {
    return "batch " + std::to_string(batch) + " x ranks " + std::to_string(ranks) + " x accumulation " +
           std::to_string(accumulation) + " = " + std::to_string(global());
  }
};

/// The maximum number of sequences (samples) in a step.
inline constexpr std::int64_t max_sequences = std::numeric_limits<std::int32_t>::max();

/// Returns `relation`. Throws if its step would have more than 2^31 - 1 sequences, or more micro-batches than
/// a schedule can contain.
inline BatchRelation checked_relation(BatchRelation relation) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(relation.batch, relation.ranks, &product) ||
      __builtin_mul_overflow(product, relation.accumulation, &product) || product > max_sequences)
    throw Error(ErrorKind::config, "--batch " + std::to_string(relation.batch) + " x --ranks " +
                                       std::to_string(relation.ranks) + " x --accumulation " +
                                       std::to_string(relation.accumulation) +
                                       " is more than 2147483647 sequences a step; lower one of them");
  if (relation.accumulation > max_accumulation)
    throw Error(ErrorKind::config, relation.text() + " needs more than the " +
                                       std::to_string(max_accumulation) +
                                       " micro-batches that a step may have; give a larger --batch or more "
                                       "--ranks");
  return relation;
}

/// Returns a text with the possible global batches nearest to `requested`: "; the nearest are --global-batch
/// 12 and 24". The possible global batches are the multiples of `unit` up to `times` * `unit`.
inline std::string nearest_global_batches(std::int64_t requested, std::int64_t unit, std::int64_t times) {
  std::int64_t const most = std::min(times, max_sequences / unit);
  std::int64_t const below = std::min(requested / unit, most), above = std::min(below + 1, most);
  bool const both = below > 0 && above > below;
  return (both ? "; the nearest are --global-batch " + std::to_string(below * unit) + " and "
               : std::string("; the nearest is --global-batch ")) +
         std::to_string(above * unit);
}

/// Returns the least common multiple of the products; 0 if it is more than the number of sequences that a
/// step may have.
inline std::int64_t common_unit(std::vector<std::int64_t> const& products) {
  std::int64_t unit = 1;
  for (std::int64_t const product : products) {
    unit = std::lcm(unit, product);  // the two numbers are below 2^31, so this cannot overflow
    if (unit > max_sequences) return 0;
  }
  return unit;
}

/// Returns a text that says which flags to change if the global batch contradicts both --batch and
/// --accumulation. A suggested change solves the equation of every relation in `relations`.
inline std::string remedies_text(std::int64_t requested, std::vector<BatchRelation> const& relations) {
  bool same = true, without_accumulation = true, without_batch = true;
  for (BatchRelation const& relation : relations) {
    std::int64_t const micro = relation.batch * relation.ranks;
    same = same && relation.global() == relations.front().global();
    without_accumulation =
        without_accumulation && requested % micro == 0 && requested / micro <= max_accumulation;
    without_batch = without_batch && requested % (relation.ranks * relation.accumulation) == 0;
  }
  Names remedies;
  if (same) remedies.push_back("give --global-batch " + std::to_string(relations.front().global()));
  if (without_accumulation) remedies.push_back("leave out --accumulation");
  if (without_batch) remedies.push_back("leave out --batch");
  if (remedies.empty()) remedies.push_back("leave out --global-batch");
  return joined(remedies, ", or ");
}

/// Returns the relation with the value that was not given. Without a global batch, `batch` and `accumulation`
/// are as given; the default of `batch` is `default_batch`, and the default of `accumulation` is 1. With a
/// global batch, `batch` or `accumulation` is computed from it. If neither is given, `batch` is the largest
/// number up to `default_batch` that divides the samples of a rank. Throws Error(config) if there is no
/// solution.
inline BatchRelation batch_relation(std::optional<std::int64_t> global, std::int64_t ranks,
                                    std::optional<std::int64_t> batch,
                                    std::optional<std::int64_t> accumulation, std::int64_t default_batch) {
  if (!global) return checked_relation({batch.value_or(default_batch), ranks, accumulation.value_or(1)});
  std::int64_t const requested = *global;
  auto const number = [](std::int64_t value) { return std::to_string(value); };
  auto const fail = [&](std::string const& equation, std::int64_t unit, std::int64_t times) {
    throw Error(ErrorKind::config, "--global-batch " + number(requested) + " is impossible: " + equation +
                                       nearest_global_batches(requested, unit, times));
  };
  if (batch && accumulation) {
    BatchRelation const relation = checked_relation({*batch, ranks, *accumulation});
    if (relation.global() != requested)
      throw Error(ErrorKind::config, "--global-batch " + number(requested) + " contradicts " +
                                         relation.text() + "; " + remedies_text(requested, {relation}));
    return relation;
  }
  if (batch) {
    std::int64_t const unit = checked_relation({*batch, ranks, 1}).global();
    if (requested % unit != 0)
      fail("batch " + number(*batch) + " x ranks " + number(ranks) + " x accumulation = " +
               number(requested) + " needs accumulation " + number(requested) + " / " + number(unit),
           unit, max_accumulation);
    return checked_relation({*batch, ranks, requested / unit});
  }
  std::int64_t const unit = checked_relation({1, ranks, accumulation.value_or(1)}).global();
  if (requested % unit != 0)
    fail("batch x ranks " + number(ranks) + " x accumulation " + number(accumulation.value_or(1)) + " = " +
             number(requested) + " needs batch " + number(requested) + " / " + number(unit),
         unit, max_sequences);
  std::int64_t each = requested / unit;  // samples per rank and step
  if (accumulation) return checked_relation({each, ranks, *accumulation});
  std::int64_t largest = 1;
  for (std::int64_t size = 1; size <= default_batch; ++size)
    if (each % size == 0) largest = size;
  return checked_relation({largest, ranks, each / largest});
}

}  // namespace cli
}  // namespace programs
