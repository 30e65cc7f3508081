// SPDX-License-Identifier: Apache-2.0
// Tests that the schedule checker finds an entry (one operation of a schedule) that reads a wrong value. Each
// test moves, removes or changes an entry. Then the waits between the entries are computed for the changed
// list, so no wait is missing.
#include "tessera/plan/check.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/program.hpp"

#include "support/runs.hpp"
#include "support/waits.hpp"

namespace {

using namespace support;
using Entries = std::vector<Entry>;

StepPlan plan_of(std::string_view sharding, std::string_view precision, int accumulation) {
  StepShape shape;
  shape.batch = 2;
  shape.sequence = 13;
  shape.accumulation = accumulation;
  shape.world = 2;
  shape.prefetch = 1;
  shape.workspace_bytes = 1000;
  Gpt2Options deep = tiny;
  deep.layers = 4;
  return make_plan(Gpt2(deep).units({shape.batch, shape.sequence}),
                   recipe(sharding, precision, "none", "none", "fast"), shape);
}

template <class Change>
std::string mistake_after(StepPlan plan, Change const& change) {
  Schedule& schedule = plan.train.schedule;
  for (Entry& entry : schedule.entries) {
    entry.waits.clear();
    entry.signals = false;
  }
  change(schedule.entries);
  connect(schedule, tessera::detail::sharing_of(plan.train));
  return mistake_in(plan, plan.train);
}

Entries::iterator where(Entries& entries, Verb verb, int unit, int micro) {
  return std::find_if(entries.begin(), entries.end(), [&](Entry const& entry) {
    return entry.verb == verb && entry.unit == unit && entry.micro_batch == micro;
  });
}

/// Moves `entry` to an earlier position in the list of entries, directly before the entry `to`.
void advance(Entries::iterator entry, Entries::iterator to) { std::rotate(to, entry, std::next(entry)); }

}  // namespace

TEST_CASE("values that are not made yet are found") {
  StepPlan const plan = plan_of("dp", "fp32", 1);
  CHECK(mistake_after(plan, [](Entries&) {}) == "");
  // Two units add to the gradient of the tied weight: first the output head, then the embedding. If the
  // reduction over the ranks runs between them, it misses the gradient of the embedding.
  CHECK(mistake_after(plan,
                      [](Entries& entries) {
                        advance(where(entries, Verb::reduce, 0, 0),
                                where(entries, Verb::backward_input, 0, 0));
                      })
            .find("(reduce embedding micro 0) reads micro-batch gradient of embedding, last written by") !=
        std::string::npos);
  // In this fault, the gradient of h.1 (unit 2) is not reduced over the ranks.
  CHECK(
      mistake_after(plan, [](Entries& entries) {
        for (Verb const verb : {Verb::reduce, Verb::accumulate}) entries.erase(where(entries, verb, 2, 0));
      }).find("(norm embedding+5) reads micro-batch gradient of h.1, last written by") != std::string::npos);
  // In each of these faults, one entry does not write its results, as if it had not run. Without `decide`,
  // updates would use the clip factor of the previous step. Without its update, h.1 (unit 2) would send old
  // weights to the other ranks.
  for (auto const& [verb, unit, words] :
       {std::tuple(Verb::decide, -1, "(update embedding) reads scalars, which was never written"),
        std::tuple(Verb::update, 2, "(write_back h.1) reads weights of h.1, which was never written")}) {
    std::string const mistake = mistake_after(plan, [verb = verb, unit = unit](Entries& entries) {
      erase_writes(*where(entries, verb, unit, -1));
    });
    INFO(mistake);
    CHECK(mistake.find(words) != std::string::npos);
  }
}

TEST_CASE("sums that lack a micro-batch or have one twice are found") {
  StepPlan const plan = plan_of("zs0", "bf16", 3);
  CHECK(plan.train.schedule.times == 2);
  CHECK(mistake_after(plan, [](Entries&) {}) == "");
  CHECK(
      mistake_after(plan, [](Entries& entries) {
        entries.erase(where(entries, Verb::accumulate, 2, 2));
      }).find("(reduce h.1 micro 2) reads gradient of h.1 after 2 of 3 micro-batches") != std::string::npos);
  CHECK(mistake_after(plan, [](Entries& entries) {
          auto const sum = where(entries, Verb::accumulate, 2, 2);
          Entry const copy = *sum;
          entries.insert(sum, copy);
        }).find("(accumulate h.1 micro 2) comes after 3 micro-batches of its sum") != std::string::npos);
  CHECK(
      mistake_after(plan, [](Entries& entries) {
        advance(where(entries, Verb::reduce, 2, 2), where(entries, Verb::accumulate, 2, 2));
      }).find("(reduce h.1 micro 2) reads gradient of h.1 after 2 of 3 micro-batches") != std::string::npos);
}
