// SPDX-License-Identifier: Apache-2.0
// Tests Loader, which makes the training batches from tokens. Covers batches whose content was computed by
// hand, epochs, the share of each rank, and every error with its text.
#include "tessera/data/batch.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/data/tokens.hpp"

#include "support/file_support.hpp"

namespace ts = tessera;
using file_support::bytes_of;
using file_support::TemporaryFolder;
using file_support::write;

namespace {

using Tokens = std::vector<std::int32_t>;

ts::TokenSource counting(std::uint32_t tokens) {
  std::vector<std::uint32_t> values(tokens);
  std::iota(values.begin(), values.end(), 0u);
  return ts::TokenSource::from_memory(std::move(values), {.vocabulary = 1 << 30});
}

}  // namespace

TEST_CASE("a batch by hand") {
  auto const source = counting(13);  // with sequences of 3 tokens, the 13 tokens make 4 samples
  ts::Loader loader(source, {.batch = 1, .sequence = 3, .accumulation = 2, .order = ts::Order::sequential});
  CHECK(loader.samples() == 4);
  CHECK(loader.global_batch() == 2);
  CHECK(loader.steps_per_epoch() == 2);
  ts::Batch const& batch = loader.load(1);
  CHECK(batch.tokens == Tokens{6, 7, 8, 9, 10, 11});
  CHECK(batch.targets == Tokens{7, 8, 9, 10, 11, 12});
  CHECK(batch.first_sample == 2);
  CHECK(batch.step == 1);
  CHECK(batch.accumulation == 2);
  CHECK(batch.batch == 1);
  CHECK(batch.sequence == 3);
  CHECK(batch.elements() == 6);
  CHECK(batch.valid_tokens() == 6);
  CHECK(Tokens(batch.micro_tokens(1).begin(), batch.micro_tokens(1).end()) == Tokens{9, 10, 11});
  CHECK(Tokens(batch.micro_targets(0).begin(), batch.micro_targets(0).end()) == Tokens{7, 8, 9});
  CHECK(loader.load(2).tokens == Tokens{0, 1, 2, 3, 4, 5});  // step 2 is the first step of the next epoch
}

TEST_CASE("a loader is checked without its memory") {
  auto const source = counting(13);
  // One batch with these options would need 12 GiB. check() must not allocate it.
  ts::LoaderOptions const huge{.batch = 1 << 14, .sequence = 12, .accumulation = 8000};
  ts::Loader::check(source, huge);
  CHECK_ERROR(data, ts::Loader::check(source, {.batch = 1, .sequence = 13}), "too little data");
}

TEST_CASE("a masked target does not count") {
  ts::Batch const batch{.batch = 1, .sequence = 4, .tokens = {1, 2, 3, 4}, .targets = {2, -1, -100, 0}};
  CHECK(batch.elements() == 4);
  CHECK(batch.valid_tokens() == 2);
}

TEST_CASE("ranks and accumulation share one global batch") {
  auto const source = counting(1000);
  for (auto const order : {ts::Order::shuffled, ts::Order::sequential}) {
    ts::Loader whole(source, {.batch = 2, .sequence = 7, .accumulation = 4, .order = order, .seed = 5});
    for (int const world : {2, 4}) {
      // 1000 tokens in sequences of 7 make 142 samples. An epoch has 17 steps of 8 samples, and 6 samples
      // remain.
      for (std::int64_t const step : {0, 3, 17, 40}) {
        Tokens const expected = whole.load(step).tokens;
        Tokens got(expected.size());
        for (int rank = 0; rank < world; ++rank) {
          ts::Loader part(source, {.batch = 2,
                                   .sequence = 7,
                                   .accumulation = 4 / world,
                                   .rank = rank,
                                   .world = world,
                                   .order = order,
                                   .seed = 5});
          ts::Batch const& batch = part.load(step);
          CHECK(batch.first_sample == step * 8 + rank * 2);
          for (int a = 0; a < batch.accumulation; ++a) {
            auto const micro = batch.micro_tokens(a);
            std::copy(micro.begin(), micro.end(), got.begin() + (a * world + rank) * 14);
          }
        }
        CHECK(got == expected);
      }
    }
  }
}

TEST_CASE("an epoch holds every sample once and the next is another order") {
  auto const source = counting(4 * 24 + 1);
  ts::Loader loader(source, {.batch = 3, .sequence = 4, .accumulation = 2, .seed = 8});
  auto const starts = [&](std::int64_t epoch) {
    std::vector<std::int32_t> result;
    for (std::int64_t s = 0; s < loader.steps_per_epoch(); ++s) {
      ts::Batch const& batch = loader.load(epoch * loader.steps_per_epoch() + s);
      for (std::size_t i = 0; i < batch.tokens.size(); i += 4) result.push_back(batch.tokens[i]);
    }
    return result;
  };
  CHECK(loader.steps_per_epoch() == 4);
  auto const first = starts(0), second = starts(1);
  CHECK(std::set<std::int32_t>(first.begin(), first.end()).size() == 24);
  CHECK(std::set<std::int32_t>(second.begin(), second.end()).size() == 24);
  CHECK(first != second);
}

TEST_CASE("load is pure in its step and reuses its memory") {
  auto const source = counting(500);
  ts::Loader loader(source, {.batch = 2, .sequence = 9, .seed = 3});
  Tokens const tenth = loader.load(10).tokens;
  auto const* const memory = loader.load(0).tokens.data();
  CHECK(loader.load(10).tokens == tenth);
  CHECK(loader.load(11).tokens != tenth);
  CHECK(loader.load(12).tokens.data() == memory);
}

