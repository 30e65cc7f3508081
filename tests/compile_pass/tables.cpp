// SPDX-License-Identifier: Apache-2.0
// Compares the placement of training state that each sharding and offload policy defines with expected
// values.
#include "support.hpp"

namespace ts = tessera;
using enum ts::Sharding;
using enum ts::Tier;

template <class... Policies>
inline constexpr ts::RecipeTable recipe = ts::recipe_table<typename ts::Resolved<Policies...>::config>;

template <class... Policies>
inline constexpr ts::PlacementTable placement = recipe<Policies...>.placement;

// A PlacementTable has four members, in this order: the placements of parameters, gradients, master weights
// and moments.
static_assert(placement<ts::ZeroStage<0>> ==
              ts::PlacementTable{{replicated}, {replicated}, {replicated}, {replicated}});
static_assert(placement<ts::ZeroStage<1>> ==
              ts::PlacementTable{{replicated}, {replicated}, {sharded}, {sharded}});
static_assert(placement<ts::ZeroStage<2>> ==
              ts::PlacementTable{{replicated}, {sharded}, {sharded}, {sharded}});
static_assert(placement<ts::ZeroStage<3>> == ts::PlacementTable{{sharded}, {sharded}, {sharded}, {sharded}});
static_assert(placement<ts::RootOptimizer> == ts::PlacementTable{{replicated}, {owned}, {owned}, {owned}});
static_assert(recipe<ts::ZeroStage<3>>.stage == 3 && recipe<ts::RootOptimizer>.stage == -1);
static_assert(recipe<ts::ZeroStage<1>>.names.sharding == "zs1" &&
              recipe<ts::RootOptimizer>.names.sharding == "dp");

// Whether Offload<Parts...> places the parameters, the gradients and the optimizer state on these memory
// tiers and has the name `name`.
template <class... Parts>
constexpr bool placed(ts::Tier parameters, ts::Tier gradients, ts::Tier optimizer, std::string_view name) {
  constexpr ts::RecipeTable table = recipe<ts::Offload<Parts...>>;
  return table.placement.parameters.tier == parameters && table.placement.gradients.tier == gradients &&
         table.placement.master.tier == optimizer && table.placement.moments.tier == optimizer &&
         table.names.offload == name;
}
template <class Place>
using Opt = ts::Optimizer<Place>;
template <class Place>
using Par = ts::Parameters<Place>;
static_assert(placed<ts::None>(device, device, device, "none"));
static_assert(placed<ts::Cpu>(device, device, host, "cpu_optimizer"));
static_assert(placed<ts::Nvme>(device, device, nvme, "nvme_optimizer"));
static_assert(placed<ts::Cpu, ts::AllState>(host, host, host, "cpu_full"));
static_assert(placed<Opt<ts::Nvme>, Par<ts::Cpu>>(host, host, nvme, "infinity"));
// The accumulated gradient stays in host memory, even if all other state is on NVMe.
static_assert(placed<ts::Nvme, ts::AllState>(nvme, host, nvme, "nvme"));
static_assert(placed<Opt<ts::Cpu>, Par<ts::Nvme>>(nvme, host, host, "nvme_parameters"));

// With one rank, nothing is sharded: every sharding policy equals ZeRO stage 0 with the same offload.
template <class Offload>
constexpr bool alone_all_stages_agree() {
  constexpr ts::PlacementTable plain = placement<ts::ZeroStage<0>, Offload>;
  return ts::at_world(plain, 1) == plain && ts::at_world(placement<ts::ZeroStage<1>, Offload>, 1) == plain &&
         ts::at_world(placement<ts::ZeroStage<2>, Offload>, 1) == plain &&
         ts::at_world(placement<ts::ZeroStage<3>, Offload>, 1) == plain &&
         ts::at_world(placement<ts::RootOptimizer, Offload>, 1) == plain;
}
static_assert(alone_all_stages_agree<ts::Offload<ts::None>>());
static_assert(alone_all_stages_agree<ts::Offload<ts::Cpu>>());
static_assert(alone_all_stages_agree<ts::Offload<ts::Cpu, ts::AllState>>());
static_assert(alone_all_stages_agree<ts::Offload<Opt<ts::Nvme>, Par<ts::Cpu>>>());
static_assert(ts::at_world(placement<ts::ZeroStage<3>>, 2) == placement<ts::ZeroStage<3>>);
// A flat group is one buffer with the parameters of one layer. Returns the number of ranks that own flat
// groups if `world` ranks train. `owners` is the number that the policy requests; 0 means all ranks. The
// result is at most `world`.
constexpr int owners_at(int world, int owners) {
  ts::PlacementTable rows = placement<ts::RootOptimizer>;
  rows.owners = owners;
  return ts::at_world(rows, world).owners;
}
static_assert(placement<ts::RootOptimizer>.owners == 1 && owners_at(4, 1) == 1 && owners_at(4, 3) == 3);
static_assert(owners_at(4, 0) == 4 && owners_at(4, 9) == 4 && owners_at(1, 3) == 1);

