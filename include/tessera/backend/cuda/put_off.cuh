// SPDX-License-Identifier: Apache-2.0
// Operations that wait for others of their kind, to be one launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>

#include "tessera/backend/operations.hpp"
#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Some of a kind, of the types that `run` launches; goes to a kernel as it is.
template <class Each, int Most>
struct PutOff {
  using Run = void (*)(cudaStream_t stream, PutOff const& all);
  static constexpr int most = Most;

  Each each[Most] = {};
  int size = 0;
  std::size_t lane = 0;
  Run run = nullptr;
};

/// Of a launch of several: which of them a block of threads works on, and the first block of each.
template <class List>
struct FirstBlocks {
  static_assert(List::most <= 64);
  unsigned of[List::most];

  __device__ __forceinline__ int mine(int size) const {
    int number = 0;
#pragma unroll
    for (int step = 32; step > 0; step /= 2)
      if (number + step < size && of[number + step] <= blockIdx.x) number += step;
    return number;
  }
};

/// to (columns) = the sums of from (count, columns) over rows.
struct RowSum {
  void const* from;
  std::int64_t count, columns;
  void* to;
};
using RowSums = PutOff<RowSum, 8>;

/// Sums of squares of so many values (ops::norm_partials).
struct Norm {
  void const* values;
  std::int64_t elements;
  void* partials;
  ops::BadNote note;
};
using Norms = PutOff<Norm, 48>;

/// AdamW of so many elements (ops::adamw). weights: null where the master is the weights.
struct Update {
  std::int64_t elements;
  void const* gradient;
  void *master, *first, *second, *weights;
  void const* factors;
  std::int64_t const* skip;
};
using Updates = PutOff<Update, 48>;

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
