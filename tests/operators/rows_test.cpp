// SPDX-License-Identifier: Apache-2.0
// Tests the operations that process many arrays in one call: AdamW updates, and norms of gradients. Such a
// call gets a table with one row for each array. Its results must have the same bits as the results of one
// call for each array.
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/norm.hpp"
#include "tessera/optim/adamw.hpp"

#include "operators/place.hpp"

using namespace tessera;
using reference::Array;
using reference::poison;
using test::Machine;
using test::OnPlace;
using test::Place;

namespace {

enum class RowsRun { one_by_one, rows, rows_in_a_graph };

template <class S, class W>
struct RowsOutput {
  Array<S> master, first, second;
  Array<W> weights;
  Array<float> partials;
  BadElement bad;

  bool operator==(RowsOutput const& b) const {
    return master == b.master && first == b.first && second == b.second && weights == b.weights &&
           partials == b.partials && bad.unit == b.bad.unit && bad.element == b.bad.element;
  }
};

/// Updates `count` arrays of several lengths and computes the norms of their gradients. `run` says whether
/// one call handles all arrays. G is the number format of gradients, and S is the format of the optimizer
/// state. T is the format of weights that are separate from the master weights, or void if only master
/// weights exist. Every fifth array is not aligned, and every ninth is empty. The gradients of arrays 3 and
/// 16 end with infinity.
template <class G, class S, class T, class W = std::conditional_t<std::is_void_v<T>, S, T>>
RowsOutput<S, W> update_rows(RowsRun run, int count, bool skipped) {
  constexpr std::int64_t lengths[] = {1, 7, 4096, 4097, 33000, 65536, 12289};
  Array<ops::UpdateRow> updates({count}, ops::UpdateRow{});
  std::vector<std::int64_t> begins;
  std::int64_t all = 0, used = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t const n = i % 9 == 8 ? 0 : lengths[i % 7];
    updates.at(i).elements = n;
    begins.push_back(all + (i % 5 == 4));
    used += n;
    all += n / 16 * 16 + 32;
  }
  auto update_table = ops::number_rows<ops::UpdateRow>(updates.values, nullptr);
  Array<G> gradients = reference::random<G>({all}, 1, 0.5);
  for (std::int64_t const i : {3, 16})
    if (i < count)
      gradients.at(begins[static_cast<std::size_t>(i)] + updates.at(i).elements - 1) =
          G(std::numeric_limits<float>::infinity());
  AdamWOptions const options{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  Array<AdamWFactors<S>> both({2}, adamw_factors<S>(options, 3e-3, 0.9, 0.95, 0.3, true));
  both.at(1) = adamw_factors<S>(options, 3e-3, 0.9, 0.95, 0.3, false);

  // This call has its own machine, because a CUDA graph keeps the addresses of the buffers of its call.
  Machine machine;
  OnPlace<AdamWFactors<S>> factors(both);
  OnPlace<std::int64_t> skip(Array<std::int64_t>({1}, skipped));
  OnPlace<BadElement> bad(Array<BadElement>({1}, BadElement{}));
  OnPlace<G> gradient(gradients);
  OnPlace<S> master(reference::random<S>({all}, 2)), first(reference::random<S>({all}, 3, 1e-3)),
      second(Array<S>({all}, S(1e-4f)));
  OnPlace<W> weights(poison<W>({all}));
  OnPlace<float> partials(poison<float>({update_table.blocks}));
  Array<ops::NormRow> norms({count}, ops::NormRow{});
  for (std::int64_t i = 0; i < count; ++i) {
    ops::UpdateRow& row = updates.at(i);
    std::int64_t const begin = begins[static_cast<std::size_t>(i)];
    row.gradient = gradient.view().data() + begin;
    row.master = master.view().data() + begin;
    row.states[0] = first.view().data() + begin;
    row.states[1] = second.view().data() + begin;
    if (!std::is_void_v<T>) row.weights = weights.view().data() + begin;
    row.factors = factors.view().data() + i % 2;
    norms.at(i) = {
        row.gradient, partials.view().data() + row.block, row.elements, 0, {bad.view().data(), i, 1000 * i}};
  }
  auto norm_table = ops::number_rows<ops::NormRow>(norms.values, nullptr);
  OnPlace<ops::UpdateRow> placed_updates(updates);
  OnPlace<ops::NormRow> placed_norms(norms);
  update_table.first = placed_updates.cview().data();
  norm_table.first = placed_norms.cview().data();
  CHECK(update_table.elements == used);
  CHECK(norm_table.elements == used);
  CHECK(norm_table.blocks == update_table.blocks);

  if (run == RowsRun::one_by_one) {
    for (ops::UpdateRow const& row : updates.values)
      ops::adamw(machine.context, row.elements, static_cast<G const*>(row.gradient),
                 static_cast<S*>(row.master), static_cast<S*>(row.states[0]), static_cast<S*>(row.states[1]),
                 static_cast<W*>(row.weights), static_cast<AdamWFactors<S> const*>(row.factors),
                 skip.cview().data());
    for (ops::NormRow const& row : norms.values)
      ops::norm_partials(
          machine.context, Tensor<G const, Place>{static_cast<G const*>(row.values), {row.elements}},
          Tensor<float, Place>{static_cast<float*>(row.partials), {(row.elements + 4095) / 4096}}, row.note);
  } else {
    machine.context.replay(0, run == RowsRun::rows_in_a_graph, [&] {
      machine.context.begin(0, Lane::compute, {});
      ops::adamw<G, S, T>(machine.context, update_table, skip.cview().data());
      ops::norm_partials<G, float>(machine.context, norm_table);
      machine.context.end(0, false);
    });
  }
  machine.finish();
  return {master.back(), first.back(), second.back(), weights.back(), partials.back(), bad.back().values[0]};
}

template <class G, class S, class T>
void check_rows(int count, bool skipped) {
  CAPTURE(count);
  CAPTURE(skipped);
  auto const want = update_rows<G, S, T>(RowsRun::one_by_one, count, skipped);
  CHECK(want == update_rows<G, S, T>(RowsRun::rows, count, skipped));
  CHECK(want == update_rows<G, S, T>(RowsRun::rows_in_a_graph, count, skipped));
  // If no separate weights exist, the buffer for separate weights must keep its NaN.
  CHECK(std::isnan(want.weights[0]) == std::is_void_v<T>);
  CHECK(want.bad.unit == (count > 16 ? 16 : -1));
  CHECK(want.bad.element == (count > 16 ? 1000 * 16 + 4096 - 1 : -1));
}

}  // namespace