TEST_CASE("data tokens is a range over one epoch") {
  TemporaryFolder folder;
  auto const path = write(folder / "train.bin", bytes_of(std::vector<std::uint16_t>(101, 4)));
  std::vector<std::int64_t> steps;
  for (auto const& batch : ts::data::tokens(path, {.batch = 2, .sequence = 10})) {
    steps.push_back(batch.step);
    CHECK(batch.tokens == Tokens(20, 4));
  }
  CHECK(steps == std::vector<std::int64_t>{0, 1, 2, 3, 4});
  steps.clear();
  for (auto const& batch : ts::data::tokens(path, {.batch = 2, .sequence = 10, .first_step = 8}))
    steps.push_back(batch.step);
  CHECK(steps == std::vector<std::int64_t>{8, 9});  // the last two steps of the second epoch
  auto range = ts::data::tokens({path, path}, {.batch = 2, .sequence = 10});
  CHECK(range.source().size() == 202);
  CHECK(range.loader().steps_per_epoch() == 10);
  static_assert(std::input_iterator<ts::Loader::Iterator>);
}

TEST_CASE("fewer samples than a global batch still give steps") {
  auto const source = counting(9);  // two samples of four tokens each
  ts::Loader loader(source, {.batch = 5, .sequence = 4, .order = ts::Order::sequential});
  CHECK(loader.steps_per_epoch() == 1);
  Tokens starts;
  for (std::size_t i = 0; i < 5; ++i) starts.push_back(loader.load(0).tokens[i * 4]);
  CHECK(starts == Tokens{0, 4, 0, 4, 0});
}

TEST_CASE("a loader of the first samples reads them alone") {
  auto const source = counting(41);  // ten samples of four tokens each
  ts::Loader loader(source, {.batch = 3, .sequence = 4, .order = ts::Order::shuffled, .samples = 3});
  CHECK(loader.samples() == 3);
  std::set<std::int32_t> starts;
  for (std::size_t i = 0; i < 3; ++i) starts.insert(loader.load(1).tokens[i * 4]);
  CHECK(starts == std::set<std::int32_t>{0, 4, 8});
  CHECK(ts::Loader(source, {.sequence = 4, .samples = 10}).samples() == 10);
  CHECK_ERROR(data, ts::Loader::check(source, {.sequence = 4, .samples = 11}), "--samples 11",
              "the 10 samples", "--sequence 4", "41 tokens");
  CHECK_ERROR(usage, ts::Loader::check(source, {.sequence = 4, .samples = -1}), "--samples is -1");
}

TEST_CASE("a whole epoch ends with a step of its own, filled with what does not count") {
  auto const source = counting(21);  // five samples of four tokens each
  for (int const world : {1, 2}) {
    Tokens seen;
    for (int rank = 0; rank < world; ++rank) {
      ts::Loader loader(source, {.batch = 1,
                                 .sequence = 4,
                                 .accumulation = 2 / world,
                                 .rank = rank,
                                 .world = world,
                                 .seed = 3,
                                 .whole_epochs = true});
      CHECK(loader.steps_per_epoch() == 3);
      for (std::int64_t step = 3; step < 6; ++step) {  // these are the steps of the second epoch
        CHECK(loader.targets_in(step) == (step < 5 ? 8 : 4));
        ts::Batch const& batch = loader.load(step);
        CHECK(batch.first_sample == 5 + (step - 3) * 2 + rank);
        for (int a = 0; a < batch.accumulation; ++a) {
          auto const tokens = batch.micro_tokens(a), targets = batch.micro_targets(a);
          bool const beyond = step == 5 && a * world + rank == 1;
          CHECK(targets[0] == (beyond ? -1 : tokens[0] + 1));
          CHECK(targets[3] == (beyond ? -1 : tokens[3] + 1));
          if (!beyond) seen.push_back(tokens[0] / 4);
        }
      }
    }
    std::sort(seen.begin(), seen.end());
    CHECK(seen == Tokens{0, 1, 2, 3, 4});
  }
}

TEST_CASE("a loader refuses numbers that make no batch") {
  auto const source = counting(10);
  auto const load = [&](ts::LoaderOptions options) { return ts::Loader(source, options).global_batch(); };
  CHECK_ERROR(usage, load({.batch = 0, .sequence = 2}), "--batch is 0", "1 or more");
  CHECK_ERROR(usage, load({.sequence = -2}), "--sequence is -2");
  CHECK_ERROR(usage, load({.sequence = 2, .accumulation = 0}), "--accumulation is 0");
  CHECK_ERROR(usage, load({.sequence = 2, .world = 0}), "the world is 0");
  CHECK_ERROR(usage, load({.sequence = 2, .rank = 2, .world = 2}), "rank 2", "world of 2");
  CHECK_ERROR(usage, load({.sequence = 2, .rank = -1}), "rank -1");
  CHECK_ERROR(usage, load({.sequence = 2, .first_step = -1}), "first step is -1");
  CHECK_ERROR(usage, load({.batch = 1 << 30, .sequence = 4}), "1073741824 x", "more than 2147483647");
  CHECK_ERROR(usage, load({.batch = 1 << 30, .sequence = 1, .world = 4}), "on 4 ranks");
  CHECK_ERROR(data, load({.sequence = 10}), "memory: too little data", "10 tokens present", "11 needed",
              "--sequence 10");
  CHECK(load({.sequence = 9}) == 1);
  ts::Loader loader(source, {.sequence = 9});
  CHECK_ERROR(usage, loader.load(-1), "step -1");
  CHECK_ERROR(usage, loader.load(std::numeric_limits<std::int64_t>::max()), "does not exist");
  CHECK_ERROR(data, ts::TokenSource::from_memory({}), "memory", "no tokens");
}
