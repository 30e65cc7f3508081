// SPDX-License-Identifier: Apache-2.0
// Tests causal attention against its definition in double and against numerical derivatives.
#include "tessera/ops/attention.hpp"

#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "operators/attention.hpp"

using namespace tessera;
using reference::Array;
using reference::same_bits;
using test::attention;
using test::AttentionInput;
using test::AttentionOutput;
using test::AttentionSize;
using test::Machine;
using test::OnPlace;
using test::Place;

namespace {

/// Returns one machine (context) for each number format in which a context can compute the matrix products of
/// attention, if the inputs have type T.
template <class T>
std::deque<Machine> attention_machines() {
  std::deque<Machine> machines(1);
#ifdef __CUDACC__
  if (std::is_same_v<T, float>)
    for (DType const product : {DType::tf32, DType::bf16x6, DType::bf16x3})
      machines.emplace_back(1 << 16, Math{.product = product});
#endif
  return machines;
}

/// Returns the allowed error: the tolerance of T, plus the effect of rounded factors on the scores, the
/// probabilities and the outputs. tf32 rounds both factors of a product by up to 2^-11 each. bf16x6 leaves
/// out products of pieces that are smaller than the rounding of fp32 itself.
template <class T>
double attention_limit(DType product, bool self_attention) {
  if (product == DType::bf16x6 && self_attention) return 1e-6;
  double const of_term = product == DType::tf32 ? 2 * 0x1p-11 : product == DType::bf16x3 ? 3 * 0x1p-16 : 0.0;
  return reference::tolerance<T>() + 2 * of_term;
}

/// Compares the results of attention with its definition, for many memory layouts. The values of the inputs
/// are in (-range, range). The error of a result is |got - want| / (floor + |want|).
template <class T>
void check_attention(std::deque<Machine>& machines, AttentionSize const& size, double range = 1.5,
                     double floor = 1.0) {
  CAPTURE(text(size));
  AttentionInput<T> const in(size, range);
  test::AttentionDefinition const want = test::attention_definition(in);
  for (Machine& machine : machines) {
    DType const product = machine.context.math().product;
    CAPTURE(name_of(product));
    double const limit = attention_limit<T>(product, size.self_attention());
    AttentionOutput<T> const got = attention(machine.context, in, {.packed = size.self_attention()});
    test::check_near(got, want, limit, floor);
    CHECK(got == attention(machine.context, in,
                           {.packed = size.self_attention(), .sums = test::on_gpu && size.self_attention()}));
    // A GPU that computes attention without tensor cores uses different kernels for packed and for separate
    // operands. The results of the two kernels may differ in bits.
    bool const one_kernel =
        !test::on_gpu || !size.self_attention() ||
        (sizeof(T) < 8 && size.head == 64 && machine.context.math().attention != AttentionKind::reference);
    for (std::int64_t const gap : {0, 8}) {
      AttentionOutput<T> const other = attention(machine.context, in, {.gap = gap});
      if (one_kernel)
        CHECK(other == got);
      else
        test::check_near(other, want, limit, floor);
    }
    // If operands are not aligned, a GPU does not use tensor cores. The number format of products then has no
    // effect, so the limit is the tolerance of T.
    AttentionOutput<T> const unaligned = attention(machine.context, in, {.gap = 5, .offset = 1});
    if (test::on_gpu)
      test::check_near(unaligned, want, reference::tolerance<T>(), floor);
    else
      CHECK(unaligned == got);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("attention matches its definition", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  std::deque<Machine> machines = attention_machines<T>();
  for (AttentionSize const& size :
       {AttentionSize{1, 1, 1, 1}, AttentionSize{2, 7, 2, 8}, AttentionSize{1, 64, 2, 17},
        AttentionSize{2, 65, 1, 33}, AttentionSize{1, 128, 3, 64}, AttentionSize{1, 129, 1, 20},
        AttentionSize{1, 300, 2, 5}})
    check_attention<T>(machines, size);
}

TEST_CASE_TEMPLATE("attention of wide heads and of long sequences matches its definition", T,
                   TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  std::deque<Machine> machines(1);
  check_attention<T>(machines, {1, 1100, 1, 8});
  check_attention<T>(machines, {1, 600, 2, 16});
  check_attention<T>(machines, {1, 70, 2, 300});
  for (std::int64_t const sequence : {1, 7, 64, 65, 129, 300})
    check_attention<T>(machines, {1, sequence, 2, 256});
  // On the CPU, attention uses smaller tiles for wide heads. In this case with a 16-bit type, the sums of the
  // query gradients do not fit into the scratch memory.
  check_attention<T>(machines, {1, 140, 1, 1900});
}

TEST_CASE_TEMPLATE("attention with scores up to 50 matches its definition", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  std::deque<Machine> machines(1);
  for (std::int64_t const head : {20, 32, 64, 128})
    check_attention<T>(machines, {2, 200, 3, head}, 7.0, 50.0);
}

TEST_CASE_TEMPLATE("heads of queries may share heads of keys", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  std::deque<Machine> machines = attention_machines<T>();
  check_attention<T>(machines, {2, 7, 4, 8, 2});
  check_attention<T>(machines, {1, 65, 3, 33, 3});
  check_attention<T>(machines, {2, 130, 8, 20, 4});
  // On the CPU with a 16-bit type, the sums of the query gradients fit into the scratch memory in the first
  // of these two cases, but not in the second.
  check_attention<T>(machines, {1, 300, 6, 80, 2});
  check_attention<T>(machines, {1, 140, 4, 600, 4});
}

TEST_CASE_TEMPLATE("queries may be a span of the positions", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  std::deque<Machine> machines = attention_machines<T>();
  for (std::int64_t const head : {8, 16, 20, 32, 64, 128}) {
    check_attention<T>(machines, {2, 5, 2, head, 1, 3, 8});
    check_attention<T>(machines, {1, 70, 4, head, 2, 61, 131});
    check_attention<T>(machines,
                       {1, 66, 2, head, 1, 1001, 1070});  // the last keys are masked for every query
    if (test::on_gpu) check_attention<T>(machines, {1, 200, 2, head, 1, 999, 1210});
    check_attention<T>(machines, {2, 40, 4, head, 4, 0, 300});  // whole blocks of keys are masked
    check_attention<T>(machines, {2, 40, 4, head, 2, 20, 128});
  }
}

#ifdef __CUDACC__
TEST_CASE_TEMPLATE("attention matches its definition for every kernel of a GPU", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  std::deque<Machine> machines = attention_machines<T>();
  std::int64_t number = 0;
  for (std::int64_t const sequence : {1, 7, 64, 65, 128, 129, 300})
    for (std::int64_t const head : {1, 4, 8, 20, 32, 40, 64, 80, 96, 104, 128}) {
      check_attention<T>(machines, {number % 3 + 1, sequence, static_cast<int>(number % 5 + 1), head});
      ++number;
    }
  for (AttentionSize const& size :
       {AttentionSize{2, 200, 2, 18}, AttentionSize{1, 130, 2, 136}, AttentionSize{1, 1100, 2, 64},
        AttentionSize{2, 128, 3, 64}, AttentionSize{3, 127, 2, 36}, AttentionSize{1, 1025, 1, 24}})
    check_attention<T>(machines, size);
}

TEST_CASE_TEMPLATE("heads of queries share heads of keys in every kernel of a GPU", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  std::deque<Machine> machines = attention_machines<T>();
  for (std::int64_t const head : {8, 20, 32, 64, 80, 128, 256})
    for (std::int64_t const sequence : {7, 65, 300}) check_attention<T>(machines, {2, sequence, 6, head, 3});
  check_attention<T>(machines, {1, 1025, 8, 64, 8});
  check_attention<T>(machines, {3, 129, 8, 128, 2});
}

TEST_CASE_TEMPLATE("tensor cores compute attention in 16 bits unless the context asks for the reference", T,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_PLACE();
  std::deque<Machine> machines;
  machines.emplace_back(1 << 16, Math{.attention = AttentionKind::reference});
  machines.emplace_back(1 << 16, Math{});
  for (AttentionSize const& size :
       {AttentionSize{2, 130, 3, 64}, AttentionSize{2, 1024, 3, 64}, AttentionSize{1, 1000, 2, 128},
        AttentionSize{2, 600, 3, 80}, AttentionSize{1, 500, 2, 96}, AttentionSize{3, 777, 4, 32}}) {
    check_attention<T>(machines, size, 2.0);
    AttentionInput<T> const in(size, 2.0);
    CHECK_FALSE(same_bits(attention(machines[0].context, in).logsumexp.values,
                          attention(machines[1].context, in).logsumexp.values));
  }
  CHECK(machines[0].context.attention_ran() == AttentionKind::reference);
  CHECK(machines[1].context.attention_ran() == AttentionKind::fused);
}

TEST_CASE("tensor cores compute attention in fp32 for heads that suit them") {
  TESSERA_NEEDS_PLACE();
  Machine plain(1 << 16, {.product = DType::bf16x3, .attention = AttentionKind::reference});
  std::deque<Machine> machines = attention_machines<float>();
  for (std::int64_t const sequence : {64, 65, 128, 129, 300})
    for (std::int64_t const head : {4, 8, 18, 20, 32, 36, 40, 64, 80, 96, 104, 128, 136}) {
      AttentionInput<float> const in({2, sequence, 3, head});
      AttentionOutput<float> const by_tiles = attention(plain.context, in, {.packed = true});
      for (Machine& machine : machines) {
        CAPTURE(text(in.size));
        CAPTURE(name_of(machine.context.math().product));
        CHECK((attention(machine.context, in, {.packed = true}) == by_tiles) ==
              (head % 4 != 0 || head > 128));
      }
    }
}
#endif

TEST_CASE("attention gradients match central differences") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  for (AttentionSize const& size : {AttentionSize{1, 6, 2, 3}, AttentionSize{1, 5, 4, 3, 2}}) {
    AttentionInput<double> in(size);
    AttentionOutput<double> const got = attention(machine.context, in);
    auto const loss = [&] { return reference::weighted(in.dout, attention(machine.context, in).out); };
    CHECK(reference::error(got.dq, reference::central_differences(in.q, loss)) < 1e-8);
    CHECK(reference::error(got.dk, reference::central_differences(in.k, loss)) < 1e-8);
    CHECK(reference::error(got.dv, reference::central_differences(in.v, loss)) < 1e-8);
  }
}

TEST_CASE_TEMPLATE("attention has the same bits every time", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  for (AttentionSize const& size : {AttentionSize{2, 131, 3, 22}, AttentionSize{2, 131, 3, 22, 3}}) {
    AttentionInput<T> const in(size);
    CHECK(test::same_bits_every_time([&](Machine& machine) { return attention(machine.context, in); }));
  }
}

TEST_CASE_TEMPLATE("attention does not look ahead", T, TESSERA_DTYPES) {
  TESSERA_NEEDS_PLACE();
  std::deque<Machine> machines = attention_machines<T>();
  for (Machine& machine : machines)
    for (std::int64_t const head : {8, 64}) {
      CAPTURE(name_of(machine.context.math().product));
      CAPTURE(head);
      AttentionInput<T> in({1, 200, 2, head}, 1.0);
      std::int64_t const c = in.size.channels(), changed = 66 * c, end = 200 * c;
      auto const change = [&](std::int64_t to, auto const& function) {
        for (Array<T>* const values : {&in.q, &in.k, &in.v})
          for (std::int64_t i = changed; i < to; ++i)
            values->at(i) = T(static_cast<float>(function((*values)[i])));
        return attention(machine.context, in).out;
      };
      Array<T> const first = attention(machine.context, in).out,
                     second = change(end, [](double value) { return 7.0 - value; });
      std::int64_t wrong = 0, same = 0;
      for (std::int64_t i = 0; i < changed; ++i) wrong += second[i] != first[i];
      for (std::int64_t i = changed; i < end; ++i) same += second[i] == first[i];
      CHECK(wrong == 0);
      CHECK(same <= (test::on_gpu || sizeof(T) == 2 ? end / 20 : 0));
      // Position 66 is changed to NaN, which must reach every later position. Within its tile of 64 rows the
      // NaN may also reach earlier rows. It must not reach the tile before.
      Array<T> const third =
          change(changed + c, [](double) { return std::numeric_limits<double>::quiet_NaN(); });
      for (std::int64_t i = 0; i < end; ++i)
        wrong += i < 64 * c ? third[i] != first[i] : i >= changed && !std::isnan(third[i]);
      CHECK(wrong == 0);
    }
}

TEST_CASE("attention survives large scores") {
  TESSERA_NEEDS_PLACE();
  Machine machine;
  AttentionInput<float> const in({1, 70, 1, 8}, 1e4);
  int wrong = 0;
  for (float const value : attention(machine.context, in).out.values) wrong += !std::isfinite(value);
  CHECK(wrong == 0);
}

TEST_CASE("attention refuses keys of another width and queries after the last key") {
  using Columns = ops::Columns<float, Place>;
  TESSERA_NEEDS_PLACE();
  Machine machine;
  OnPlace<float> q(Array<float>({2, 7, 24})), kv(Array<float>({2, 7, 48})), out(Array<float>({2, 7, 24})),
      logsumexp(Array<float>({2, 3, 7}));
  auto const forward = [&](std::int64_t width, std::int64_t first) {
    ops::HeadColumns<float, Place> const x(q.view(), Columns(kv.view(), 0, width),
                                           Columns(kv.view(), width, width));
    ops::attention_forward(machine.context, x, 3, out.view(), logsumexp.view(), first);
  };
  CHECK_THROWS_WITH_AS(
      forward(16, 0),
      "attention_forward: keys have 16 channels, but queries have 3 heads of 8 channels; key heads must have "
      "the same width, and their number must divide the number of query heads",
      Error);
  CHECK_THROWS_AS(forward(24, 1), Error);
}

TEST_CASE("attention runs what the context asks for and says what ran") {
  TESSERA_NEEDS_PLACE();
  Machine machine(1);
  AttentionInput<float> const in({1, 9, 1, 8});
  auto const ran = [&](AttentionKind requested) {
    Context<Place> context(1, std::span(machine.workspace.data(), Context<Place>::workspace_bytes(1, 1)),
                           nullptr, {.attention = requested});
    CHECK(context.attention_ran() == AttentionKind::automatic);
    attention(context, in);
    return context.attention_ran();
  };
  CHECK(ran(AttentionKind::automatic) == AttentionKind::fused);
  CHECK(ran(AttentionKind::fused) == AttentionKind::fused);
  CHECK(ran(AttentionKind::reference) == AttentionKind::reference);
  if (!test::on_gpu || !cuda::has_cudnn_attention())
    CHECK_THROWS_WITH_AS(
        ran(AttentionKind::cudnn),
        "attention cudnn needs a GPU and a program that links tessera::cudnn; use auto, fused or "
        "reference",
        Error);
}
