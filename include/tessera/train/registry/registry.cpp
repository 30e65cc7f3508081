// SPDX-License-Identifier: Apache-2.0
// The list of registered recipes, and the way from a table to the engine that runs it.
#include "tessera/backend/cuda/budget.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/train/registry/gpt2.hpp"

namespace tessera::inline v0 {

std::vector<RecipeTable> const& registered_recipes() {
  static std::vector<RecipeTable> const recipes = [] {
    std::vector<RecipeTable> tables;
    for (std::string_view const sharding : choice_names<slot::sharding>())
      for (std::string_view const precision : choice_names<slot::precision>())
        for (std::string_view const offload : choice_names<slot::offload>()) {
          RecipeTable const table =
              parse_recipe({.sharding = sharding, .precision = precision, .offload = offload});
          if (broken_rule(table) || unsupported_reason(table)) continue;
          if (table.precision != DType::f64)
            tables.push_back(table);  // it checks gradients, and races nobody
        }
    return tables;
  }();
  return recipes;
}

namespace detail {
namespace {

DeviceRecipes const* cpu_recipes() {
  static DeviceRecipes const recipes{
      .make = &make_gpt2_of<Cpu>,
      .devices = [] { return 64; },
      .default_ranks = [] { return std::vector<int>{4}; },
      .steps_read_late = 0,
      .attention = [](AttentionKind) { return AttentionKind::fused; },  // one kernel, and no scores stored
      .facts = [] { return DeviceFacts(); },
      .memory_limit = &memory_limit<Cpu>,
      .run = [](int ranks, std::function<void(comm::Comm&)> const& fn,
                RunOptions const& options) { tessera::run(ranks, fn, options); }};
  return &recipes;
}

DeviceRecipes const* recipes_of(std::string_view device) {
  if (device == Cpu::name) return cpu_recipes();
  return device == Cuda::name ? cuda_recipes() : nullptr;
}

DeviceRecipes const& need_recipes_of(RecipeTable const& recipe) {
  if (auto const reason = unavailable_reason(recipe)) throw Error(ErrorKind::unsupported, *reason);
  return *recipes_of(recipe.device);
}

}  // namespace
}  // namespace detail

std::unique_ptr<AnyTrainer> make_trainer(Gpt2Options const& model, RecipeTable const& recipe, comm::Comm comm,
                                         TrainerOptions const& options) {
  if (auto const rule = broken_rule(recipe)) throw Error(ErrorKind::config, std::string(*rule));
  detail::DeviceRecipes const& recipes = detail::need_recipes_of(recipe);
  detail::check_options(options, Gpt2(model).positions());
  return recipes.make(model, recipe, std::move(comm), options);
}

std::optional<std::string> unavailable_reason(RecipeTable const& recipe) {
  if (!detail::recipes_of(recipe.device))
    return "device " + std::string(recipe.device) +
           " is not part of this build; use device cpu, or build with -DTESSERA_CUDA=ON";
  return unsupported_reason(recipe);
}

std::string_view default_device() { return detail::cuda_recipes() ? Cuda::name : Cpu::name; }

std::vector<int> default_ranks(std::string_view device) {
  auto const* const recipes = detail::recipes_of(device);
  return recipes ? recipes->default_ranks() : std::vector<int>{1};
}

std::size_t steps_read_late(RecipeTable const& recipe) {
  return detail::need_recipes_of(recipe).steps_read_late;
}

std::optional<AttentionKind> attention_that_runs(RecipeTable const& recipe) {
  auto const* const recipes = detail::recipes_of(recipe.device);
  return recipes ? std::optional(recipes->attention(recipe.attention)) : std::nullopt;
}

DeviceFacts device_facts(std::string_view device) {
  if (auto const* const recipes = detail::recipes_of(device)) return recipes->facts();
  DeviceFacts facts;
  facts.device = device;
  return facts;
}

void run_ranks(RecipeTable const& recipe, int ranks, std::function<void(comm::Comm&)> const& fn,
               RunOptions const& options) {
  detail::need_recipes_of(recipe).run(ranks, fn, options);
}

MemoryLimit memory_limit(std::string_view device, std::int64_t limit) {
  auto const* const recipes = detail::recipes_of(device);
  if (recipes && recipes->devices() > 0) return recipes->memory_limit(limit);
  return {.device = limit, .host = HostMemory::available()};
}

UnitLister gpt2_units(Gpt2Options const& model) {
  return [gpt2 = Gpt2(model)](MicroBatch shape) { return gpt2.units(shape); };
}

double gpt2_flops_per_token(Gpt2Options const& model, std::int64_t sequence) {
  return Gpt2(model).flops_per_token(sequence);
}

StepShape step_shape(RecipeTable const& recipe, TrainerOptions const& options, int rank, int world) {
  StepShape shape = step_shape<Cpu>(options, rank, world);
  if (recipe.device == Cuda::name) {  // in a library without its backend too
    shape.workspace_bytes = static_cast<std::int64_t>(cuda::workspace_bytes(shape.batch * shape.sequence));
    shape.own_memory = true;
  }
  return shape;
}

}  // namespace tessera::inline v0
