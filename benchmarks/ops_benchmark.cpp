// SPDX-License-Identifier: Apache-2.0
// Measures each CPU operation in each format and model width on all cores. flop/s and bytes/s use the counts
// that the operation declares. of_product and of_copy are the same rates as fractions of two reference rates.
// This program measures the references at its start, each as the best of 8 rounds. The benchmark
// machine/rates reports both.
//
// The reference of of_product is Eigen's float matrix product, 512 x 3072 by 3072 x 768 on each core at once,
// for every format. A kernel that is faster than this product has an of_product above 1. The reference of
// of_copy is a memcpy of 128 MiB, divided among the cores, whose reads and writes both count. If the data of
// an operation are in a cache, its of_copy can exceed 1. Benchmark names: operation/format/rows x channels.
#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <Eigen/Core>
#include <benchmark/benchmark.h>

#include "tessera/detail/affinity.hpp"
#include "tessera/ops/accumulate.hpp"
#include "tessera/ops/activation.hpp"
#include "tessera/ops/attention.hpp"
#include "tessera/ops/axpy.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/linear.hpp"
#include "tessera/ops/norm.hpp"
#include "tessera/ops/rms_norm.hpp"
#include "tessera/ops/rotary.hpp"
#include "tessera/ops/sum.hpp"
#include "tessera/ops/swiglu.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/finish.hpp"

#include "context.hpp"

