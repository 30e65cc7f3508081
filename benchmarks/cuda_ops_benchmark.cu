// SPDX-License-Identifier: Apache-2.0
// Measures every memory-bound operation on a GPU. The counter bytes/s uses the minimum number of bytes that
// an operation reads and writes. of_copy is the bytes/s as a fraction of the bytes/s of a 1 GiB device copy,
// whose reads and writes both count. An operation that only reads or only writes can exceed 1, because a GPU
// moves more bytes per second in one direction only than in both. Benchmark names: operation/format/rows x
// channels, or operation/format/elements.
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/backend/cuda/kernels/cross_entropy.cuh"
#include "tessera/backend/cuda/kernels/elementwise.cuh"
#include "tessera/backend/cuda/kernels/embedding.cuh"
#include "tessera/backend/cuda/kernels/layer_norm.cuh"
#include "tessera/backend/cuda/kernels/rotary.cuh"
#include "tessera/backend/cuda/kernels/swiglu.cuh"
#include "tessera/ops/accumulate.hpp"
#include "tessera/ops/activation.hpp"
#include "tessera/ops/axpy.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/ops/rms_norm.hpp"
#include "tessera/ops/rotary.hpp"
#include "tessera/ops/sum.hpp"
#include "tessera/ops/swiglu.hpp"
#include "tessera/optim/adamw.cuh"
#include "tessera/optim/adamw.hpp"

#include "cuda_benchmark.cuh"

