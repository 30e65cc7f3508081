// SPDX-License-Identifier: Apache-2.0
// Tests that training that is saved to a checkpoint and resumed gives the same bits as training without
// interruption. The resumed part has the same sharding, number of ranks and offload as the saved part, or
// others.
#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "support/checkpoints.hpp"
#include "support/file_support.hpp"

namespace {

using namespace support;
using file_support::TemporaryFolder;

constexpr std::int64_t broken_at = 10, all_steps = 14;

/// Trains and saves with the policies `before`, resumes with the policies `after_it`, and compares the
/// results with `whole`, the results of training without interruption.
void check_resumed(Trained const& whole, Setting const& before, Setting const& after_it) {
  INFO(text_of(before), " -> ", text_of(after_it));
  TemporaryFolder const folder;
  (void)train_part(before, 0, broken_at, {}, folder / "saved");
  Trained const rest = train_part(after_it, broken_at, all_steps, folder / "saved", folder / "end");
  Trained const want = after(whole, broken_at);
  CHECK(rest.losses == want.losses);
  CHECK(rest.norms == want.norms);
  CHECK(rest.scales == want.scales);
  CHECK(rest.skipped == want.skipped);
  CHECK(rest.scalars == want.scalars);
  CHECK((rest.state == want.state));
}

std::vector<Setting> all_settings(std::string_view precision) {
  std::vector<Setting> all;
  for (std::string_view const sharding : {"dp", "zs0", "zs1", "zs2", "zs3"})
    for (Spread const split : {Spread{1, 6}, Spread{2, 3}, Spread{3, 2}, Spread{6, 1}})
      for (std::string_view const offload : {"none", "cpu_optimizer", "cpu_full", "nvme"})
        all.push_back({.sharding = sharding,
                       .offload = offload,
                       .precision = precision,
                       .split = split,
                       .async = all.size() % 3 == 1});
  return all;
}

Trained unbroken(std::string_view precision) {
  TemporaryFolder const folder;
  return train_part({.precision = precision}, 0, all_steps, {}, folder / "end");
}

}  // namespace

TEST_CASE("a resumed run equals the unbroken one under other shardings worlds and offloads") {
  for (std::string_view const precision : {"fp32", "fp16", "bf16"}) {
    Trained const whole = unbroken(precision);
    if (precision == "fp16") CHECK(whole.skipped.front());
    std::vector<Setting> const all = all_settings(precision);
    // An element of `all` is a Setting: a combination of sharding, offload and number of ranks. The loop
    // tests some pairs of settings, one before the save and one after it. Each value of each member occurs
    // before the save in some pair, and after it in another. The pairs also contain nearly all combinations
    // of two values.
    for (std::size_t at = precision == "bf16" ? 3 : 0; at < all.size(); at += 11)
      check_resumed(whole, all[at], all[(at * 37 + 23) % all.size()]);
  }
}

TEST_CASE("checkpoint matrix: every setting before and after" * doctest::skip()) {
  for (std::string_view const precision : {"fp32", "fp16", "bf16"}) {
    Trained const whole = unbroken(precision);
    std::vector<Setting> const all = all_settings(precision);
    for (std::size_t at = 0; at < all.size(); ++at) {
      check_resumed(whole, all[at], all[at]);
      check_resumed(whole, all[at], all[(at * 37 + 23) % all.size()]);
    }
  }
}