// Whether Precision<T> has the name `name` and these formats: `stored` for parameters, activations,
// micro-batch gradients and gradients that are sent, `summed` for accumulated gradients and master weights.
template <class T>
constexpr bool has_types(ts::DType stored, ts::DType summed, std::string_view name) {
  constexpr ts::RecipeTable table = recipe<ts::On<ts::Cuda>, ts::Attention<ts::Reference>, ts::Precision<T>>;
  return table.types == ts::DTypes{stored, stored, stored, stored, summed, summed} &&
         table.names.precision == name && table.precision == ts::dtype_of<T>;
}
static_assert(has_types<float>(ts::DType::f32, ts::DType::f32, "fp32"));
static_assert(has_types<ts::tf32>(ts::DType::f32, ts::DType::f32, "tf32"));
static_assert(has_types<ts::bf16x6>(ts::DType::f32, ts::DType::f32, "bf16x6"));
static_assert(has_types<ts::bf16x3>(ts::DType::f32, ts::DType::f32, "bf16x3"));
static_assert(has_types<ts::half>(ts::DType::f16, ts::DType::f32, "fp16"));
static_assert(has_types<ts::bfloat16>(ts::DType::bf16, ts::DType::f32, "bf16"));
static_assert(has_types<double>(ts::DType::f64, ts::DType::f64, "fp64"));

// Master weights are a separate copy in three cases: their format differs from the format of the parameters,
// their memory tier differs, or a rank has a larger part of them than of the parameters.
static_assert(!ts::has_separate_master(recipe<>) && !ts::has_separate_master(recipe<ts::Precision<double>>));
static_assert(!ts::has_separate_master(recipe<ts::Offload<ts::Cpu, ts::AllState>>));
static_assert(ts::has_separate_master(recipe<ts::Precision<ts::bfloat16>>));
static_assert(ts::has_separate_master(recipe<ts::Offload<ts::Cpu>>));
static_assert(!ts::has_separate_master(recipe<ts::ZeroStage<1>>) &&
              !ts::has_separate_master(recipe<ts::ZeroStage<3>>));

// Compares the names of all policies in a recipe with the expected names: first in a recipe with all
// defaults, then in a recipe with other policies.
static_assert(recipe<>.names == ts::SlotNames{"cpu", "zs0", "fp32", "none", "none", "none", "ordered",
                                              "tuned", "eager", "auto", "data", "none"});
static_assert(recipe<ts::On<ts::Cuda>, ts::Precision<ts::half>>.names ==
              ts::SlotNames{"cuda", "zs0", "fp16", "dynamic", "none", "none", "fast", "tuned", "graph",
                            "auto", "data", "none"});
static_assert(recipe<ts::On<ts::Cuda>>.device == ts::Device::cuda && recipe<>.device == ts::Device::cpu);
static_assert(recipe<ts::Precision<ts::half>>.loss_scale == ts::LossScaleKind::dynamic);
static_assert(recipe<ts::Precision<ts::half>, ts::LossScale<ts::Static>>.loss_scale ==
              ts::LossScaleKind::fixed);
static_assert(recipe<ts::Recompute<ts::Gelu>>.recompute == ts::RecomputeKind::gelu);
static_assert(recipe<ts::Recompute<ts::Block>>.recompute == ts::RecomputeKind::block);
static_assert(recipe<ts::Recompute<ts::Every>>.names.recompute == "every");
static_assert(recipe<>.reduction == ts::ReductionKind::ordered);
static_assert(recipe<ts::On<ts::Cuda>>.reduction == ts::ReductionKind::fast);
static_assert(recipe<>.capture == ts::CaptureKind::eager);
static_assert(recipe<ts::On<ts::Cuda>>.capture == ts::CaptureKind::graph);
static_assert(recipe<ts::Attention<ts::Fused>>.attention == ts::AttentionKind::fused);
static_assert(recipe<ts::Parallel<ts::axis::Tensor>>.axes == ts::Axes{true, false});
static_assert(recipe<ts::Parallel<ts::axis::Tensor, ts::axis::Pipeline>>.names.parallel ==
              "data+tensor+pipeline");
