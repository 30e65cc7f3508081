// SPDX-License-Identifier: Apache-2.0
// Tests that the same set of policies always gives the same type. The order of the policies, defaults that
// are written out, and equivalent spellings must make no difference.
#include "support.hpp"

namespace ts = tessera;
using ts::Gpt2;
using ts::Trainer;

// The order of the policies makes no difference.
using Cuda2 =
    Trainer<Gpt2, ts::On<ts::Cuda>, ts::ZeroStage<2>, ts::Precision<ts::half>, ts::Offload<ts::Cpu>>;
static_assert(std::same_as<Cuda2, Trainer<Gpt2, ts::Offload<ts::Cpu>, ts::Precision<ts::half>,
                                          ts::ZeroStage<2>, ts::On<ts::Cuda>>>);
static_assert(std::same_as<Cuda2, Trainer<Gpt2, ts::ZeroStage<2>, ts::On<ts::Cuda>, ts::Offload<ts::Cpu>,
                                          ts::Precision<ts::half>>>);

// All defaults, written out in reverse order, make no difference.
static_assert(
    std::same_as<Trainer<Gpt2>,
                 Trainer<Gpt2, ts::Parallel<ts::axis::Data>, ts::Attention<ts::Auto>, ts::Capture<ts::Eager>,
                         ts::Communication<ts::Tuned>, ts::Reduction<ts::Ordered>, ts::Recompute<ts::None>,
                         ts::Offload<ts::None>, ts::LossScale<ts::None>, ts::Precision<float>,
                         ts::ZeroStage<0>, ts::On<ts::Cpu>>>);
static_assert(std::same_as<ts::DefaultConfig, ts::Resolved<ts::On<ts::Cpu>>::config>);

// Some defaults depend on other policies. CUDA implies fast reductions and graph capture. half implies
// dynamic loss scaling.
static_assert(std::same_as<Trainer<Gpt2, ts::On<ts::Cuda>>,
                           Trainer<Gpt2, ts::On<ts::Cuda>, ts::Reduction<ts::Fast>, ts::Capture<ts::Graph>>>);
static_assert(std::same_as<Trainer<Gpt2, ts::Precision<ts::half>>,
                           Trainer<Gpt2, ts::LossScale<ts::Dynamic>, ts::Precision<ts::half>>>);
static_assert(std::same_as<Trainer<Gpt2, ts::Precision<ts::bfloat16>>,
                           Trainer<Gpt2, ts::LossScale<ts::None>, ts::Precision<ts::bfloat16>>>);

// Equivalent spellings of a policy give the same type.
static_assert(
    std::same_as<Trainer<Gpt2, ts::Offload<ts::Cpu>>, Trainer<Gpt2, ts::Offload<ts::Optimizer<ts::Cpu>>>>);
static_assert(
    std::same_as<Trainer<Gpt2, ts::Offload<ts::Nvme>>, Trainer<Gpt2, ts::Offload<ts::Optimizer<ts::Nvme>>>>);
static_assert(std::same_as<Trainer<Gpt2, ts::Offload<ts::Cpu, ts::AllState>>,
                           Trainer<Gpt2, ts::Offload<ts::Optimizer<ts::Cpu>, ts::Parameters<ts::Cpu>>>>);
static_assert(std::same_as<Trainer<Gpt2, ts::Offload<ts::Nvme, ts::AllState>>,
                           Trainer<Gpt2, ts::Offload<ts::Parameters<ts::Nvme>, ts::Optimizer<ts::Nvme>>>>);
static_assert(std::same_as<Trainer<Gpt2>, Trainer<Gpt2, ts::Parallel<>>>);
static_assert(
    std::same_as<Trainer<Gpt2, ts::Parallel<ts::axis::Pipeline, ts::axis::Tensor>>,
                 Trainer<Gpt2, ts::Parallel<ts::axis::Data, ts::axis::Tensor, ts::axis::Pipeline>>>);

// Recipes (combinations of policies) that train differently are different types.
static_assert(!std::same_as<Trainer<Gpt2>, Trainer<Gpt2, ts::RootOptimizer>>);
static_assert(
    !std::same_as<Trainer<Gpt2, ts::Offload<ts::Cpu>>, Trainer<Gpt2, ts::Offload<ts::Cpu, ts::AllState>>>);
static_assert(!std::same_as<Trainer<Gpt2, ts::Precision<ts::half>>,
                            Trainer<Gpt2, ts::LossScale<ts::Static>, ts::Precision<ts::half>>>);

// Each policy satisfies the concept of its own slot and no concept of another slot.
static_assert(ts::DevicePolicy<ts::On<ts::Cpu>> && !ts::DevicePolicy<ts::ZeroStage<0>>);
static_assert(ts::ShardingPolicy<ts::RootOptimizer> && ts::ShardingPolicy<ts::ZeroStage<3>>);
static_assert(ts::PrecisionPolicy<ts::Precision<float>> && ts::LossScalePolicy<ts::LossScale<ts::None>>);
static_assert(ts::OffloadPolicy<ts::Offload<ts::Cpu>> && ts::RecomputePolicy<ts::Recompute<ts::Every>>);
static_assert(ts::ReductionPolicy<ts::Reduction<ts::Fast>> && ts::CapturePolicy<ts::Capture<ts::Eager>>);
static_assert(ts::CommunicationPolicy<ts::Communication<ts::Tuned>>);
static_assert(ts::AttentionPolicy<ts::Attention<ts::Auto>> && ts::ParallelPolicy<ts::Parallel<>>);
static_assert(!ts::Policy<int> && !ts::Policy<ts::Cpu> && !ts::Policy<ts::half> && !ts::Policy<ts::tf32>);

// An invalid set of policies gives a recipe that is not legal, but no compile error at this point. A trainer
// with this recipe uses the default recipe instead.
using Wrong = ts::Resolved<ts::ZeroStage<7>, ts::Precision<ts::half>>::config;
static_assert(!ts::is_legal<Wrong> && std::same_as<ts::effective_t<Wrong>, ts::DefaultConfig>);
static_assert(ts::recipe_table<Wrong> == ts::recipe_table<ts::DefaultConfig>);

// device_t and precision_t name the device and the number format for which the engine is compiled.
using Half = ts::Resolved<ts::On<ts::Cuda>, ts::Precision<ts::half>>::config;
static_assert(std::same_as<ts::device_t<Half>, ts::Cuda> && std::same_as<ts::precision_t<Half>, ts::half>);
static_assert(std::same_as<ts::device_t<Wrong>, ts::Cpu> && std::same_as<ts::precision_t<Wrong>, float>);

// A trainer inherits the checks of the rules from an empty base class, which does not increase its size. The
// trainer of these tests has one member, a float.
static_assert(sizeof(Cuda2) == sizeof(float));
