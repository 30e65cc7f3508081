// SPDX-License-Identifier: Apache-2.0
// One benchmark for each operation, format and model width, on all cores. Counters: flop/s and bytes/s of
// what the operation declares, and both as shares (of_product, of_copy) of what this machine does in the same
// program with a plain product and with a copy. Names read operation/format/rows x channels.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "tessera/ops/attention.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/fold.hpp"
#include "tessera/ops/gelu.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/linear.hpp"
#include "tessera/ops/norm.hpp"

namespace {

namespace ts = tessera;

struct Size {
  std::int64_t batch, sequence, channels;
  int heads;
  std::int64_t vocabulary;
  std::int64_t rows() const { return batch * sequence; }
};

/// A context on all cores with its workspace.
struct Machine {
  Machine()
      : threads(std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
        workspace(ts::Context<ts::Cpu>::workspace_bytes(threads)),
        context(threads, workspace) {}
  int threads;
  std::vector<std::byte> workspace;
  ts::Context<ts::Cpu> context;
};

/// Values with a shape.
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

/// Sums what operations declare.
struct Declared : ts::Recorder {
  void operation(ts::Operation const& operation) override {
    flops += operation.flops;
    bytes += operation.bytes;
  }
  void violation(char const*) override {}
  double flops = 0, bytes = 0;
};

double seconds_of(auto const& work) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    auto const start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// What this machine does, measured once: flop/s of a product (512 x 768 x 3072), bytes/s of a copy of 64
/// MiB.
struct Rates {
  explicit Rates(Machine& machine) {
    Array<float> x({512, 3072}), w({3072, 768}), y({512, 768}), from({16 << 20}), to({16 << 20});
    product = 2.0 * 512 * 768 * 3072 /
              seconds_of([&] { ts::ops::linear_forward<float, ts::Cpu>(machine.context, x, w, {}, y); });
    copy =
        2.0 * 4 * (16 << 20) / seconds_of([&] { ts::ops::copy<float, ts::Cpu>(machine.context, from, to); });
  }
  double product, copy;
};

Rates const& rates(Machine& machine) {
  static Rates const measured(machine);
  return measured;
}

/// Times `call(context)`, which runs one operation.
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
  Rates const& limit = rates(machine);
  state.counters["flop/s"] = Counter(declared.flops * count, Counter::kIsRate);
  state.counters["bytes/s"] = Counter(declared.bytes * count, Counter::kIsRate, Counter::OneK::kIs1024);
  state.counters["of_product"] = Counter(declared.flops * count / limit.product, Counter::kIsRate);
  state.counters["of_copy"] = Counter(declared.bytes * count / limit.copy, Counter::kIsRate);
}

/// Everything that the operations of one block, the two ends of a model and the optimizer's passes work on.
template <class T>
class Suite {
  using S = ts::compute_t<T>;
  using C = ts::Context<ts::Cpu>;
  using Values = Array<T>;
  using Sums = Array<S>;

 public:
  explicit Suite(Size size) : z_(size) {}

  /// Registers every operation of this format and size.
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
    one("attention_forward", &attention_forward);
    one("attention_backward", &attention_backward);
    one("embedding_forward", &embedding_forward);
    one("embedding_backward", &embedding_backward);
    one("fold", &fold);
    one("norm_partials", &norm_partials);
    one("convert", &convert);
  }

