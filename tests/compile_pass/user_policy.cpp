// SPDX-License-Identifier: Apache-2.0
// Tests a policy that is defined outside the library, in one header and without registration. It must behave
// like a built-in policy: any order of the policies gives one type, reports show its name, the placement
// table contains its decisions, and the library's rules apply to it.
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

// The rules of the library check the table that the policies fill. They therefore also apply to policies that
// the library does not know.
using Cudnn = ts::Resolved<ts::On<ts::Cuda>, ts::Precision<ts::half>, WideWire<float>,
                           ts::Attention<ts::Cudnn>>::config;
static_assert(!ts::is_legal<Cudnn>);
static_assert(ts::broken_rule(ts::recipe_table<Cudnn>)->starts_with("Reduction<Ordered> promises"));

// The policy checks its template arguments. A recipe must not have this policy together with another
// reduction policy.
static_assert(!ts::is_legal<ts::Resolved<WideWire<ts::half>>::config>);
static_assert(!ts::is_legal<ts::Resolved<WideWire<float>, ts::Reduction<ts::Fast>>::config>);

// The name of a policy may be any compile-time string. `describe` may be a template.
struct Spelled {
  using policy_slot = ts::slot::offload;
  static constexpr char const* name = "spelled";
  static constexpr void describe(auto&& recipe) { recipe.placement.moments.tier = ts::Tier::host; }
};
using Plain = ts::Trainer<ts::Gpt2, Spelled>;
static_assert(Plain::recipe.names.offload == "spelled");
static_assert(Plain::recipe.placement.moments.tier == ts::Tier::host);

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
