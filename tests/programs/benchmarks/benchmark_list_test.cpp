// SPDX-License-Identifier: Apache-2.0
// Tests the list of combinations that the benchmarks of recipes measure, and the text about the combinations
// that they leave out. Compares the list with the support matrix, the table of all combinations that work.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "benchmarks/left_out.hpp"
#include "benchmarks/recipe_rows.hpp"

namespace {

using namespace tessera;
using recipe_rows::Machine, recipe_rows::Row;
using Names = std::set<std::string>;

/// Adds every name of a pattern such as "a/{b,c}" to `names`. The test fails if a name occurs twice.
void expand(std::string const& pattern, Names& names) {
  std::size_t const open = pattern.find('{');
  if (open == pattern.npos) {
    CHECK_MESSAGE(names.insert(pattern).second, pattern);
    return;
  }
  std::size_t const close = pattern.find('}', open);
  std::istringstream texts(pattern.substr(open + 1, close - open - 1) + ",");
  for (std::string text; std::getline(texts, text, ',');)
    expand(pattern.substr(0, open) + text + pattern.substr(close + 1), names);
}

/// Returns the names that a program prints as left out, each with its reason.
std::map<std::string, std::string> left_out_in(std::string const& text) {
  std::map<std::string, std::string> reasons;
  std::istringstream lines(text);
  std::string line, reason;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    if (!line.starts_with("  ")) {
      reason = line.substr(line.find(": ") + 2);
      continue;
    }
    Names names;
    expand(line.substr(2), names);
    for (std::string const& name : names) CHECK_MESSAGE(reasons.emplace(name, reason).second, name);
  }
  return reasons;
}

/// The benchmarks of a machine: the names that run, and the names that the text of a program leaves out.
struct Listed {
  Names runs;
  std::map<std::string, std::string> left_out;

  explicit Listed(Machine const& machine) {
    left_out::List list;
    for (Row const& row : recipe_rows::make_rows(machine, recipe_rows::tiny)) {
      std::string const name = left_out::name_of(row.name);
      if (row.left_out.empty())
        CHECK_MESSAGE(runs.insert(name).second, name);
      else
        list.add(row.name, row.left_out);
    }
    std::string const text = list.text("program", runs.size());
    left_out = left_out_in(text);
    CHECK(left_out.size() == list.count());
    CHECK(text.find("program: " + std::to_string(runs.size()) + " benchmarks can run here, and " +
                    std::to_string(list.count()) + " are left out") == 0);
  }

  std::string reason(std::string const& name) const {
    auto const found = left_out.find(name);
    return found == left_out.end() ? "" : found->second;
  }
};

/// Returns a machine that has a device of this kind for each rank. Recipes for GPUs count as part of the
/// build, so a build without GPUs makes the list of a build with GPUs.
Machine large(Device device) {
  Machine machine;
  machine.device = device;
  machine.ranks = device == Device::cpu ? std::vector{1, 4} : std::vector{1, 2, 4};
  machine.missing = [](RecipeTable const& recipe) { return unsupported_reason(recipe); };
  return machine;
}

/// Returns whether a cell of the support matrix has neither adapters nor a mesh. The benchmarks have every
/// cell of this kind.
bool is_plain(nlohmann::json const& cell) { return cell.at(6) == "none" && cell.at(7) == "flat"; }

/// Returns the names of the benchmarks of a cell of the support matrix.
std::vector<std::string> names_of(nlohmann::json const& cell, Machine const& machine) {
  auto const text = [&](std::size_t column) { return cell.at(column).get<std::string>(); };
  std::string const family = text(0), recompute = text(5);
  std::string const start =
      "step/" + text(2) + "/" + text(3) + "/" + text(4) +
      (recompute == "none" ? "" : "/recompute:" + recompute) + (family == "gpt2" ? "" : "/model:" + family) +
      (text(6) == "none" ? "" : "/adapters:" + text(6)) + (text(7) == "replicate=2" ? "/replicas:2" : "");
  std::vector<std::string> names;
  for (int const ranks : machine.ranks)
    if (start.find(':') == start.npos || ranks == machine.ranks.back())
      names.push_back(start + "/" + std::string(machine.unit()) + ":" + std::to_string(ranks));
  return names;
}

/// Returns the values of the segment number `index` of the names that contain `part`.
Names segments(Listed const& listed, std::string const& part, int index) {
  Names found;
  auto const add = [&](std::string const& name) {
    if (name.find(part + "/") == name.npos) return;
    std::istringstream segments(name);
    std::string segment;
    for (int i = 0; i <= index; ++i) std::getline(segments, segment, '/');
    found.insert(segment);
  };
  for (std::string const& name : listed.runs) add(name);
  for (auto const& [name, reason] : listed.left_out) add(name);
  return found;
}

template <class Slot>
Names all_of() {
  return Names(choice_names<Slot>().begin(), choice_names<Slot>().end());
}

}  // namespace

