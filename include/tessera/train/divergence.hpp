// SPDX-License-Identifier: Apache-2.0
// Finds the first difference between two training runs. Records every micro-batch's gradients, every step's
// summed gradients and updated weights, and compares the recordings.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/core/numbers.hpp"
#include "tessera/plan/program.hpp"

namespace tessera {
inline namespace v0 {

/// Records the gradients and weights of a run's steps, in blocks of shard_alignment elements. The key of a
/// block does not depend on sharding, on the number of ranks or on accumulation. So any two runs over the
/// same global batches can be compared. All ranks of a run share one trace. Keeps 8 bytes for every value of
/// every micro-batch, so use it only for small models and few steps.
class StepTrace {
 public:
  /// Returns the observer that one rank passes to its trainer's `observe`. The trace must outlive the
  /// trainer.
  StepObserver observer() {
    return [this, step = std::int64_t{0}](StepPlan const& plan, Entry const& entry,
                                          std::span<std::byte* const> buffers) mutable {
      auto const data = [&](int buffer, Range part) {
        return buffers[static_cast<std::size_t>(buffer)] + plan.train.at(buffer).at(part.begin);
      };
      if ((entry.verb == Verb::backward_weight && entry.segment == 0) || entry.verb == Verb::clear_gaps) {
        std::int64_t const micro = std::int64_t{1} * entry.micro_batch * plan.shape.world + plan.shape.rank;
        for (Flat const of : plan.flats(entry.unit)) {
          bool const complete = plan.flat(of).gaps.empty() == (entry.verb == Verb::backward_weight);
          if (!plan.flat(of).trainable || !complete) continue;
          int const buffer = plan.train.find(BufferKind::micro_gradient, of);
          Range const all{0, plan.flat(of).padded};
          record(plan, {step, micro_gradient, micro, -plan.flat(of).number}, of, all,
                 plan.train.at(buffer).type, data(buffer, all));
        }
      } else if (entry.verb == Verb::decide) {  // all gradients are complete
        for (Flat const of : plan.trainable()) {
          int const buffer = plan.train.find(plan.table.gradient.kind, of);
          Range const part = plan.norm_part(of);
          record(plan, {step, gradient, 0, plan.flat(of).number}, of, part, plan.train.at(buffer).type,
                 data(buffer, part));
        }
        ++step;
      } else if (entry.verb == Verb::update) {
        for (Item const& item : entry.items) {
          int const master = item.at(Role::master);
          record(plan, {step - 1, weights, 0, plan.flat(item.of).number}, item.of, item.part,
                 plan.train.at(master).type, data(master, item.part));
        }
      }
    };
  }

  /// Returns one line of text about the first element whose bits differ between the runs, in the order of the
  /// steps. Returns nullopt if the runs are equal. If two ranks of one run have different copies of a value,
  /// the text is about this value instead.
  friend std::optional<std::string> first_divergence(StepTrace const& a, StepTrace const& b) {
    for (StepTrace const* run : {&a, &b})
      if (!run->copies_differ_.empty()) return run->copies_differ_;
    auto in_a = a.blocks_.begin(), in_b = b.blocks_.begin();
    for (; in_a != a.blocks_.end() && in_b != b.blocks_.end(); ++in_a, ++in_b) {
      if (in_a->first != in_b->first) break;
      if (auto const text = a.difference(in_a->first, in_a->second, in_b->second)) return text;
    }
    if (in_a == a.blocks_.end() && in_b == b.blocks_.end()) return std::nullopt;
    bool const only_a = in_b == b.blocks_.end() || (in_a != a.blocks_.end() && in_a->first < in_b->first);
    Block const& first = only_a ? in_a->first : in_b->first;
    return "only the " + std::string(only_a ? "first" : "second") + " run has " +
           (only_a ? a : b).name(first, std::get<4>(first) * shard_alignment);
  }

 private:
  enum Phase : int { micro_gradient, gradient, weights };
  /// The key of a recorded tensor: step, phase, micro-batch of the global batch, and number of the group of
  /// parameters. The keys are sorted in the order in which a step computes the tensors. The number is
  /// negative for micro-batch gradients, because backward computes the last group first.
  using Place = std::tuple<std::int64_t, int, std::int64_t, int>;
  using Block =
      std::tuple<std::int64_t, int, std::int64_t, int, std::int64_t>;  // a Place and the number of the block

  void record(StepPlan const& plan, Place const& place, Flat of, Range part, DType type,
              std::byte const* data) {
    std::lock_guard const lock(mutex_);
    if (flats_.empty())
      for (Flat const each : plan.flats())
        flats_.push_back({each.group, plan.unit(each.unit), plan.layout(each.unit)});
    for (std::int64_t begin = part.begin; begin < part.end; begin += shard_alignment) {
      Range const block = intersect({begin, begin + shard_alignment}, {0, plan.flat(of).elements});
      if (!block.size()) break;
      std::vector<double> values;
      for (std::int64_t element = block.begin; element < block.end; ++element)
        values.push_back(value(type, data, element - part.begin));
      Block const key = std::tuple_cat(place, std::tuple{begin / shard_alignment});
      auto const [found, added] = blocks_.try_emplace(key, values);
      if (added || !copies_differ_.empty()) continue;
      if (auto const text = difference(key, found->second, values)) copies_differ_ = "ranks differ: " + *text;
    }
  }

  static double value(DType type, std::byte const* data, std::int64_t index) {
    if (type == DType::u8) return static_cast<double>(data[index]);
    return with_type(
        type, [&]<class U>(U*) { return static_cast<double>(reinterpret_cast<U const*>(data)[index]); });
  }

  std::optional<std::string> difference(Block const& key, std::vector<double> const& a,
                                        std::vector<double> const& b) const {
    for (std::size_t index = 0; index < a.size(); ++index) {
      if (std::bit_cast<std::uint64_t>(a[index]) == std::bit_cast<std::uint64_t>(b[index])) continue;
      if (std::isnan(a[index]) && std::isnan(b[index])) continue;  // all NaNs count as equal
      char text[64];
      std::snprintf(text, sizeof text, ": %.17g against %.17g", a[index], b[index]);
      return name(key, std::get<4>(key) * shard_alignment + static_cast<std::int64_t>(index)) + text;
    }
    return std::nullopt;
  }

  /// Returns the name of an element of a block: "step 2, gradient of micro-batch 3, h.0.ln_1.weight, element
  /// 17".
  std::string name(Block const& key, std::int64_t element) const {
    auto const [step, phase, micro, order, block] = key;
    auto const& [group, unit, layout] = flats_[static_cast<std::size_t>(order < 0 ? -order : order)];
    std::string text = "step " + std::to_string(step + 1) + ", ";
    text += phase == micro_gradient ? "gradient of micro-batch " + std::to_string(micro)
            : phase == gradient     ? "gradient"
                                    : "weights after the update";
    for (Piece const& piece : pieces(layout, group, {element, element + 1}))
      return text + ", " + unit.parameters[static_cast<std::size_t>(piece.parameter)].name + ", element " +
             std::to_string(piece.logical.begin);
    return text + ", " + unit.name + ", padding " + std::to_string(element);
  }

  std::mutex mutex_;
  std::map<Block, std::vector<double>> blocks_;
  struct FlatName {
    int group;
    UnitSpec unit;
    UnitLayout layout;
  };
  std::vector<FlatName> flats_;  // one per group of parameters
  std::string copies_differ_;
};

}  // namespace v0
}  // namespace tessera
