// SPDX-License-Identifier: Apache-2.0
// A policy written outside the library, in one header and without any registration, stands beside the
// built-in ones: any order, one type, its name in every report, its decisions in the table, the same rules.
#include "host_accumulator.hpp"
#include "support.hpp"
#include "wide_wire.hpp"

namespace ts = tessera;

using Run = ts::Trainer<ts::Gpt2, HostAccumulator, ts::ZeroStage<2>, ts::Precision<ts::bfloat16>>;
static_assert(
    std::same_as<Run, ts::Trainer<ts::Gpt2, ts::Precision<ts::bfloat16>, HostAccumulator, ts::ZeroStage<2>>>);
static_assert(!std::same_as<Run, ts::Trainer<ts::Gpt2, ts::Precision<ts::bfloat16>, ts::ZeroStage<2>>>);
static_assert(ts::OffloadPolicy<HostAccumulator>);
static_assert(Run::recipe.names.offload == "host_accumulator");
static_assert(Run::recipe.placement.gradients.tier == ts::Tier::host);
static_assert(Run::recipe.placement.parameters.tier == ts::Tier::device);
static_assert(Run::recipe.placement.gradients.over == ts::Sharding::sharded);

using Wide = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::Precision<ts::half>, WideWire<float>>;
static_assert(Wide::recipe.names.reduction == "wide32");
static_assert(Wide::recipe.types.wire == ts::DType::f32 &&
              Wide::recipe.types.micro_gradient == ts::DType::f16);

// Rules read the table, so they hold for policies that their author never saw.
using Cudnn = ts::Resolved<ts::On<ts::Cuda>, ts::Precision<ts::half>, WideWire<float>,
                           ts::Attention<ts::Cudnn>>::config;
static_assert(!ts::is_legal<Cudnn>);
static_assert(ts::broken_rule(ts::recipe_table<Cudnn>)->starts_with("Reduction<Ordered> promises"));

// Its own arguments, and its slot's uniqueness, are guarded alike.
static_assert(!ts::is_legal<ts::Resolved<WideWire<ts::half>>::config>);
static_assert(!ts::is_legal<ts::Resolved<WideWire<float>, ts::Reduction<ts::Fast>>::config>);

// A name may be any text that is there while compiling, and describe a template.
struct Spelled {
  using policy_slot = ts::slot::offload;
  static constexpr char const* name = "spelled";
  static constexpr void describe(auto&& recipe) { recipe.placement.moments.tier = ts::Tier::host; }
};
using Plain = ts::Trainer<ts::Gpt2, Spelled>;
static_assert(Plain::recipe.names.offload == "spelled");
static_assert(Plain::recipe.placement.moments.tier == ts::Tier::host);

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