TEST_CASE(
    "benchmark list: every cell of the support matrix that passed is measured, the others have reasons") {
  std::ifstream file(TESSERA_SUPPORT_MATRIX);
  auto const matrix = nlohmann::json::parse(file);
  for (Device const device : {Device::cpu, Device::cuda}) {
    Machine const machine = large(device);
    Listed const listed(machine);
    std::size_t passed = 0, refused = 0, with_extras = 0, known_extras = 0;
    for (auto const& cell : matrix.at("cells")) {
      if (cell.at(1) != name_of(device) || cell.at(8) == "not run") continue;
      bool const works = cell.at(8) == "passed";
      if (is_plain(cell))
        (works ? passed : refused) += 1;
      else
        ++known_extras;
      for (std::string const& name : names_of(cell, machine)) {
        INFO(name, " ", cell.dump());
        if (!is_plain(cell) && listed.runs.count(name) == 0 && listed.reason(name).empty()) continue;
        CHECK(listed.runs.count(name) == (works ? 1 : 0));
        CHECK(listed.reason(name).empty() == works);
        with_extras += is_plain(cell) ? 0 : 1;
      }
    }
    std::size_t const cells = model_families().size() * choice_names<slot::sharding>().size() *
                              choice_names<slot::precision>().size() * choice_names<slot::offload>().size() *
                              choice_names<slot::recompute>().size();
    CHECK(passed + refused == cells);
    CHECK(passed > refused);
    CHECK(refused > 0);
    CHECK((known_extras > 0) == (with_extras > 0));
  }
}

TEST_CASE("benchmark list: the recipes that programs compare by default run on each number of ranks") {
  for (Device const device : {Device::cpu, Device::cuda}) {
    Machine const machine = large(device);
    Listed const listed(machine);
    for (int const ranks : machine.ranks) {
      std::size_t found = 0;
      for (RecipeTable const& recipe : recipe_rows::detail::base_recipes(device)) {
        SlotNames const& names = recipe.names;
        if (names.precision != "fp32" && names.precision != "fp16" && names.precision != "bf16") continue;
        found += listed.runs.count("step/" + std::string(names.sharding) + "/" +
                                   std::string(names.precision) + "/" + std::string(names.offload) + "/" +
                                   std::string(machine.unit()) + ":" + std::to_string(ranks));
      }
      CHECK(found == choice_names<slot::sharding>().size() * 3 * choice_names<slot::offload>().size());
    }
  }
}

TEST_CASE("benchmark list: every other value meets each sharding, each precision and each offload") {
  for (Device const device : {Device::cpu, Device::cuda}) {
    Listed const listed(large(device));
    std::vector<std::string> parts = {"/accumulation:4", "/replicas:2"};
    for_each_slot([&]<class Slot>(Slot) {
      if (std::is_same_v<Slot, slot::device> || std::is_same_v<Slot, slot::sharding> ||
          std::is_same_v<Slot, slot::precision> || std::is_same_v<Slot, slot::offload>)
        return;
      std::string title(Slot::title);
      std::replace(title.begin(), title.end(), ' ', '_');
      RecipeTable const standard = parse_recipe({.device = name_of(device)});
      for (std::string_view const name : choice_names<Slot>())
        if (name != standard.names.*Slot::field) parts.push_back("/" + title + ":" + std::string(name));
    });
    for (std::string const& part : parts) {
      INFO(std::string(name_of(device)), " ", part);
      CHECK(segments(listed, part, 1) == all_of<slot::sharding>());
      CHECK(segments(listed, part, 3) == all_of<slot::offload>());
      if (part != "/loss_scale:dynamic")  // in fp16 this value is the default
        CHECK(segments(listed, part, 2) == all_of<slot::precision>());
    }
  }
  Listed const cpu(large(Device::cpu));
  for (char const* const part : {"/loss_scale:static", "/reduction:fast", "/attention:reference",
                                 "/attention:fused", "/adapters:lora", "/accumulation:4", "/replicas:2"}) {
    INFO(part);
    auto const of_part = [&](std::string const& name) { return name.find(part) != name.npos; };
    CHECK(std::count_if(cpu.runs.begin(), cpu.runs.end(), of_part) >=
          static_cast<std::ptrdiff_t>(choice_names<slot::offload>().size()));
  }
}

