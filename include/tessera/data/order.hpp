// SPDX-License-Identifier: Apache-2.0
// Defines the order in which samples are read. The order is a pure function of the seed and the position in
// the run, so checkpoints store no state of the loader.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/core/philox.hpp"

namespace tessera {
inline namespace v0 {

/// The order in which the samples of the data are read.
///
/// `shuffled`: every epoch is a different permutation of all samples. `sequential`: the order in the files;
/// after the last sample, reading starts again at the first.
enum class Order : std::uint8_t { shuffled, sequential };

/// Returns "shuffled" or "sequential".
constexpr char const* name_of(Order order) {
  switch (order) {
    case Order::shuffled:
      return "shuffled";
    case Order::sequential:
      return "sequential";
  }
  return "?";
}

/// Returns the number of samples of T = `sequence` tokens that `tokens` tokens contain. Sample i uses T+1
/// tokens: its inputs are tokens iT to iT+T-1, its targets are tokens iT+1 to iT+T. So two neighbouring
/// samples share one token. `sequence` must be above 0.
constexpr std::int64_t samples_in(std::int64_t tokens, std::int64_t sequence) {
  return tokens > sequence ? (tokens - 1) / sequence : 0;
}

/// Splits a global batch of G = W*A*B sequences into micro-batches of B sequences. Micro-batch number m = a*W
/// + r of a step belongs to rank r at accumulation index a. So runs with equal G and B have the same
/// micro-batches on any number of ranks.
struct BatchSplit {
  std::int64_t batch = 1;         ///< B, number of sequences in a micro-batch
  std::int64_t accumulation = 1;  ///< A, number of micro-batches of a rank in a step
  std::int64_t world = 1;         ///< W, number of ranks that read data

  /// Returns G, the number of sequences in a step, over all ranks.
  constexpr std::int64_t global_batch() const { return batch * accumulation * world; }
  /// Returns the position in the run of the first sequence of micro-batch m in step s: sG + mB. Steps count
  /// from 0. The position counts the sequences of all ranks.
  constexpr std::int64_t position(std::int64_t step, std::int64_t rank,
                                  std::int64_t accumulation_index) const {
    return step * global_batch() + (accumulation_index * world + rank) * batch;
  }
};

/// Maps positions in the run to samples. Position p is in epoch p / samples(), and each epoch contains every
/// sample once. A shuffled epoch uses a Feistel network, which permutes the numbers below a power of two that
/// is not less than the number of samples. Its round function is Philox, keyed by the seed, with the epoch as
/// an input. If a result is not the number of a sample, the network is applied again to this result (Black
/// and Rogaway, "Ciphers with arbitrary finite domains", 2002). Needs no table and no state. The sample of a
/// position costs about a microsecond.
class SampleOrder {
 public:
  /// Throws Error(usage) if `samples` is not between 1 and 2^62.
  SampleOrder(Order order, std::int64_t samples, std::uint64_t seed)
      : order_(order), samples_(samples), key_(philox_key(seed ^ purpose)) {
    if (samples < 1 || samples > maximum_samples)
      throw_error(ErrorKind::usage, {"a data order needs 1 to 2^62 samples, got ", samples});
    if (order > Order::sequential)
      throw_error(ErrorKind::usage, {"data order ", static_cast<int>(order), " does not exist"});
    auto const bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(samples - 1)));
    int const used = bits < minimum_bits ? minimum_bits : bits;
    right_bits_ = (used + 1) / 2;
    left_bits_ = used - right_bits_;
  }

  Order order() const noexcept { return order_; }
  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t epoch(std::int64_t position) const noexcept { return position / samples_; }

  /// Returns the index of the sample at a position in the run. The position must be 0 or above.
  std::int64_t operator()(std::int64_t position) const noexcept {
    std::int64_t const within = position % samples_;
    switch (order_) {
      case Order::sequential:
        return within;
      case Order::shuffled:
        break;
    }
    if (samples_ == 1) return within;
    std::uint64_t value = static_cast<std::uint64_t>(within);
    auto const epoch_number = static_cast<std::uint64_t>(epoch(position));
    do value = permuted(value, epoch_number);
    while (value >= static_cast<std::uint64_t>(samples_));
    return static_cast<std::int64_t>(value);
  }

 private:
  static constexpr std::uint64_t purpose =
      0x6f72646572000000u;  // the letters "order"; initial weights and dropout use other keys
  static constexpr std::int64_t maximum_samples = std::int64_t{1} << 62;
  static constexpr int minimum_bits = 6;  // with fewer bits a Feistel network mixes too little
  static constexpr std::uint32_t rounds = 8;

  std::uint64_t permuted(std::uint64_t value, std::uint64_t epoch_number) const noexcept {
    std::uint32_t const right_mask = (std::uint32_t{1} << right_bits_) - 1u;
    std::uint32_t const left_mask = (std::uint32_t{1} << left_bits_) - 1u;
    auto left = static_cast<std::uint32_t>(value >> right_bits_);
    auto right = static_cast<std::uint32_t>(value) & right_mask;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      std::uint32_t const source = round % 2 == 0 ? right : left;
      PhiloxCounter const bits = philox4x32({{source, round, static_cast<std::uint32_t>(epoch_number),
                                              static_cast<std::uint32_t>(epoch_number >> 32)}},
                                            key_);
      if (round % 2 == 0)
        left ^= bits.word[0] & left_mask;
      else
        right ^= bits.word[0] & right_mask;
    }
    return (static_cast<std::uint64_t>(left) << right_bits_) | right;
  }

  Order order_;
  std::int64_t samples_;
  PhiloxKey key_;
  int right_bits_ = 0;
  int left_bits_ = 0;
};

}  // namespace v0
}  // namespace tessera