namespace {

namespace ts = tessera;

struct Size {
  std::int64_t batch, sequence, channels;
  int heads;
  std::int64_t vocabulary;
  std::int64_t rows() const { return batch * sequence; }
};

using ts::affinity::core_count;

/// A context that uses all cores, with its workspace.
struct Machine {
  Machine()
      : threads(core_count()),
        workspace(ts::Context<ts::Cpu>::workspace_bytes(threads)),
        context(threads, workspace) {}
  int threads;
  std::vector<std::byte> workspace;
  ts::Context<ts::Cpu> context;
};

/// A tensor that owns its values.
template <class T>
struct Array {
  explicit Array(ts::Shape const& array_shape)
      : shape(array_shape), values(static_cast<std::size_t>(shape.elements())) {
    std::uint32_t state = 1;
    for (T& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<T>(static_cast<float>(state >> 8) / 8388608.0f - 1.0f);
    }
  }
  operator ts::Tensor<T>() { return {values.data(), shape}; }
  operator ts::Tensor<T const>() { return {values.data(), shape}; }
  ts::Shape shape;
  std::vector<T> values;
};

/// Adds up the flops and bytes that operations declare. With a recorder, operations do not run.
struct Declared : ts::Recorder {
  void operation(ts::Operation const& operation) override {
    flops += operation.flops;
    bytes += operation.bytes;
  }
  void violation(char const*) override {}
  double flops = 0, bytes = 0;
};

/// Runs `work(thread)` on all threads at once, for 8 rounds after a warm-up round. Returns the time of the
/// fastest round in seconds: from the moment at which all threads are ready to the end of the last one.
double seconds_on_all(int threads, auto const& work) {
  constexpr int rounds = 9;
  std::vector<std::chrono::steady_clock::time_point> marks;
  marks.reserve(2 * rounds);
  // The barrier calls this function on the last thread to arrive, before any thread continues.
  std::barrier line(threads, [&marks]() noexcept { marks.push_back(std::chrono::steady_clock::now()); });
  auto const run = [&](int thread) {
    for (int round = 0; round < rounds; ++round) {
      line.arrive_and_wait();
      work(thread);
      line.arrive_and_wait();
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t round = 1; round < rounds; ++round)
    best = std::min(best, std::chrono::duration<double>(marks[2 * round + 1] - marks[2 * round]).count());
  return best;
}

/// Returns the flop/s of Eigen's matrix product on all threads together. Each thread multiplies its own
/// matrices with Eigen's single-threaded kernel.
double product_rate(int threads) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  static constexpr int rows = 512, depth = 3072, columns = 768;
  struct Operands {
    Matrix x = Matrix::Random(rows, depth), w = Matrix::Random(depth, columns), y = Matrix(rows, columns);
  };
  Eigen::setNbThreads(1);
  std::vector<Operands> operands(static_cast<std::size_t>(threads));
  double const seconds = seconds_on_all(threads, [&](int thread) {
    Operands& own = operands[static_cast<std::size_t>(thread)];
    own.y.noalias() = own.x * own.w;
    benchmark::ClobberMemory();
  });
  return 2.0 * rows * depth * columns * threads / seconds;
}

/// Returns the bytes per second that memcpy reads and writes. Each thread copies a part of 128 MiB.
double copy_rate(int threads) {
  std::size_t const part = (std::size_t{128} << 20) / static_cast<std::size_t>(threads);
  std::vector<std::byte> from(part * static_cast<std::size_t>(threads), std::byte{1}), to(from.size());
  double const seconds = seconds_on_all(threads, [&](int thread) {
    std::size_t const begin = part * static_cast<std::size_t>(thread);
    std::memcpy(to.data() + begin, from.data() + begin, part);
    benchmark::ClobberMemory();
  });
  return 2.0 * static_cast<double>(from.size()) / seconds;
}

/// The reference rates of this machine: the flop/s of a matrix product, and the bytes/s of a copy.
struct Rates {
  double product, copy;
};

/// Returns the reference rates. The first call measures them.
Rates const& rates() {
  static Rates const measured{product_rate(core_count()), copy_rate(core_count())};
  return measured;
}

void machine_rates(benchmark::State& state) {
  for (auto _ : state) static_cast<void>(rates());
  state.counters["flop/s"] = rates().product;
  state.counters["bytes/s"] = {rates().copy, benchmark::Counter::kDefaults, benchmark::Counter::kIs1024};
}
BENCHMARK(machine_rates)->Name("machine/rates")->Iterations(1)->Repetitions(1)->UseRealTime();

/// Measures `call(context)`, which runs one operation.
template <class F>
void measure(benchmark::State& state, F const& call) {
  Machine machine;
  Declared declared;
  ts::Context<ts::Cpu> recording(1, {}, &declared);
  call(recording);
  call(machine.context);
  for (auto _ : state) {
    call(machine.context);
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  auto const count = static_cast<double>(state.iterations());
  Rates const& limit = rates();
  state.counters["flop/s"] = Counter(declared.flops * count, Counter::kIsRate);
  state.counters["bytes/s"] = Counter(declared.bytes * count, Counter::kIsRate, Counter::OneK::kIs1024);
  state.counters["of_product"] = Counter(declared.flops * count / limit.product, Counter::kIsRate);
  state.counters["of_copy"] = Counter(declared.bytes * count / limit.copy, Counter::kIsRate);
}

/// The benchmarks of one format and size: the operations of a transformer block, of the embedding and the
/// loss, and of the optimizer.
template <class T>
class Suite {
  using S = ts::compute_t<T>;
  using C = ts::Context<ts::Cpu>;
  using Values = Array<T>;
  using Sums = Array<S>;

 public:
  explicit Suite(Size size) : z_(size) {}

  /// Registers the benchmarks of all operations in this format and size.
  void add(std::string const& format) {
    std::string const tail =
        "/" + format + "/" + std::to_string(z_.rows()) + "x" + std::to_string(z_.channels);
    auto const one = [&](char const* name, auto make) {
      benchmark::RegisterBenchmark((name + tail).c_str(),
                                   [z = z_, make](benchmark::State& state) { make(state, z); })
          ->UseRealTime()
          ->MeasureProcessCPUTime();
    };
    one("linear_forward", &linear_forward);
    one("linear_gelu_forward", &linear_gelu_forward);
    one("gelu_forward", &gelu_forward);
    one("linear_residual_forward", &linear_residual_forward);
    one("linear_backward_input", &linear_backward_input);
    one("linear_gelu_backward_input", &linear_gelu_backward_input);
    one("linear_backward_weight", &linear_backward_weight);
    one("head_forward", &head_forward);
    one("head_backward_input", &head_backward_input);
    one("head_backward_weight", &head_backward_weight);
    one("cross_entropy", &cross_entropy);
    one("layer_norm_forward", &layer_norm_forward);
    one("layer_norm_backward", &layer_norm_backward);
    one("rms_norm_forward", &rms_norm_forward);
    one("rms_norm_backward", &rms_norm_backward);
    one("swiglu_forward", &swiglu_forward);
    one("swiglu_backward", &swiglu_backward);
    one("rotary", &rotary);
    one("attention_forward", &attention_forward);
    one("attention_backward", &attention_backward);
    one("embedding_forward", &embedding_forward);
    one("embedding_backward", &embedding_backward);
    one("sum_losses", &sum_losses);
    one("accumulate", &accumulate);
    one("norm_partials", &norm_partials);
    one("norm", &norm);
    one("sum", &sum);
    one("axpy", &axpy);
    one("first_non_finite", &first_non_finite);
    one("adamw", &adamw);
    one("convert", &convert);
    one("fill", &fill);
    one("copy", &copy);
    if constexpr (std::is_same_v<T, float>) {  // these operations have no format, so they are added once
      one("begin_step", &begin_step);
      one("finish_step", &finish_step);
    }
  }

 private:
  static void linear_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), w({z.channels, 3 * z.channels}), bias({3 * z.channels}),
        y({z.rows(), 3 * z.channels});
    measure(state, [&](C& c) { ts::ops::linear<T, ts::Cpu>(c, x, w, y, {.bias = bias}); });
  }
  static void linear_gelu_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), w({z.channels, 4 * z.channels}), bias({4 * z.channels}),
        pre({z.rows(), 4 * z.channels}), y({z.rows(), 4 * z.channels});
    measure(state, [&](C& c) {
      ts::ops::linear<T, ts::Cpu>(c, x, w, y, {.bias = bias, .activation = ts::Activation::gelu, .pre = pre});
    });
  }
  static void gelu_forward(benchmark::State& state, Size z) {
    Values pre({z.rows(), 4 * z.channels}), y({z.rows(), 4 * z.channels});
    measure(state, [&](C& c) { ts::ops::activate<T, ts::Cpu>(c, ts::Activation::gelu, pre, y); });
  }
  static void linear_residual_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), 4 * z.channels}), w({4 * z.channels, z.channels}), bias({z.channels}),
        residual({z.rows(), z.channels}), y({z.rows(), z.channels});
    measure(state,
            [&](C& c) { ts::ops::linear<T, ts::Cpu>(c, x, w, y, {.bias = bias, .residual = residual}); });
  }
  static void linear_backward_input(benchmark::State& state, Size z) {
    Values dy({z.rows(), 4 * z.channels}), w({z.channels, 4 * z.channels}), dx({z.rows(), z.channels});
    measure(state, [&](C& c) { ts::ops::linear_backward_input<T, ts::Cpu>(c, dy, w, dx); });
  }
  static void linear_gelu_backward_input(benchmark::State& state, Size z) {
    Values dy({z.rows(), z.channels}), w({4 * z.channels, z.channels}), pre({z.rows(), 4 * z.channels}),
        dpre({z.rows(), 4 * z.channels});
    measure(state, [&](C& c) {
      ts::ops::linear_backward_input<T, ts::Cpu>(c, dy, w, dpre,
                                                 {.activation = ts::Activation::gelu, .pre = pre});
    });
  }
  static void linear_backward_weight(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), dy({z.rows(), 4 * z.channels}), dw({z.channels, 4 * z.channels}),
        dbias({4 * z.channels});
    measure(state,
            [&](C& c) { ts::ops::linear_backward_weight<T, T, ts::Cpu>(c, x, dy, dw, {.dbias = dbias}); });
  }
  static void head_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), w({z.vocabulary, z.channels}), y({z.rows(), z.vocabulary});
    measure(state, [&](C& c) { ts::ops::linear<T, ts::Cpu>(c, x, w, y, {.transposed = true}); });
  }
  static void head_backward_input(benchmark::State& state, Size z) {
    Values dy({z.rows(), z.vocabulary}), w({z.vocabulary, z.channels}), dx({z.rows(), z.channels});
    measure(state,
            [&](C& c) { ts::ops::linear_backward_input<T, ts::Cpu>(c, dy, w, dx, {.transposed = true}); });
  }
  static void head_backward_weight(benchmark::State& state, Size z) {
    Values dy({z.rows(), z.vocabulary}), x({z.rows(), z.channels});
    Sums dw({z.vocabulary, z.channels});
    measure(state, [&](C& c) {
      ts::ops::linear_backward_weight<T, S, ts::Cpu>(c, x, dy, dw, {.transposed = true});
    });
  }
  static void cross_entropy(benchmark::State& state, Size z) {
    Values logits({z.rows(), z.vocabulary});
    Sums losses({z.rows()});
    std::vector<std::int32_t> targets(static_cast<std::size_t>(z.rows()), 3);
    S const scale = S(1);
    measure(state, [&](C& c) {
      ts::ops::cross_entropy<T, ts::Cpu>(c, logits, ts::Tensor<std::int32_t>{targets.data(), {z.rows()}},
                                         losses, true, &scale);
    });
  }
  static void layer_norm_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), gamma({z.channels}), beta({z.channels}), y({z.rows(), z.channels});
    Sums mean({z.rows()}), rstd({z.rows()});
    measure(state,
            [&](C& c) { ts::ops::layer_norm_forward<T, ts::Cpu>(c, x, gamma, beta, 1e-5, y, mean, rstd); });
  }
  static void layer_norm_backward(benchmark::State& state, Size z) {
    Values dy({z.rows(), z.channels}), x({z.rows(), z.channels}), gamma({z.channels}),
        residual({z.rows(), z.channels}), dx({z.rows(), z.channels}), dgamma({z.channels}),
        dbeta({z.channels});
    Sums mean({z.rows()}), rstd({z.rows()}),
        partials({2, ts::ops::layer_norm_partial_rows(z.rows()), z.channels});
    measure(state, [&](C& c) {
      ts::ops::layer_norm_backward_input<T, ts::Cpu>(c, dy, x, gamma, mean, rstd, residual, dx, partials);
      ts::ops::layer_norm_backward_weight<T, ts::Cpu>(c, partials, z.rows(), dgamma, dbeta);
    });
  }
  static void rms_norm_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), gamma({z.channels}), y({z.rows(), z.channels});
    Sums rstd({z.rows()});
    measure(state, [&](C& c) { ts::ops::rms_norm_forward<T, ts::Cpu>(c, x, gamma, 1e-6, y, rstd); });
  }
  static void rms_norm_backward(benchmark::State& state, Size z) {
    Values dy({z.rows(), z.channels}), x({z.rows(), z.channels}), gamma({z.channels}),
        residual({z.rows(), z.channels}), dx({z.rows(), z.channels}), dgamma({z.channels});
    Sums rstd({z.rows()}), partials({1, ts::ops::layer_norm_partial_rows(z.rows()), z.channels});
    measure(state, [&](C& c) {
      ts::ops::rms_norm_backward_input<T, ts::Cpu>(c, dy, x, gamma, rstd, residual, dx, partials);
      ts::ops::rms_norm_backward_weight<T, ts::Cpu>(c, partials, z.rows(), dgamma);
    });
  }
  static void swiglu_forward(benchmark::State& state, Size z) {
    Values gate({z.rows(), 4 * z.channels}), up({z.rows(), 4 * z.channels}), y({z.rows(), 4 * z.channels});
    measure(state, [&](C& c) { ts::ops::swiglu_forward<T, ts::Cpu>(c, gate, up, y); });
  }
  static void swiglu_backward(benchmark::State& state, Size z) {
    Values gate({z.rows(), 4 * z.channels}), up({z.rows(), 4 * z.channels}), dy({z.rows(), 4 * z.channels}),
        dup({z.rows(), 4 * z.channels});
    measure(state, [&](C& c) { ts::ops::swiglu_backward<T, ts::Cpu>(c, gate, up, dy, dy, dup); });
  }
  static void rotary(benchmark::State& state, Size z) {
    Values x({z.batch, z.sequence, z.channels});
    auto const frequencies = ts::ops::rotary_frequencies(z.channels / z.heads);
    measure(state, [&](C& c) { ts::ops::rotary<T, ts::Cpu>(c, x, x, frequencies); });
  }
  static void attention_forward(benchmark::State& state, Size z) {
    Values qkv({z.batch, z.sequence, 3 * z.channels}), out({z.batch, z.sequence, z.channels});
    Sums logsumexp({z.batch, z.heads, z.sequence});
    measure(state, [&](C& c) { ts::ops::attention_forward<T, ts::Cpu>(c, qkv, z.heads, out, logsumexp); });
  }
  static void attention_backward(benchmark::State& state, Size z) {
    Values dout({z.batch, z.sequence, z.channels}), qkv({z.batch, z.sequence, 3 * z.channels}),
        out({z.batch, z.sequence, z.channels}), dqkv({z.batch, z.sequence, 3 * z.channels});
    Sums logsumexp({z.batch, z.heads, z.sequence});
    measure(state, [&](C& c) {
      ts::ops::attention_backward<T, ts::Cpu>(c, dout, qkv, out, logsumexp, z.heads, dqkv);
    });
  }
  static std::vector<std::int32_t> tokens_of(Size z) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < z.rows(); ++i)
      tokens.push_back(static_cast<std::int32_t>(i * 7919 % z.vocabulary));
    return tokens;
  }
  static void embedding_forward(benchmark::State& state, Size z) {
    Values wte({z.vocabulary, z.channels}), wpe({z.sequence, z.channels}),
        y({z.batch, z.sequence, z.channels});
    std::vector<std::int32_t> tokens = tokens_of(z);
    measure(state, [&](C& c) {
      ts::ops::embedding_forward<T, ts::Cpu>(
          c, ts::Tensor<std::int32_t>{tokens.data(), {z.batch, z.sequence}}, wte, wpe, y);
    });
  }
  static void embedding_backward(benchmark::State& state, Size z) {
    Values dy({z.batch, z.sequence, z.channels}), dwte({z.vocabulary, z.channels}),
        dwpe({z.sequence, z.channels});
    Sums partial({z.vocabulary, z.channels});
    std::vector<std::int32_t> tokens = tokens_of(z);
    measure(state, [&](C& c) {
      ts::ops::embedding_backward<T, ts::Cpu>(
          c, ts::Tensor<std::int32_t>{tokens.data(), {z.batch, z.sequence}}, dy, partial, false, dwte, dwpe);
    });
  }
  static void sum_losses(benchmark::State& state, Size z) {
    Sums losses({z.rows()});
    std::vector<std::int32_t> targets(static_cast<std::size_t>(z.rows()), 3);
    double loss = 0;
    std::int64_t valid_tokens = 0;
    measure(state, [&](C& c) {
      ts::ops::sum_losses<S, ts::Cpu>(c, losses, ts::Tensor<std::int32_t>{targets.data(), {z.rows()}}, &loss,
                                      &valid_tokens);
    });
  }
  /// Returns the number of weights in the matrices of one transformer block of GPT-2.
  static std::int64_t block_of(Size z) { return 12 * z.channels * z.channels; }
  static std::int64_t partials_of(std::int64_t n) { return (n + 4095) / 4096; }
  static void accumulate(benchmark::State& state, Size z) {
    std::int64_t const n = block_of(z);
    Values pieces({4 * n});
    Sums accumulator({n});
    measure(state, [&](C& c) {
      ts::ops::accumulate<T, ts::Cpu>(c, accumulator, static_cast<T const*>(pieces.values.data()), 4, n,
                                      true);
    });
  }
  static void norm_partials(benchmark::State& state, Size z) {
    std::int64_t const n = block_of(z);
    Values values({n});
    Array<float> partials({partials_of(n)});
    measure(state, [&](C& c) { ts::ops::norm_partials<T, float, ts::Cpu>(c, values, partials); });
  }
  static void norm(benchmark::State& state, Size z) {
    Values values({block_of(z)});
    Sums partials({ts::ops::partial_sums(block_of(z))});
    Array<double> result({1});
    measure(state, [&](C& c) { ts::ops::norm<T, ts::Cpu>(c, values, partials, result); });
  }
  static void sum(benchmark::State& state, Size z) {
    Values values({block_of(z)});
    Sums partials({ts::ops::partial_sums(block_of(z))});
    Array<double> result({1});
    measure(state, [&](C& c) { ts::ops::sum<T, ts::Cpu>(c, values, partials, result); });
  }
  static void axpy(benchmark::State& state, Size z) {
    Values x({block_of(z)}), y({block_of(z)});
    measure(state, [&](C& c) { ts::ops::axpy<T, ts::Cpu>(c, S(1e-3), x, y); });
  }
  static void first_non_finite(benchmark::State& state, Size z) {
    Values values({block_of(z)});
    std::int64_t index = 0;
    measure(state, [&](C& c) { ts::ops::first_non_finite<T, ts::Cpu>(c, values, &index); });
  }
  /// Only the gradient has the format of the benchmark. The master weights and both moments are float. In
  /// 16-bit formats the weights are written too.
  static void adamw(benchmark::State& state, Size z) {
    std::int64_t const n = block_of(z);
    Values gradient({n}), weights({std::is_same_v<T, S> ? 1 : n});
    Sums master({n}), first({n}), second({n});
    std::fill(second.values.begin(), second.values.end(), S(1));
    ts::AdamWFactors<S> const factors = ts::adamw_factors<S>({}, 1e-4, 0.9, 0.999, 1.0, true);
    std::int64_t const skip = 0;
    T* const stored = std::is_same_v<T, S> ? nullptr : weights.values.data();
    measure(state, [&](C& c) {
      ts::ops::adamw(c, n, static_cast<T const*>(gradient.values.data()), master.values.data(),
                     first.values.data(), second.values.data(), stored, &factors, &skip);
    });
  }
  /// Returns a step rule with gradient clipping, so that begin_step and finish_step handle the gradient norm.
  static ts::StepRule rule_of(Size z) {
    ts::StepRule rule;
    rule.clip = 1.0;
    rule.tokens = z.rows();
    return rule;
  }
  static void begin_step(benchmark::State& state, Size z) {
    ts::StepRule const rule = rule_of(z);
    ts::StepState scalars;
    ts::RankNotes notes;
    measure(state, [&](C& c) { ts::ops::begin_step<ts::Cpu>(c, &scalars, &notes, rule, 1e-4); });
  }
  /// Combines the partial norms and losses of 4 ranks and 12 units at the end of a step.
  static void finish_step(benchmark::State& state, Size z) {
    constexpr int ranks = 4, units = 12;
    std::int64_t const blocks = partials_of(block_of(z) / ranks), bytes = ts::share_bytes(units * blocks, 1);
    std::vector<double> memory(static_cast<std::size_t>(ranks * bytes / 8));
    std::array<ts::NormRange, units> ranges;
    for (int unit = 0; unit < units; ++unit)
      ranges[static_cast<std::size_t>(unit)] = {unit * blocks, blocks, {0, 1, ranks}};
    ts::StepShares shares;
    shares.first = reinterpret_cast<std::byte*>(memory.data());
    shares.bytes = bytes;
    shares.sums = ts::share_sums_offset(units * blocks);
    shares.units = ranges.data();
    shares.unit_count = units;
    shares.ranks = ranks;
    shares.losses_by = {0, 1, ranks};
    for (int rank = 0; rank < ranks; ++rank) {
      std::fill_n(shares.partials(rank), units * blocks, 1.0f);
      *shares.losses(rank) = {1.0, z.rows() / ranks};
      *shares.notes(rank) = {};
    }
    ts::StepRule const rule = rule_of(z);
    ts::StepState scalars;
    measure(state, [&](C& c) { ts::ops::finish_step<ts::Cpu>(c, shares, &scalars, rule); });
  }
  static void convert(benchmark::State& state, Size z) {
    std::int64_t const n = block_of(z);
    Sums from({n});
    Values to({n});
    measure(state, [&](C& c) { ts::ops::convert<S, T, ts::Cpu>(c, from, to); });
  }
  static void fill(benchmark::State& state, Size z) {
    Values to({block_of(z)});
    measure(state, [&](C& c) { ts::ops::fill<T, ts::Cpu>(c, to, S(0)); });
  }
  static void copy(benchmark::State& state, Size z) {
    Values from({block_of(z)}), to({block_of(z)});
    measure(state, [&](C& c) { ts::ops::copy<T, ts::Cpu>(c, from, to); });
  }

  Size z_;
};

/// The three model widths for which the CPU kernels have speed targets. The largest has GPT-2's vocabulary.
[[maybe_unused]] bool const registered = [] {
  for (Size size : {Size{8, 128, 128, 4, 256}, Size{4, 256, 384, 6, 256}, Size{4, 128, 768, 12, 50257}}) {
    Suite<float>(size).add("float");
    if (size.vocabulary == 256) Suite<ts::half>(size).add("half");
    Suite<ts::bfloat16>(size).add("bfloat16");
  }
  return true;
}();

}  // namespace
