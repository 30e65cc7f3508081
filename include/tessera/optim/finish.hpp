// SPDX-License-Identifier: Apache-2.0
// Provides two operations of a training step. begin_step sets the scalars that backward reads. finish_step
// combines the statistics of all ranks (gradient norms, losses, overflows) into the scalars that the update
// reads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/lane_sum.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/comm/request.hpp"
#include "tessera/config.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/core/place.hpp"
#include "tessera/optim/loss_scale.hpp"
#include "tessera/optim/step_state.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {

/// Says where the statistics of the ranks contain the sums of squares of the gradient of one group of
/// parameters. There is one sum for each block of 4096 elements. The gradient is divided into equal,
/// consecutive parts, one for each rank of the process group `by`. Each of these ranks computes the sums of
/// its part. Exactly one rank computes each sum, even if several ranks hold the block.
struct NormRange {
  std::int64_t offset = 0;  ///< index of the first sum in StepShares::partials(rank)
  std::int64_t blocks = 0;  ///< number of sums per rank
  comm::ProcessGroup by{};
};

/// The loss sum and the count of valid tokens of one micro-batch of one rank.
struct LossSum {
  double loss = 0.0;
  std::int64_t valid_tokens = 0;
};

/// Notes that a rank sends to all ranks in each step: the first non-finite value of its part of the gradient,
/// and whether it requests a stop of the training.
struct RankNotes {
  BadElement bad{};
  std::int64_t stop = 0;  ///< 1: the rank requests that all ranks end the training
};

/// The statistics of all ranks in a step, in rank order. The statistics of one rank are its share. A share
/// has the sums of squares of the rank's part of the gradient (one float per block), one LossSum per
/// micro-batch, and one RankNotes. All addresses are in the memory of the device.
struct StepShares {
  std::byte* first = nullptr;  ///< the share of rank 0
  std::int64_t bytes = 0;      ///< size of one share
  std::int64_t sums = 0;       ///< offset of the LossSums in a share; a multiple of 8
  NormRange const* units = nullptr;
  int unit_count = 0;
  int ranks = 1;
  /// The ranks whose losses count: one rank of each group of ranks that compute the same samples.
  comm::ProcessGroup losses_by{};
  int accumulation = 1;

  TESSERA_HOST_DEVICE float* partials(int rank) const {
    return reinterpret_cast<float*>(first + rank * bytes);
  }
  TESSERA_HOST_DEVICE LossSum* losses(int rank) const {
    return reinterpret_cast<LossSum*>(first + rank * bytes + sums);
  }
  TESSERA_HOST_DEVICE RankNotes* notes(int rank) const {
    return reinterpret_cast<RankNotes*>(losses(rank) + accumulation);
  }
  TESSERA_HOST_DEVICE BadElement* bad(int rank) const { return &notes(rank)->bad; }
};

/// share_sums_offset returns the offset of the LossSums in the statistics of a rank, in bytes. share_bytes
/// returns the size of these statistics, in bytes. `norm_blocks` is the number of sums of squares per rank.
constexpr std::int64_t share_sums_offset(std::int64_t norm_blocks) { return (4 * norm_blocks + 7) / 8 * 8; }
constexpr std::int64_t share_bytes(std::int64_t norm_blocks, int accumulation) {
  return share_sums_offset(norm_blocks) + static_cast<std::int64_t>(sizeof(LossSum)) * accumulation +
         static_cast<std::int64_t>(sizeof(RankNotes));
}

namespace detail {

/// Returns the sum of squares of the gradient over one of sum_lanes lanes (backend/lane_sum.hpp). Block b of
/// a unit belongs to lane b modulo sum_lanes. Each lane adds its blocks in order, unit by unit. So the sum
/// does not depend on the number of ranks.
TESSERA_HOST_DEVICE inline double square_sum_of_lane(StepShares const& shares, int lane) {
  double sum = 0.0;
  for (int unit = 0; unit < shares.unit_count; ++unit) {
    NormRange const range = shares.units[unit];
    for (int part = 0; part < range.by.count; ++part) {
      float const* const partials = shares.partials(range.by.rank(part)) + range.offset;
      std::int64_t const first = (lane - part * range.blocks) & (sum_lanes - 1);  // the lane's first block
      sum = add_lane(sum, partials, range.blocks, first);
    }
  }
  return sum;
}

/// Completes a step from the statistics of all ranks: adds the losses in the order of micro-batches, finds
/// the first non-finite value in the order of backward, counts the ranks that request a stop, and decides
/// whether the update is skipped.
TESSERA_HOST_DEVICE inline void finish_from(StepShares const& shares, StepState& state, StepRule const& rule,
                                            double square_sum) {
  double loss = 0.0;
  std::int64_t valid_tokens = 0;
  for (int micro = 0; micro < shares.accumulation; ++micro)
    for (int part = 0; part < shares.losses_by.count; ++part) {
      LossSum const found = shares.losses(shares.losses_by.rank(part))[micro];
      loss += found.loss;
      valid_tokens += found.valid_tokens;
    }
  BadElement first;
  state.stop_votes = 0;
  for (int rank = 0; rank < shares.ranks; ++rank) {
    state.stop_votes += shares.notes(rank)->stop;
    BadElement const bad = *shares.bad(rank);  // backward visits the last unit first
    if (bad.unit > first.unit || (bad.unit == first.unit && bad.unit >= 0 && bad.element < first.element))
      first = bad;
  }
  if (state.stopped_at == 0) {
    state.bad_unit = first.unit;
    state.bad_element = first.element;
  }
  finish_step(state, rule, square_sum, loss, valid_tokens);
}

}  // namespace detail

template <>
struct backend::StepEnds<Cpu> {
  static void begin(Context<Cpu>&, StepState* state, RankNotes* own, StepRule const& rule,
                    double learning_rate, bool stop) {
    *own = {.stop = stop};
    v0::begin_step(*state, rule, learning_rate);
  }

  static void finish(Context<Cpu>&, StepShares const& shares, StepState* state, StepRule const& rule) {
    double const square_sum =
        v0::detail::add_lanes([&](int lane) { return v0::detail::square_sum_of_lane(shares, lane); });
    v0::detail::finish_from(shares, *state, rule, square_sum);
  }
};

namespace ops {

/// Sets the scalars of a step before its first micro-batch. Also resets the notes of this rank, `own`: there
/// is no non-finite value yet, and `stop` says whether the rank requests a stop. `state` and `own` are in the
/// memory of the device.
template <class P>
void begin_step(Context<P>& context, StepState* state, RankNotes* own, StepRule const& rule,
                double learning_rate, bool stop = false) {
  Operation const operation{"begin_step", 0.0, static_cast<double>(sizeof(StepState))};
  context.enqueue(operation,
                  [&] { backend::StepEnds<P>::begin(context, state, own, rule, learning_rate, stop); });
}

/// Reads the statistics of all ranks and decides whether the update is skipped (v0::finish_step). All sums
/// are in double. The order of the additions depends only on the model.
template <class P>
void finish_step(Context<P>& context, StepShares const& shares, StepState* state, StepRule const& rule) {
  Operation const operation{"finish_step", static_cast<double>(shares.sums / 4 * shares.ranks),
                            static_cast<double>(shares.bytes * shares.ranks)};
  context.enqueue(operation, [&] { backend::StepEnds<P>::finish(context, shares, state, rule); });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
