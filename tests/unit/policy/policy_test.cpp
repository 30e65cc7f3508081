// SPDX-License-Identifier: Apache-2.0
// Tests recipes (combinations of policies) that are selected by name at run time. Covers the parsing of
// names, the defaults, the message of each rule that is broken, and all combinations of policies.
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "tessera/core/error.hpp"
#include "tessera/plan/support.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"

namespace ts = tessera;

namespace {

template <class... Policies>
constexpr ts::RecipeTable table_of = ts::recipe_table<typename ts::Resolved<Policies...>::config>;

/// Parses the policy names `text` and returns the message of the usage error. Returns "no error" if parsing
/// throws no error.
std::string parse_error(ts::SlotNames const& text) {
  try {
    ts::parse_recipe(text);
  } catch (ts::Error const& error) {
    CHECK(error.kind() == ts::ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

/// Calls visit(names) for every combination of policies. A slot is one category of policies, for example the
/// shardings. The second overload sets one slot to each of its policies in turn and then handles the
/// remaining slots by a recursive call. This overload ends the recursion, when no slots remain.
template <class Visit>
void for_each_combination(Visit visit, ts::SlotNames names, ts::detail::list<>) {
  visit(names);
}
template <class Visit, class Slot, class... Open>
void for_each_combination(Visit visit, ts::SlotNames names, ts::detail::list<Slot, Open...>) {
  for (std::string_view const name : ts::choice_names<Slot>()) {
    names.*Slot::field = name;
    for_each_combination(visit, names, ts::detail::list<Open...>{});
  }
}
template <class Visit>
void for_each_combination(Visit visit) {
  for_each_combination(visit, {}, ts::Slots{});
}

/// Whether the manual allows the recipe with the policies `names`. This function states the rules of the
/// manual again and does not use the library's rules.
bool manual_allows(ts::SlotNames const& names) {
  bool const cuda = names.device == "cuda";
  bool const half = names.precision == "fp16";
  if (!cuda && names.capture == "graph") return false;
  bool const cores = names.precision == "tf32" || names.precision.starts_with("bf16x");
  if (!cuda && cores) return false;
  if (!cuda && names.attention == "cudnn") return false;
  if (half == (names.loss_scale == "none")) return false;
  if (names.reduction == "ordered" && names.attention == "cudnn") return false;
  if (names.attention == "cudnn" && !half && names.precision != "bf16") return false;
  if (cuda && names.precision == "fp64" && names.attention != "reference") return false;
  return true;
}

}  // namespace

TEST_CASE("parsed recipes equal compiled ones") {
  CHECK(ts::parse_recipe({}) == table_of<>);
  CHECK(ts::parse_recipe({.device = "cuda"}) == table_of<ts::On<ts::Cuda>>);
  CHECK(ts::parse_recipe({.sharding = "dp"}) == table_of<ts::RootOptimizer>);
  CHECK(ts::parse_recipe({.sharding = "0"}) == table_of<ts::ZeroStage<0>>);
  CHECK(ts::parse_recipe({.sharding = "3"}) == table_of<ts::ZeroStage<3>>);
  CHECK(ts::parse_recipe({.sharding = "ddp"}) == table_of<ts::ZeroStage<0>>);
  CHECK(ts::parse_recipe({.sharding = "zero2"}) == table_of<ts::ZeroStage<2>>);
  CHECK(ts::parse_recipe({.precision = "fp16"}) == table_of<ts::Precision<ts::half>>);
  CHECK(ts::parse_recipe({.precision = "fp16", .loss_scale = "static"}) ==
        table_of<ts::Precision<ts::half>, ts::LossScale<ts::Static>>);
  CHECK(ts::parse_recipe({.offload = "cpu_optimizer"}) == table_of<ts::Offload<ts::Cpu>>);
  CHECK(ts::parse_recipe({.offload = "cpu_full"}) == table_of<ts::Offload<ts::Cpu, ts::AllState>>);
  CHECK(ts::parse_recipe({.offload = "nvme_optimizer"}) == table_of<ts::Offload<ts::Nvme>>);
  CHECK(ts::parse_recipe({.offload = "nvme"}) == table_of<ts::Offload<ts::Nvme, ts::AllState>>);
  CHECK(ts::parse_recipe({.offload = "infinity"}) ==
        table_of<ts::Offload<ts::Optimizer<ts::Nvme>, ts::Parameters<ts::Cpu>>>);
  CHECK(ts::parse_recipe({.recompute = "block"}) == table_of<ts::Recompute<ts::Block>>);
  CHECK(ts::parse_recipe(
            {.device = "cuda", .reduction = "ordered", .capture = "eager", .attention = "fused"}) ==
        table_of<ts::On<ts::Cuda>, ts::Reduction<ts::Ordered>, ts::Capture<ts::Eager>,
                 ts::Attention<ts::Fused>>);
  CHECK(ts::parse_recipe({.parallel = "data+tensor"}) == table_of<ts::Parallel<ts::axis::Tensor>>);
}

TEST_CASE("an unknown name is refused with the nearest and all choices") {
  CHECK(parse_error({.precision = "fp62"}) ==
        "precision 'fp62' is not known, nearest is 'fp32': "
        "choose one of fp32, tf32, bf16x6, bf16x3, fp16, bf16, fp64");
  CHECK(parse_error({.sharding = "4"}).find("choose one of dp, zs0, zs1, zs2, zs3") != std::string::npos);
  CHECK(parse_error({.offload = "infinty"}).find("nearest is 'infinity'") != std::string::npos);
  CHECK(parse_error({.loss_scale = "dynamics"}).find("loss scale 'dynamics'") == 0);
  CHECK(parse_error({.attention = "flash"}).find("attention 'flash' is not known") == 0);
  CHECK(parse_error({.device = "gpu"}).find("choose one of cpu, cuda") != std::string::npos);
}

TEST_CASE("the first broken rule speaks in the words of the compiler") {
  CHECK(!ts::broken_rule(ts::parse_recipe({})));
  CHECK(ts::broken_rule(ts::parse_recipe({.capture = "graph"})) ==
        "Capture<Graph> records a CUDA graph, so it needs On<Cuda>, and this recipe computes on the CPU. Add "
        "On<Cuda>, or drop Capture<Graph>. See docs/policies/capture.md.");
  CHECK(ts::broken_rule(ts::parse_recipe({.precision = "fp16", .loss_scale = "none"}))
            ->starts_with("Precision<half> without a loss scale"));
  CHECK(ts::broken_rule(ts::parse_recipe({.precision = "tf32", .capture = "graph", .attention = "cudnn"}))
            ->starts_with("Capture<Graph>"));
}

TEST_CASE("every combination of choices is refused exactly when the manual says so") {
  std::int64_t all = 0, wrong = 0, unequal = 0;
  std::set<std::string_view> sentences;
  for_each_combination([&](ts::SlotNames const& names) {
    ts::RecipeTable const recipe = ts::parse_recipe(names);
    auto const broken = ts::broken_rule(recipe);
    ++all;
    wrong += broken.has_value() == manual_allows(names);
    if (broken) sentences.insert(*broken);
    unequal += ts::parse_recipe(recipe.names) != recipe;
  });
  std::int64_t product = 1;
  ts::for_each_slot(
      [&]<class Slot>(Slot) { product *= static_cast<std::int64_t>(ts::choice_names<Slot>().size()); });
  CHECK(all == product);
  CHECK(wrong == 0);
  CHECK(unequal == 0);
  CHECK(sentences.size() == 8);  // each of the 8 rules refuses at least one combination
}

TEST_CASE("distinct recipes have distinct names and one line each") {
  std::set<std::string> lines;
  std::int64_t all = 0;
  for_each_combination([&](ts::SlotNames const& names) {
    if (names.capture == "eager" && names.recompute == "none" && names.reduction == "fast") {
      lines.insert(ts::to_string(ts::parse_recipe(names)));
      ++all;
    }
  });
  CHECK(static_cast<std::int64_t>(lines.size()) == all);
  CHECK(ts::to_string(ts::parse_recipe({.device = "cuda", .sharding = "2", .precision = "fp16"})) ==
        "device cuda, sharding zs2, precision fp16, loss scale dynamic, offload none, recompute none, "
        "reduction "
        "fast, communication tuned, capture graph, attention auto, parallel data, adapters none");
}

TEST_CASE("a world of one shards nothing and keeps its tiers") {
  for (auto sharding : ts::choice_names<ts::slot::sharding>())
    for (auto offload : ts::choice_names<ts::slot::offload>()) {
      ts::PlacementTable const here = ts::parse_recipe({.sharding = sharding, .offload = offload}).placement;
      ts::PlacementTable const plain = ts::parse_recipe({.offload = offload}).placement;
      CHECK(ts::at_world(here, 1) == plain);
      CHECK(ts::at_world(here, 4) == here);
    }
}

TEST_CASE("a recipe is checked where a CheckedRecipe is made") {
  auto const made = [](ts::RecipeTable const& table, ts::CheckedRecipe::Missing* missing) {
    try {
      return ts::CheckedRecipe(table, missing).table() == table ? std::string("the same") : "another";
    } catch (ts::Error const& error) {
      return (error.kind() == ts::ErrorKind::config ? "config: " : "unsupported: ") +
             std::string(error.what());
    }
  };
  ts::RecipeTable const plain = ts::parse_recipe({.sharding = "zs1", .precision = "bf16"});
  CHECK(made(plain, &ts::unsupported_reason) == "the same");
  ts::RecipeTable wide = plain;
  wide.types.wire = ts::DType::f32;
  CHECK(made(wide, &ts::unsupported_reason) == "unsupported: " + ts::unsupported_reason(wide).value_or(""));
  ts::RecipeTable const lossy = ts::parse_recipe({.precision = "fp16", .loss_scale = "none"});
  CHECK(made(lossy, &ts::unsupported_reason) ==
        "config: " + std::string(ts::broken_rule(lossy).value_or("")));
  CHECK(made(plain, [](ts::RecipeTable const&) -> std::optional<std::string> { return "no device"; }) ==
        "unsupported: no device");
}

TEST_CASE("a device is named by its row of the table") {
  CHECK(ts::device_named("cpu") == ts::Device::cpu);
  CHECK(ts::device_named("cuda") == ts::Device::cuda);
  CHECK(ts::name_of(ts::Device::cpu) == "cpu");
  CHECK(ts::name_of(ts::Device::cuda) == "cuda");
  CHECK_THROWS_WITH_AS(ts::device_named("cud"),
                       "device 'cud' is not known, nearest is 'cuda': choose one of cpu, cuda", ts::Error);
}
