// SPDX-License-Identifier: Apache-2.0
// Solves the equation global batch = batch x ranks x accumulation for the value that is not given. The batch
// is the number of samples in a micro-batch of one rank. The accumulation is the number of micro-batches of
// one rank in a step. If there is no solution, throws an error with the equation, its numbers and the nearest
// possible values. The error uses the names that the user wrote: flags, or keys of a DeepSpeed configuration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/thread_group.hpp"
#include "tessera/core/error.hpp"
#include "tessera/train/options.hpp"

#include "cli/command_line.hpp"
#include "cli/launch.hpp"
#include "cli/values.hpp"
#include "config/deepspeed_keys.hpp"

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

/// The name of one number of the equation in messages, and how to change the number.
struct BatchPart {
  std::string flag;      ///< such as "--batch"
  std::string word;      ///< such as "batch"
  std::string key = {};  ///< the key of a DeepSpeed configuration that gives the number; empty: no key does
  bool on_line = true;   ///< whether the command line gives the number, so that a user can leave it out

  /// "--batch 4", or "train_micro_batch_size_per_gpu 4".
  std::string with(std::string const& number) const { return (key.empty() ? flag : key) + " " + number; }
  /// "batch", or "train_micro_batch_size_per_gpu".
  std::string const& in_equation() const { return key.empty() ? word : key; }
  /// "give --batch 4", or "set train_micro_batch_size_per_gpu to 4".
  std::string change(std::int64_t number) const {
    return (key.empty() ? "give " + flag + " " : "set " + key + " to ") + std::to_string(number);
  }
  /// As `change`, but advises to leave out a flag of the command line. The program then computes its number.
  std::string repair(std::int64_t number) const {
    return key.empty() && on_line ? "leave out " + flag : change(number);
  }
};

/// The names of all numbers of the equation.
struct BatchNames {
  BatchPart global = {"--global-batch", "global batch"}, batch = {"--batch", "batch"},
            accumulation = {"--accumulation", "accumulation"};
  std::string file;      ///< the DeepSpeed configuration that gives a number; empty: none
  std::string launcher;  ///< the launcher that decides the number of ranks; empty: --ranks does

  /// Returns the names of the flags and keys that gave the numbers to `line`.
  static BatchNames of(CommandLine const& line) {
    BatchNames names;
    for (BatchPart* const part : {&names.global, &names.batch, &names.accumulation}) {
      part->on_line = line.on_line(part->flag) != nullptr;
      std::string const origin = line.origin(part->flag);
      std::size_t const colon = origin.rfind(": ");
      if (part->on_line || colon == origin.npos) continue;
      if (find_deepspeed_key(std::string_view(origin).substr(colon + 2)) == nullptr) continue;
      part->key = origin.substr(colon + 2);
      names.file = origin.substr(0, colon);
    }
    if (joined_launch()) names.launcher = joined_launch()->environment().source;
    return names;
  }

