// SPDX-License-Identifier: Apache-2.0
// Tests how schedules transfer state between ranks. A bucket is a group of micro-batch gradients that one
// call reduces. Gathers use a separate communication channel.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "tessera/plan/check.hpp"
#include "tessera/plan/program.hpp"

#include "support/step_plans.hpp"

namespace {

using namespace support;

}  // namespace

TEST_CASE("a bucket of micro-batch gradients moves in one entry") {
  constexpr int units = 6;
  for (std::string_view const sharding : shardings)
    for (std::string_view const reduction : {"ordered", "fast"})
      for (std::string_view const offload : {"none", "cpu_optimizer"})
        for (int const prefetch : {0, 1, 2})
          for (int const replicas : {1, 2}) {
            Setting by{.sharding = sharding,
                       .offload = offload,
                       .reduction = reduction,
                       .world = 4,
                       .accumulation = 2,
                       .prefetch = prefetch,
                       .replicas = replicas};
            INFO(std::string(sharding), " ", std::string(reduction), " prefetch ", prefetch);
            // The number of reductions that communicate, with this bucket size.
            auto const calls = [&](std::int64_t bucket) {
              by.bucket = bucket;
              StepPlan const plan = plan_of(by);
              CHECK(mistake_in(plan, plan.train) == "");
              auto const& entries = plan.train.schedule.entries;
              int count = 0;
              std::size_t most = 0;
              for (Entry const& entry : entries) {
                if (entry.verb != Verb::reduce || entry.move <= Move::copy) continue;
                ++count;
                most = std::max(most, entry.items.size());
              }
              CHECK((bucket > 0) == (most > 1));
              return count;
            };
            int const separate = calls(0), together = calls(std::int64_t{1} << 40), some = calls(100000);
            CHECK(separate == units * together);
            CHECK(together < some);
            CHECK(some < separate);
          }
}

TEST_CASE("all micro-batch gradients of a bucket have room at the same time") {
  // Each of four ranks receives the gradients of all four ranks for its own shards, which are a quarter of
  // the model. The received gradients therefore have as many bytes as all gradients of one rank.
  Setting by{.sharding = "zs2", .precision = "bf16", .world = 4, .bucket = std::int64_t{1} << 40};
  StepPlan const plan = plan_of(by);
  std::int64_t received = 0, gradients = 0;
  for (Buffer const& buffer : plan.train.buffers) {
    if (buffer.kind != BufferKind::micro_gradient) continue;
    (buffer.copy.rests() ? gradients : received) += buffer.bytes;
  }
  CHECK(received == gradients);
  Program const& program = plan.train;
  CHECK(program.arena_bytes[0] >= program.persistent_bytes[0] + received + gradients);
  by.bucket = 0;
  StepPlan const separate = plan_of(by);
  CHECK(separate.train.arena_bytes[0] < separate.train.persistent_bytes[0] + received + gradients);
}

TEST_CASE("a second channel is a lane of its own for what is gathered ahead") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const reduction : {"ordered", "fast"})
      for (int const replicas : {1, 2}) {
        Setting by{.sharding = sharding, .reduction = reduction, .world = 4, .accumulation = 2};
        by.replicas = replicas;
        StepPlan const one = plan_of(by);
        by.channels = 2;
        StepPlan const two = plan_of(by);
        INFO(std::string(sharding), " ", std::string(reduction), " replicas ", replicas);
        CHECK(mistake_in(two, two.train) == "");
        CHECK(two.arena_bytes == one.arena_bytes);
        auto const &a = one.train.schedule.entries, &b = two.train.schedule.entries;
        REQUIRE(a.size() == b.size());
        int gathers = 0, waits = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
          bool const gather = a[i].verb == Verb::gather && a[i].move > Move::copy;
          gathers += gather;
          CHECK(b[i].lane == (gather ? Lane::gathering : a[i].lane));
          CHECK((b[i].verb == a[i].verb && b[i].unit == a[i].unit &&
                 b[i].source_buffer() == a[i].source_buffer()));
          for (int const other : b[i].waits)
            waits += gather && b[static_cast<std::size_t>(other)].lane == Lane::communication;
        }
        CHECK((gathers > 0) == (sharding == "zs3"));
        CHECK((hash_of(one.train.schedule) == hash_of(two.train.schedule)) == (gathers == 0));
        // A gather may wait for a reduction only if it reuses the memory of this reduction.
        CHECK(2 * waits <= gathers);
      }
}
