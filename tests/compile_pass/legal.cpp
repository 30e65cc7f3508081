// SPDX-License-Identifier: Apache-2.0
// Tests which recipes (combinations of policies) compile, for all combinations of the policies on which the
// rules depend. The compiler must refuse a recipe exactly if the manual forbids it. Every legal recipe must
// give a trainer. The test unit/policy/policy_test.cpp covers the other policies at run time.
#include "support.hpp"

namespace ts = tessera;

namespace {

/// Whether the manual allows a combination. This function repeats the rules of the manual and does not use
/// the library's code for them.
template <class Device, class Type, class Scale, class Reduction, class Capture, class Attention>
constexpr bool manual_allows() {
  using std::is_same_v;
  constexpr bool gpu = is_same_v<Device, ts::Cuda>;
  constexpr bool half = is_same_v<Type, ts::half>;
  constexpr bool scaled = !is_same_v<Scale, ts::None>;
  constexpr bool cudnn = is_same_v<Attention, ts::Cudnn>;
  constexpr bool cores =
      is_same_v<Type, ts::tf32> || is_same_v<Type, ts::bf16x6> || is_same_v<Type, ts::bf16x3>;
  if (!gpu && (is_same_v<Capture, ts::Graph> || cores || cudnn)) return false;
  if (half != scaled) return false;
  if (cudnn && (is_same_v<Reduction, ts::Ordered> || !(half || is_same_v<Type, ts::bfloat16>))) return false;
  return !(gpu && is_same_v<Type, double> && !is_same_v<Attention, ts::Reference>);
}

struct Count {
  int all = 0;
  int legal = 0;
  int wrong = 0;
};

template <class Device, class Type, class Scale, class Reduction, class Capture, class Attention>
constexpr void judge(Count& count) {
  using Recipe =
      typename ts::Resolved<ts::Attention<Attention>, ts::Precision<Type>, ts::LossScale<Scale>,
                            ts::Capture<Capture>, ts::On<Device>, ts::Reduction<Reduction>>::config;
  constexpr bool allowed = manual_allows<Device, Type, Scale, Reduction, Capture, Attention>();
  ++count.all;
  count.legal += allowed;
  count.wrong += ts::is_legal<Recipe> != allowed;
  if constexpr (allowed) count.wrong += sizeof(ts::BasicTrainer<ts::Gpt2, Recipe>) != sizeof(float);
}

template <class... Ts>
struct types {};

template <class Device, class Type, class Scale, class Reduction, class Capture, class... Attentions>
constexpr void each_attention(Count& count, types<Attentions...>) {
  (judge<Device, Type, Scale, Reduction, Capture, Attentions>(count), ...);
}

template <class Device, class Type, class... Scales>
constexpr void each_scale(Count& count, types<Scales...>) {
  types<ts::Auto, ts::Reference, ts::Fused, ts::Cudnn> attentions;
  (each_attention<Device, Type, Scales, ts::Fast, ts::Eager>(count, attentions), ...);
  (each_attention<Device, Type, Scales, ts::Fast, ts::Graph>(count, attentions), ...);
  (each_attention<Device, Type, Scales, ts::Ordered, ts::Eager>(count, attentions), ...);
  (each_attention<Device, Type, Scales, ts::Ordered, ts::Graph>(count, attentions), ...);
}

template <class Device, class... Types>
constexpr void each_type(Count& count, types<Types...>) {
  (each_scale<Device, Types>(count, types<ts::None, ts::Static, ts::Dynamic>{}), ...);
}

constexpr Count sweep() {
  Count count;
  types<float, ts::tf32, ts::bf16x6, ts::bf16x3, ts::half, ts::bfloat16, double> all_types;
  each_type<ts::Cpu>(count, all_types);
  each_type<ts::Cuda>(count, all_types);
  return count;
}

constexpr Count swept = sweep();
static_assert(swept.all == 2 * 7 * 3 * 2 * 2 * 4);
static_assert(swept.wrong == 0);
// The legal combinations on the CPU, which has only eager capture: 5 pairs of number format and loss scale,
// times 2 reductions and 3 attentions. The pairs are fp32, bf16 and fp64 without a loss scale, and fp16 with
// each of two loss scales. CUDA has 2 captures. For each capture, fp32, tf32, bf16x6 and bf16x3 have 2
// reductions and 3 attentions. The three pairs of a 16-bit format (fp16 with each of two loss scales, and
// bf16) have 3 attentions if the reduction is ordered and 4 if it is fast. fp64 has 2 reductions and 1
// attention.
static_assert(swept.legal == 5 * 2 * 3 + 2 * (4 * 2 * 3 + 3 * (3 + 4) + 2));

}  // namespace