  /// Returns the start of a message about the global batch: "--global-batch 6", or "ds.json: train_batch_size
  /// 6".
  std::string subject(std::int64_t number) const {
    return (file.empty() ? "" : file + ": ") + global.with(std::to_string(number));
  }
  /// Returns the equation as text: "batch 4 x ranks 4 x accumulation 2 = 32".
  std::string equation(BatchRelation const& relation) const {
    return batch.in_equation() + " " + std::to_string(relation.batch) + " x ranks " +
           std::to_string(relation.ranks) + " x " + accumulation.in_equation() + " " +
           std::to_string(relation.accumulation) + " = " + std::to_string(relation.global());
  }
  /// Returns the advice to run on `ranks` ranks; "" if the program cannot run so many.
  std::string change_ranks(std::int64_t ranks) const {
    if (!launcher.empty()) return "start " + std::to_string(ranks) + " ranks with " + launcher;
    return ranks <= comm::max_threads ? "give --ranks " + std::to_string(ranks) : std::string();
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
inline std::string nearest_global_batches(std::int64_t requested, std::int64_t unit, std::int64_t times,
                                          BatchNames const& names = {}) {
  std::int64_t const most = std::min(times, max_sequences / unit);
  std::int64_t const below = std::min(requested / unit, most), above = std::min(below + 1, most);
  if (below > 0 && above > below)
    return "; the nearest are " + names.global.with(std::to_string(below * unit)) + " and " +
           std::to_string(above * unit);
  return "; the nearest is " + names.global.with(std::to_string(above * unit));
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

/// Returns a text that suggests changes if the global batch contradicts both the batch and the
/// accumulation. A suggested change solves the equation of every relation in `relations`.
inline std::string remedies_text(std::int64_t requested, std::vector<BatchRelation> const& relations,
                                 BatchNames const& names = {}) {
  bool same = true, without_accumulation = true, without_batch = true;
  for (BatchRelation const& relation : relations) {
    std::int64_t const micro = relation.batch * relation.ranks;
    same = same && relation.global() == relations.front().global();
    without_accumulation =
        without_accumulation && requested % micro == 0 && requested / micro <= max_accumulation;
    without_batch = without_batch && requested % (relation.ranks * relation.accumulation) == 0;
  }
  // A flag on the command line can be left out for all relations. A number of a file must be changed, and one
  // number fits only one relation.
  BatchRelation const& first = relations.front();
  bool const one = relations.size() == 1;
  auto const offered = [one](BatchPart const& part) { return one || (part.on_line && part.key.empty()); };
  Names remedies;
  if (same) remedies.push_back(names.global.change(first.global()));
  if (std::int64_t const each = first.batch * first.accumulation; one && requested % each == 0)
    if (std::string const ranks = names.change_ranks(requested / each); !ranks.empty())
      remedies.push_back(ranks);
  if (without_accumulation && offered(names.accumulation))
    remedies.push_back(names.accumulation.repair(requested / (first.batch * first.ranks)));
  if (without_batch && offered(names.batch))
    remedies.push_back(names.batch.repair(requested / (first.ranks * first.accumulation)));
  if (remedies.empty())
    remedies.push_back("leave out " + (names.global.key.empty() ? names.global.flag : names.global.key));
  return joined(remedies, ", or ");
}

/// Returns the relation with the value that was not given. Without a global batch, `batch` and `accumulation`
/// are as given; the default of `batch` is `default_batch`, and the default of `accumulation` is 1. With a
/// global batch, `batch` or `accumulation` is computed from it. If neither is given, `batch` is the largest
/// number up to `default_batch` that divides the samples of a rank. Throws Error(config) if there is no
/// solution; the message uses `names`.
inline BatchRelation batch_relation(std::optional<std::int64_t> global, std::int64_t ranks,
                                    std::optional<std::int64_t> batch,
                                    std::optional<std::int64_t> accumulation, std::int64_t default_batch,
                                    BatchNames const& names = {}) {
  if (!global) return checked_relation({batch.value_or(default_batch), ranks, accumulation.value_or(1)});
  std::int64_t const requested = *global;
  auto const number = [](std::int64_t value) { return std::to_string(value); };
  // Throws the error. The number of sequences of a rank in a step is a multiple of `each`, because of the
  // numbers that were given.
  auto const fail = [&](std::string const& equation, std::int64_t each, std::int64_t times) {
    std::int64_t fewer = ranks - 1;
    while (fewer > 0 && requested % (each * fewer) != 0) --fewer;
    std::string const change = fewer > 0 ? names.change_ranks(fewer) : std::string();
    throw Error(ErrorKind::config, names.subject(requested) + " is impossible: " + equation +
                                       nearest_global_batches(requested, each * ranks, times, names) +
                                       (change.empty() ? "" : "; or " + change));
  };
  std::string const &of_batch = names.batch.in_equation(), &of_steps = names.accumulation.in_equation();
  if (batch && accumulation) {
    BatchRelation const relation = checked_relation({*batch, ranks, *accumulation});
    if (relation.global() != requested)
      throw Error(ErrorKind::config, names.subject(requested) + " contradicts " + names.equation(relation) +
                                         "; " + remedies_text(requested, {relation}, names));
    return relation;
  }
  if (batch) {
    std::int64_t const unit = checked_relation({*batch, ranks, 1}).global();
    if (requested % unit != 0)
      fail(of_batch + " " + number(*batch) + " x ranks " + number(ranks) + " x " + of_steps + " = " +
               number(requested) + " needs " + of_steps + " " + number(requested) + " / " + number(unit),
           *batch, max_accumulation);
    return checked_relation({*batch, ranks, requested / unit});
  }
  std::int64_t const unit = checked_relation({1, ranks, accumulation.value_or(1)}).global();
  if (requested % unit != 0)
    fail(of_batch + " x ranks " + number(ranks) + " x " + of_steps + " " + number(accumulation.value_or(1)) +
             " = " + number(requested) + " needs " + of_batch + " " + number(requested) + " / " +
             number(unit),
         accumulation.value_or(1), max_sequences);
  std::int64_t each = requested / unit;  // samples per rank and step
  if (accumulation) return checked_relation({each, ranks, *accumulation});
  std::int64_t largest = 1;
  for (std::int64_t size = 1; size <= default_batch; ++size)
    if (each % size == 0) largest = size;
  return checked_relation({largest, ranks, each / largest});
}

}  // namespace cli
}  // namespace programs