 private:
  static void linear_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), w({z.channels, 3 * z.channels}), bias({3 * z.channels}),
        y({z.rows(), 3 * z.channels});
    measure(state, [&](C& c) { ts::ops::linear_forward<T, ts::Cpu>(c, x, w, bias, y); });
  }
  static void linear_gelu_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), w({z.channels, 4 * z.channels}), bias({4 * z.channels}),
        pre({z.rows(), 4 * z.channels}), y({z.rows(), 4 * z.channels});
    measure(state, [&](C& c) { ts::ops::linear_gelu_forward<T, ts::Cpu>(c, x, w, bias, pre, y); });
  }
  static void gelu_forward(benchmark::State& state, Size z) {
    Values pre({z.rows(), 4 * z.channels}), y({z.rows(), 4 * z.channels});
    measure(state, [&](C& c) { ts::ops::gelu_forward<T, ts::Cpu>(c, pre, y); });
  }
  static void linear_residual_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), 4 * z.channels}), w({4 * z.channels, z.channels}), bias({z.channels}),
        residual({z.rows(), z.channels}), y({z.rows(), z.channels});
    measure(state, [&](C& c) { ts::ops::linear_residual_forward<T, ts::Cpu>(c, x, w, bias, residual, y); });
  }
  static void linear_backward_input(benchmark::State& state, Size z) {
    Values dy({z.rows(), 4 * z.channels}), w({z.channels, 4 * z.channels}), dx({z.rows(), z.channels});
    measure(state, [&](C& c) { ts::ops::linear_backward_input<T, ts::Cpu>(c, dy, w, dx); });
  }
  static void linear_gelu_backward_input(benchmark::State& state, Size z) {
    Values dy({z.rows(), z.channels}), w({4 * z.channels, z.channels}), pre({z.rows(), 4 * z.channels}),
        dpre({z.rows(), 4 * z.channels});
    measure(state, [&](C& c) { ts::ops::linear_gelu_backward_input<T, ts::Cpu>(c, dy, w, pre, dpre); });
  }
  static void linear_backward_weight(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), dy({z.rows(), 4 * z.channels}), dw({z.channels, 4 * z.channels}),
        dbias({4 * z.channels});
    measure(state, [&](C& c) { ts::ops::linear_backward_weight<T, ts::Cpu>(c, x, dy, dw, dbias); });
  }
  static void head_forward(benchmark::State& state, Size z) {
    Values x({z.rows(), z.channels}), w({z.vocabulary, z.channels}), y({z.rows(), z.vocabulary});
    measure(state, [&](C& c) { ts::ops::linear_transposed_forward<T, ts::Cpu>(c, x, w, y); });
  }
  static void head_backward_input(benchmark::State& state, Size z) {
    Values dy({z.rows(), z.vocabulary}), w({z.vocabulary, z.channels}), dx({z.rows(), z.channels});
    measure(state, [&](C& c) { ts::ops::linear_transposed_backward_input<T, ts::Cpu>(c, dy, w, dx); });
  }
  static void head_backward_weight(benchmark::State& state, Size z) {
    Values dy({z.rows(), z.vocabulary}), x({z.rows(), z.channels});
    Sums dw({z.vocabulary, z.channels});
    measure(state, [&](C& c) { ts::ops::linear_transposed_backward_weight<T, S, ts::Cpu>(c, dy, x, dw); });
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
    Sums mean({z.rows()}), rstd({z.rows()});
    measure(state, [&](C& c) {
      ts::ops::layer_norm_backward<T, ts::Cpu>(c, dy, x, gamma, mean, rstd, residual, dx, dgamma, dbeta);
    });
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
  static void fold(benchmark::State& state, Size z) {
    std::int64_t const n = 12 * z.channels * z.channels;
    Values pieces({4 * n});
    Sums accumulator({n});
    measure(state, [&](C& c) {
      ts::ops::fold<T, ts::Cpu>(c, accumulator, static_cast<T const*>(pieces.values.data()), 4, n, true);
    });
  }
  static void norm_partials(benchmark::State& state, Size z) {
    std::int64_t const n = 12 * z.channels * z.channels;
    Values values({n});
    Array<float> partials({(n + 4095) / 4096});
    measure(state, [&](C& c) { ts::ops::norm_partials<T, float, ts::Cpu>(c, values, partials); });
  }
  static void convert(benchmark::State& state, Size z) {
    std::int64_t const n = 12 * z.channels * z.channels;
    Sums from({n});
    Values to({n});
    measure(state, [&](C& c) { ts::ops::convert<S, T, ts::Cpu>(c, from, to); });
  }

  Size z_;
};

/// The three widths of the CPU's targets; the widest has GPT-2's vocabulary.
[[maybe_unused]] bool const registered = [] {
  for (Size size : {Size{8, 128, 128, 4, 256}, Size{4, 256, 384, 6, 256}, Size{4, 128, 768, 12, 50257}}) {
    Suite<float>(size).add("float");
    if (size.vocabulary == 256) Suite<ts::half>(size).add("half");
    Suite<ts::bfloat16>(size).add("bfloat16");
  }
  return true;
}();

}  // namespace
