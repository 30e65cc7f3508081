// SPDX-License-Identifier: Apache-2.0
// The list of registered recipes, and the way from a table to the engine that runs it.
#include "tessera/policy/rules.hpp"
#include "tessera/train/registry/gpt2.hpp"

namespace tessera::inline v0 {

namespace {

template <class... Ts>
struct Types {};

/// The tables of Trainer<Gpt2, S, P, O> for every S, P and O, shardings outermost.
template <class... S, class... P, class... O>
std::vector<RecipeTable> product(Types<S...>, Types<P...>, Types<O...>) {
  std::vector<RecipeTable> tables;
  auto const with_sharding = [&]<class Sharding>(Types<Sharding>) {
    auto const with_precision = [&]<class Precision>(Types<Precision>) {
      (tables.push_back(recipe_table<typename Resolved<Sharding, Precision, O>::config>), ...);
    };
    (with_precision(Types<P>{}), ...);
  };
  (with_sharding(Types<S>{}), ...);
  return tables;
}

}  // namespace

std::vector<RecipeTable> const& registered_recipes() {
  static std::vector<RecipeTable> const recipes =
      product(Types<RootOptimizer, ZeroStage<0>, ZeroStage<1>, ZeroStage<2>, ZeroStage<3>>{},
              Types<Precision<float>, Precision<half>, Precision<bfloat16>>{},
              Types<Offload<None>, Offload<Optimizer<Cpu>>>{});
  return recipes;
}

std::unique_ptr<AnyTrainer> make_trainer(Gpt2Options const& model, RecipeTable const& recipe, comm::Comm comm,
                                         TrainerOptions const& options) {
  if (auto const rule = broken_rule(recipe)) throw Error(ErrorKind::config, std::string(*rule));
  check_supported(recipe);
  detail::check_options(options, Gpt2(model).positions());
  switch (recipe.types.activation) {
    case DType::f64:
      return detail::make_gpt2<double>(model, recipe, std::move(comm), options);
    case DType::f16:
      return detail::make_gpt2<half>(model, recipe, std::move(comm), options);
    case DType::bf16:
      return detail::make_gpt2<bfloat16>(model, recipe, std::move(comm), options);
    default:
      return detail::make_gpt2<float>(model, recipe, std::move(comm), options);
  }
}

UnitLister gpt2_units(Gpt2Options const& model) {
  return [gpt2 = Gpt2(model)](MicroBatch shape) { return gpt2.units(shape); };
}

double gpt2_flops_per_token(Gpt2Options const& model, std::int64_t sequence) {
  return Gpt2(model).flops_per_token(sequence);
}

StepShape cpu_step_shape(TrainerOptions const& options, int rank, int world) {
  return step_shape<Cpu>(options, rank, world);
}

}  // namespace tessera::inline v0
