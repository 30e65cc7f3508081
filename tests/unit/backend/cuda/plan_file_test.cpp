// SPDX-License-Identifier: Apache-2.0
// Tests PlanFile, a file of measured product plans. A product plan is the algorithm that was fastest for one
// matrix product. Product plans must be read back, damaged lines must be ignored, and several processes must
// be able to write at once.
#include "tessera/backend/cuda/products/plan_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "support/file_support.hpp"

using file_support::read;
using file_support::TemporaryFolder;
using file_support::write;
using namespace tessera::cuda;

namespace {

/// Returns an artificial product plan that depends on `seed`: the numbers that describe a matrix product
/// (`first`), and the numbers that describe an algorithm for this product (`second`).
PlanNumbers plan_of(std::uint64_t seed) {
  PlanNumbers plan;
  for (std::size_t at = 0; at < plan.first.size(); ++at) plan.first[at] = seed * 100 + at;
  for (std::size_t at = 0; at < plan.second.size(); ++at) plan.second[at] = ~std::uint64_t{0} - seed - at;
  return plan;
}

std::size_t lines_of(std::string const& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("a plan is a line, and a line that lacks or changes a byte is none") {
  PlanNumbers const plan = plan_of(7);
  std::string line = plan_line(plan);
  REQUIRE(line.back() == '\n');
  line.pop_back();
  CHECK(read_plan(line) == plan);
  for (std::size_t length = 0; length < line.size(); ++length)
    CHECK_MESSAGE(!read_plan(line.substr(0, length)), length);
  for (std::size_t at = 0; at < line.size(); ++at)
    for (char const other : {'0', '1', ' ', '-', 'x'}) {
      std::string changed = line;
      changed[at] = other;
      if (other != line[at]) CHECK_MESSAGE(!read_plan(changed), changed);
    }
  CHECK(!read_plan(line + ' '));
  CHECK(!read_plan(line + line));
  CHECK(!read_plan("12 34 " + line));
  CHECK(!read_plan(' ' + line));
  CHECK(!read_plan('0' + line));
  CHECK(!read_plan(line.insert(line.rfind(' ') + 1, 1, '0')));
}

TEST_CASE("plans are kept and found again, and the first of a product holds") {
  TemporaryFolder folder;
  std::string const path = folder / "gpu.plans";
  {
    PlanFile file(path, true);
    CHECK(std::filesystem::exists(path));
    CHECK(file.size() == 0);
    CHECK(!file.find(plan_of(1).first));
    for (std::uint64_t seed = 1; seed <= 3; ++seed)
      CHECK(file.add(plan_of(seed).first, plan_of(seed).second) == plan_of(seed).second);
    CHECK(file.add(plan_of(2).first, plan_of(9).second) == plan_of(2).second);
    CHECK(file.find(plan_of(2).first) == plan_of(2).second);
    CHECK(file.failure() == "");
  }
  CHECK(lines_of(read(path)) == 3);
  PlanFile again(path, false);
  CHECK(again.size() == 3);
  CHECK(again.find(plan_of(3).first) == plan_of(3).second);
  // `again` was opened only for reading. Plans that are added to it stay in memory and are not written to the
  // file.
  again.add(plan_of(4).first, plan_of(4).second);
  CHECK(again.find(plan_of(4).first) == plan_of(4).second);
  CHECK(lines_of(read(path)) == 3);
  CHECK(PlanFile(folder / "absent.plans", false).size() == 0);
  CHECK(folder.entries() == 1);
}

TEST_CASE("torn and damaged lines are passed over, and what is added behind them is whole") {
  TemporaryFolder folder;
  std::string const first = plan_line(plan_of(1)), second = plan_line(plan_of(2)),
                    third = plan_line(plan_of(3));
  std::string damaged = second;
  damaged[damaged.find('0')] = '9';
  auto const path =
      write(folder / "gpu.plans", first + "\nno plan\n" + damaged + third + second.substr(0, 40));
  {
    PlanFile file(path, true);
    CHECK(file.size() == 2);
    CHECK(file.find(plan_of(1).first) == plan_of(1).second);
    CHECK(!file.find(plan_of(2).first));
    file.add(plan_of(2).first, plan_of(2).second);
    CHECK(file.failure() == "");
  }
  CHECK(read(path).ends_with(second.substr(0, 40) + "\n" + second));
  CHECK(PlanFile(path, false).size() == 3);
  CHECK(PlanFile(write(folder / "other.plans", std::string(1000, '\0')), true).size() == 0);
}

TEST_CASE("several processes and their ranks write one file, and no line is torn") {
  TemporaryFolder folder;
  std::string const path = folder / "gpu.plans";
  constexpr std::uint64_t writers = 4, plans = 50;
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t writer = 0; writer < writers; ++writer)
      threads.emplace_back([&, writer] {
        PlanFile file(path, true);  // every thread opens the file itself, as a separate process would
        std::jthread const rank([&] {
          for (std::uint64_t seed = 0; seed < plans; ++seed)
            file.add(plan_of(1000 * writer + seed).first, plan_of(seed).second);
        });
        for (std::uint64_t seed = 0; seed < plans; ++seed)
          file.add(plan_of(1000 * writer + seed).first, plan_of(seed).second);
      });
  }
  CHECK(lines_of(read(path)) == writers * plans);
  CHECK(PlanFile(path, false).size() == writers * plans);
}

TEST_CASE("a file of plans that cannot be read or written is an error, and later a failure that is kept") {
  TemporaryFolder folder;
  std::string const no_folder = write(folder / "text", "x") / "gpu.plans";
  CHECK_ERROR(failed, PlanFile(no_folder, true), "text/gpu.plans: cannot open", "give a folder");
  CHECK_ERROR(failed, PlanFile(no_folder, false), "text/gpu.plans: cannot open");
  CHECK_ERROR(failed, PlanFile(folder / "absent" / "gpu.plans", true), "cannot open");
  CHECK_ERROR(failed, PlanFile(folder.path(), true), "cannot open");
  CHECK_ERROR(data, PlanFile("/dev/null", true), "/dev/null: is not a product-plan file; delete it");
  std::string const path = folder / "gpu.plans";
  write(path, "");
  std::filesystem::resize_file(path, std::uintmax_t{65} << 20);
  CHECK_ERROR(data, PlanFile(path, false), "gpu.plans: is not a product-plan file");
  write(path, plan_line(plan_of(1)));
  std::filesystem::permissions(path, std::filesystem::perms(0444));
  auto const thrown = file_support::thrown_as_nobody([&] { PlanFile(path, true); });
  CHECK(thrown.kind == tessera::ErrorKind::failed);
  CHECK(file_support::has(thrown.text, "gpu.plans: cannot open"));

  // After the folder is removed, the file cannot be written. add() is called during training steps, so it
  // reports no error and returns the plan.
  std::filesystem::create_directory(folder / "gone");
  PlanFile file(folder / "gone" / "gpu.plans", true);
  std::filesystem::remove_all(folder / "gone");
  CHECK(file.add(plan_of(1).first, plan_of(1).second) == plan_of(1).second);
  CHECK(file_support::has(file.failure(), "gone/gpu.plans: cannot open"));
  CHECK(file.find(plan_of(1).first) == plan_of(1).second);
}