TEST_CASE("benchmark list: a benchmark that this machine cannot run has the reason") {
  auto const reason_on = [](Machine const& machine, char const* name) {
    return Listed(machine).reason(name);
  };
  Machine one = large(Device::cuda);
  one.devices = 1;
  CHECK(reason_on(one, "step/zs2/bf16/none/gpus:1") == "");
  CHECK(reason_on(one, "step/zs2/bf16/none/gpus:4") ==
        "a run on 4 GPUs is impossible, because this machine has 1 GPU");
  CHECK(reason_on(one, "step/dp/fp32/none/replicas:2/gpus:1") ==
        "2 replicas need 2 GPUs, and this machine has 1 GPU");
  CHECK(reason_on(one, "step/dp/fp32/none/recompute:block/gpus:1") == "");

  Machine none = large(Device::cuda);
  none.no_device = "no GPU was found";
  CHECK(Listed(none).runs.empty());
  CHECK(reason_on(none, "step/zs2/bf16/none/gpus:4") == "no GPU was found");
  CHECK(reason_on(none, "step/zs2/fp64/none/gpus:4").find("Precision<double> on CUDA") == 0);

  Machine diskless = large(Device::cpu);
  diskless.no_folder = "no folder was found";
  CHECK(reason_on(diskless, "step/zs3/fp16/infinity/ranks:4") == "no folder was found");
  CHECK(reason_on(diskless, "step/zs3/fp16/cpu_full/ranks:4") == "");

  ModelFamily const& gpt2 = *model_families().front();
  AnyModel const model = recipe_rows::model_of(gpt2, recipe_rows::tiny);
  auto const memory_reason = [&](std::string_view offload, MemoryLimit const& limit) {
    Machine machine = large(Device::cuda);
    machine.memory = limit;
    Row row{{}, parse_recipe({.device = "cuda", .precision = "fp16", .offload = offload}), &gpt2};
    row.ranks = 4;
    return recipe_rows::detail::memory_obstacle(machine, row, model, recipe_rows::tiny);
  };
  std::string const least = "too little free memory: this machine has 1.0 MiB ";
  CHECK(memory_reason("none", {.device = 1 << 20}) == least + "on a GPU");
  CHECK(memory_reason("none", {.host = 1 << 20}) == "");
  CHECK(memory_reason("cpu_optimizer", {.host = 1 << 20}) == least + "on the host");
  CHECK(memory_reason("nvme", {.nvme = 1 << 20}) == least + "on the disk of TMPDIR");

  ::setenv("TMPDIR", "/absent/folder", 1);
  Machine const here = recipe_rows::this_machine(Device::cpu, {1, 4});
  ::unsetenv("TMPDIR");
  CHECK(here.no_folder.find("state on NVMe needs a folder for its files, which TMPDIR names: ") == 0);
  CHECK(here.no_folder.find("/absent/folder") != here.no_folder.npos);
  CHECK(recipe_rows::this_machine(Device::cpu, {1, 4}).no_folder == "");
}

TEST_CASE("benchmark list: a family with a size that the benchmarks do not know has the reason") {
  ModelFamily family = *model_families().front();
  family.keys.push_back({.name = "experts", .max = 8});
  std::string text;
  try {
    (void)recipe_rows::model_of(family, recipe_rows::tiny);
  } catch (Error const& error) {
    text = error.what();
  }
  CHECK(text.find("the benchmark has no value for the size experts of the model family gpt2") == 0);
  for (ModelFamily const* const known : model_families())
    CHECK(recipe_rows::model_of(*known, recipe_rows::small).positions() == 1024);
}

TEST_CASE("benchmark list: patterns contain each name once") {
  using left_out::Parts;
  auto const texts = [](std::vector<Parts> const& names) {
    std::vector<std::string> all;
    for (left_out::Pattern const& pattern : left_out::patterns_of(names))
      all.push_back(left_out::text_of(pattern));
    return all;
  };
  std::vector<Parts> grid;
  for (std::string const a : {"a", "b"})
    for (std::string const c : {"", "/r:x", "/r:y"})
      for (std::string const n : {"1", "4"}) grid.push_back({"step", "/" + a, c, "/ranks:" + n});
  CHECK(texts(grid) == std::vector<std::string>{"step/{a,b}{,/r:x,/r:y}/ranks:{1,4}"});
  grid.pop_back();  // without /b/r:y/ranks:4
  Names all;
  for (std::string const& text : texts(grid)) expand(text, all);
  CHECK(all.size() == 11);
  CHECK(all.count("step/b/r:y/ranks:1") == 1);
  CHECK(all.count("step/b/r:y/ranks:4") == 0);
  CHECK(texts({}).empty());
}

TEST_CASE("benchmark list: the program lists these benchmarks" * doctest::skip()) {
#if defined(TESSERA_RECIPES_BENCHMARK)
  Listed const expected(recipe_rows::this_machine(Device::cpu, {1, 4}));
  auto const output = [](std::string const& redirections) {
    std::string text;
    std::FILE* const pipe =
        ::popen((TESSERA_RECIPES_BENCHMARK " --benchmark_list_tests " + redirections).c_str(), "r");
    REQUIRE(pipe != nullptr);
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
    CHECK(::pclose(pipe) == 0);
    return text;
  };
  Names listed;
  std::istringstream lines(output("2>/dev/null"));
  for (std::string line; std::getline(lines, line);)
    listed.insert(line.substr(0, line.rfind("/manual_time")));
  CHECK(listed == expected.runs);
  CHECK(left_out_in(output("2>&1 >/dev/null")) == expected.left_out);
#endif
}