namespace {

namespace ts = tessera;
using gpu::Context;
using gpu::Pool;
using gpu::Work;
using P = ts::Cuda;

double real(std::int64_t number) { return static_cast<double>(number); }

/// Returns token ids that are spread over the vocabulary. They are used as inputs and as targets.
std::vector<std::int32_t> words(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(static_cast<std::int32_t>(i * 7919 % vocabulary));
  return all;
}

/// Adds the operations on rows of activations. There are `b` samples of `n` tokens, and `c` channels in `h`
/// heads.
template <class T>
void add_rows(std::int64_t b, std::int64_t n, std::int64_t c, std::int64_t h) {
  using S = ts::compute_t<T>;
  constexpr double t = sizeof(T), s = sizeof(S);
  auto const m = b * n, w = 4 * c, cuts = ts::ops::layer_norm_partial_rows(m);
  double const x = real(m * c), wide = real(m * w), rows = real(m);
  auto const add = [&](char const* name, Work const& work, auto const& make) {
    gpu::add<T>(name, std::to_string(m) + "x" + std::to_string(c), work, make);
  };

  // Reads x, gamma and beta. Writes y, and for each row the mean and the reciprocal standard deviation.
  add("layer_norm_forward", {7 * x, (2 * x + 2 * real(c)) * t + 2 * rows * s}, [=](Pool& pool) {
    auto const in = pool.array<T>({m, c}), gamma = pool.array<T>({c}), beta = pool.array<T>({c}),
               y = pool.zeros<T>({m, c});
    auto const mean = pool.zeros<S>({m}), rstd = pool.zeros<S>({m});
    return [=](Context& on) { ts::ops::layer_norm_forward<T, P>(on, in, gamma, beta, 1e-5, y, mean, rstd); };
  });
  // Reads dy, x, the gradient of the residual, the statistics of the rows, and gamma. Writes dx, dgamma and
  // dbeta. Also writes and reads the partial sums of dgamma and dbeta, `cuts` rows each.
  add("layer_norm_backward",
      {14 * x + 2 * real(cuts * c), (4 * x + 3 * real(c)) * t + (2 * rows + 4 * real(cuts * c)) * s},
      [=](Pool& pool) {
        auto const dy = pool.array<T>({m, c}), in = pool.array<T>({m, c}), gamma = pool.array<T>({c}),
                   residual = pool.array<T>({m, c}), dx = pool.zeros<T>({m, c}), dgamma = pool.zeros<T>({c}),
                   dbeta = pool.zeros<T>({c});
        auto const mean = pool.array<S>({m}), rstd = pool.array<S>({m}),
                   partials = pool.zeros<S>({2, cuts, c});
        return [=](Context& on) {
          ts::ops::layer_norm_backward_input<T, P>(on, dy, in, gamma, mean, rstd, residual, dx, partials);
          ts::ops::layer_norm_backward_weight<T, P>(on, partials, m, dgamma, dbeta);
        };
      });
  // Reads x and gamma. Writes y, and for each row the reciprocal root mean square.
  add("rms_norm_forward", {4 * x, (2 * x + real(c)) * t + rows * s}, [=](Pool& pool) {
    auto const in = pool.array<T>({m, c}), gamma = pool.array<T>({c}), y = pool.zeros<T>({m, c});
    auto const rstd = pool.zeros<S>({m});
    return [=](Context& on) { ts::ops::rms_norm_forward<T, P>(on, in, gamma, 1e-6, y, rstd); };
  });
  add("rms_norm_backward",
      {9 * x + real(cuts * c), (4 * x + 2 * real(c)) * t + (rows + 2 * real(cuts * c)) * s}, [=](Pool& pool) {
        auto const dy = pool.array<T>({m, c}), in = pool.array<T>({m, c}), gamma = pool.array<T>({c}),
                   residual = pool.array<T>({m, c}), dx = pool.zeros<T>({m, c}), dgamma = pool.zeros<T>({c});
        auto const rstd = pool.array<S>({m}), partials = pool.zeros<S>({1, cuts, c});
        return [=](Context& on) {
          ts::ops::rms_norm_backward_input<T, P>(on, dy, in, gamma, rstd, residual, dx, partials);
          ts::ops::rms_norm_backward_weight<T, P>(on, partials, m, dgamma);
        };
      });
  // Reads one tensor and writes one.
  add("gelu_forward", {8 * wide, 2 * wide * t}, [=](Pool& pool) {
    auto const pre = pool.array<T>({m, w}), y = pool.zeros<T>({m, w});
    return [=](Context& on) { ts::ops::activate<T, P>(on, ts::Activation::gelu, pre, y); };
  });
  // Reads two tensors and writes one.
  add("swiglu_forward", {7 * wide, 3 * wide * t}, [=](Pool& pool) {
    auto const gate = pool.array<T>({m, w}), up = pool.array<T>({m, w}), y = pool.zeros<T>({m, w});
    return [=](Context& on) { ts::ops::swiglu_forward<T, P>(on, gate, up, y); };
  });
  // Reads three tensors and writes two.
  add("swiglu_backward", {12 * wide, 5 * wide * t}, [=](Pool& pool) {
    auto const gate = pool.array<T>({m, w}), up = pool.array<T>({m, w}), dy = pool.array<T>({m, w}),
               dgate = pool.zeros<T>({m, w}), dup = pool.zeros<T>({m, w});
    return [=](Context& on) { ts::ops::swiglu_backward<T, P>(on, gate, up, dy, dgate, dup); };
  });
  // Reads one tensor and writes one.
  add("rotary", {3 * x, 2 * x * t}, [=](Pool& pool) {
    auto const from = pool.array<T>({b, n, c}), to = pool.zeros<T>({b, n, c});
    auto const frequencies = ts::ops::rotary_frequencies(c / h);
    return [=](Context& on) { ts::ops::rotary<T, P>(on, from, to, frequencies); };
  });
}

/// Adds the operations of the embedding and of the loss. `v` is the size of the vocabulary. `padded` is the
/// number of rows of the token table, which includes rows of padding.
template <class T>
void add_ends(std::int64_t b, std::int64_t n, std::int64_t c, std::int64_t v, std::int64_t padded) {
  using S = ts::compute_t<T>;
  constexpr double t = sizeof(T), s = sizeof(S);
  auto const m = b * n;
  double const x = real(m * c), table = real(padded * c), positions = real(n * c), logits = real(m * v);
  auto const add = [&](char const* name, std::int64_t columns, Work const& work, auto const& make) {
    gpu::add<T>(name, std::to_string(m) + "x" + std::to_string(columns), work, make);
  };

  // Reads the logits and overwrites them with their gradient. Also reads the targets and writes the losses.
  add("cross_entropy", v, {6 * logits, 2 * logits * t + real(m) * (4 + s)}, [=](Pool& pool) {
    auto const in = pool.array<T>({m, padded});
    auto const targets = pool.copy_of(words(m, v), {m});
    auto const losses = pool.zeros<S>({m});
    S const* const scale = pool.copy_of(std::vector<S>{S(1)}, {1}).data();
    return [=](Context& on) { ts::ops::cross_entropy<T, P>(on, in, v, targets, losses, true, scale); };
  });
  // Computes the losses without the gradient of the logits.
  add("cross_entropy_losses", v, {3 * logits, logits * t + real(m) * (4 + s)}, [=](Pool& pool) {
    auto const in = pool.array<T>({m, padded});
    auto const targets = pool.copy_of(words(m, v), {m});
    auto const losses = pool.zeros<S>({m});
    S const* const scale = pool.copy_of(std::vector<S>{S(1)}, {1}).data();
    return [=](Context& on) { ts::ops::cross_entropy<T, P>(on, in, v, targets, losses, false, scale); };
  });
  // Reads the tokens, one row of the token table for each token, and the positions. Writes y.
  add("embedding_forward", c, {x, 4 * real(m) + (2 * x + positions) * t}, [=](Pool& pool) {
    auto const tokens = pool.copy_of(words(m, v), {b, n});
    auto const wte = pool.array<T>({padded, c}), wpe = pool.array<T>({n, c}), y = pool.zeros<T>({b, n, c});
    return [=](Context& on) { ts::ops::embedding_forward<T, P>(on, tokens, wte, wpe, y); };
  });
  // Reads the tokens, dy, and the gradient of the token table that the output head has computed. Adds rows of
  // dy to this gradient. Writes the gradient of the positions. In fp32 the sum is the final gradient of the
  // table. In 16-bit formats the operation also writes the sum to a second array in this format.
  add("embedding_backward", c,
      {2 * x,
       4 * real(m) + (x + positions) * t + (std::is_same_v<T, S> ? 2 * x * s : table * (s + t) + x * s)},
      [=](Pool& pool) {
        auto const tokens = pool.copy_of(words(m, v), {b, n});
        auto const dy = pool.array<T>({b, n, c}), dwte = pool.zeros<T>({padded, c}),
                   dwpe = pool.zeros<T>({n, c});
        auto const partial = [&] {
          if constexpr (std::is_same_v<T, S>)
            return dwte;
          else
            return pool.zeros<S>({padded, c});
        }();
        return [=](Context& on) {
          ts::ops::embedding_backward<T, P>(on, tokens, dy, partial, false, dwte, dwpe);
        };
      });
}

/// Adds the operations on `n` consecutive parameters, gradients and moments.
template <class T>
void add_flat(std::int64_t n) {
  using S = ts::compute_t<T>;
  constexpr double t = sizeof(T), s = sizeof(S);
  constexpr bool wide = std::is_same_v<T, S>;
  auto const partials_of = (n + 4095) / 4096;
  auto const add = [&](char const* name, Work const& work, auto const& make) {
    gpu::add<T>(name, std::to_string(n), work, make);
  };

  // Reads the gradient. Reads and writes the master weights and both moments. In 16-bit formats it also
  // writes the weights.
  add("adamw", {14 * real(n), real(n) * (t + 6 * s + (wide ? 0 : t))}, [=](Pool& pool) {
    auto const gradient = pool.array<T>({n}), weights = pool.zeros<T>({wide ? 1 : n});
    auto const master = pool.array<S>({n}), first = pool.array<S>({n}), second = pool.zeros<S>({n});
    std::vector<ts::AdamWFactors<S>> const values{ts::adamw_factors<S>({}, 1e-4, 0.9, 0.999, 1.0, true)};
    ts::AdamWFactors<S> const* const factors = pool.copy_of(values, {1}).data();
    auto const skip = pool.zeros<std::int64_t>({1});
    return [=](Context& on) {
      ts::ops::adamw(on, n, static_cast<T const*>(gradient.data()), master.data(), first.data(),
                     second.data(), wide ? static_cast<T*>(nullptr) : weights.data(), factors,
                     static_cast<std::int64_t const*>(skip.data()));
    };
  });
  // Reads 4 arrays and writes their sum.
  add("accumulate", {3 * real(n), real(n) * (4 * t + s)}, [=](Pool& pool) {
    auto const pieces = pool.array<T>({4 * n});
    auto const sum = pool.zeros<S>({n});
    return [=](Context& on) {
      ts::ops::accumulate<T, P>(on, sum, static_cast<T const*>(pieces.data()), 4, n, true);
    };
  });
  // Reads the values and writes one partial sum of squares for every 4096 values.
  add("norm_partials", {2 * real(n), real(n) * t + 4 * real(partials_of)}, [=](Pool& pool) {
    auto const values = pool.array<T>({n});
    auto const partials = pool.zeros<float>({partials_of});
    return [=](Context& on) { ts::ops::norm_partials<T, float, P>(on, values, partials); };
  });
  // Reads the values, and writes and reads one partial sum for every 4096 values.
  add("norm", {2 * real(n), real(n) * t + 2 * s * real(partials_of) + 8}, [=](Pool& pool) {
    auto const values = pool.array<T>({n});
    auto const partials = pool.zeros<S>({partials_of});
    auto const result = pool.zeros<double>({1});
    return [=](Context& on) { ts::ops::norm<T, P>(on, values, partials, result); };
  });
  add("sum", {real(n), real(n) * t + 2 * s * real(partials_of) + 8}, [=](Pool& pool) {
    auto const values = pool.array<T>({n});
    auto const partials = pool.zeros<S>({partials_of});
    auto const result = pool.zeros<double>({1});
    return [=](Context& on) { ts::ops::sum<T, P>(on, values, partials, result); };
  });
  // Reads two arrays and writes one.
  add("axpy", {2 * real(n), 3 * real(n) * t}, [=](Pool& pool) {
    auto const x = pool.array<T>({n}), y = pool.zeros<T>({n});
    return [=](Context& on) { ts::ops::axpy<T, P>(on, S(1e-3f), x, y); };
  });
  add("first_non_finite", {0, real(n) * t}, [=](Pool& pool) {
    auto const values = pool.array<T>({n});
    auto const index = pool.zeros<std::int64_t>({1});
    return [=](Context& on) { ts::ops::first_non_finite<T, P>(on, values, index.data()); };
  });
  // Reads one array and writes one.
  add("copy", {0, 2 * real(n) * t}, [=](Pool& pool) {
    auto const from = pool.array<T>({n}), to = pool.zeros<T>({n});
    return [=](Context& on) { ts::ops::copy<T, P>(on, from, to); };
  });
  add("fill", {0, real(n) * t}, [=](Pool& pool) {
    auto const to = pool.zeros<T>({n});
    return [=](Context& on) { ts::ops::fill<T, P>(on, to, S(1)); };
  });
  if constexpr (!wide)
    // Reads the master weights and writes the 16-bit weights.
    add("convert", {0, real(n) * (s + t)}, [=](Pool& pool) {
      auto const from = pool.array<S>({n});
      auto const to = pool.zeros<T>({n});
      return [=](Context& on) { ts::ops::convert<S, T, P>(on, from, to); };
    });
}

template <class T>
void add_all() {
  add_rows<T>(16, 1024, 768, 12);
  add_rows<T>(4, 2048, 4096, 32);
  add_ends<T>(8, 1024, 768, 50257, 50264);
  add_flat<T>(std::int64_t{1} << 26);
}

}  // namespace

int main(int argc, char** argv) {
  gpu::add_rates<float, ts::bfloat16>();
  add_all<float>();
  add_all<ts::bfloat16>();
  return gpu::run(argc, argv);
}