TEST_CASE("updates and norms of rows have the bits of calls one by one") {
  TESSERA_NEEDS_PLACE();
  int const many = test::on_gpu ? 120 : 20;
  for (bool const skipped : {false, true}) {
    check_rows<bfloat16, float, bfloat16>(many, skipped);
    check_rows<bfloat16, float, void>(many, skipped);
    check_rows<tessera::half, float, void>(many, skipped);
    check_rows<float, float, void>(many, skipped);
    check_rows<double, double, void>(test::on_gpu ? 30 : 20, skipped);
    check_rows<bfloat16, float, bfloat16>(1, skipped);
  }
  // 300 arrays are more than one GPU thread block handles.
  if (test::on_gpu) check_rows<float, float, bfloat16>(300, false);
}

TEST_CASE("rows are numbered by the blocks of the rows before them, and no rows are no work") {
  TESSERA_NEEDS_PLACE();
  std::vector<ops::UpdateRow> rows;
  for (std::int64_t const n : {0, 1, 13, 4096, 0, 4099, 12289, 0}) {
    rows.emplace_back();
    rows.back().elements = n;
  }
  auto const numbered = ops::number_rows<ops::UpdateRow>(rows, rows.data());
  CHECK(numbered.first == rows.data());
  CHECK(numbered.count == 8);
  CHECK(numbered.elements == 1 + 13 + 4096 + 4099 + 12289);
  CHECK(numbered.blocks == 1 + 1 + 1 + 2 + 4);
  CHECK(rows[5].block == 3);
  CHECK(rows[7].block == 9);
  Machine machine;
  ops::adamw<float, float, void>(machine.context, ops::number_rows<ops::UpdateRow>({}, nullptr), nullptr);
  ops::norm_partials<float, float>(machine.context, ops::Rows<ops::NormRow>());
  machine.finish();
}
