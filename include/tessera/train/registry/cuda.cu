// SPDX-License-Identifier: Apache-2.0
// What the library offers on GPUs.
#include "tessera/cuda.cuh"
#include "tessera/train/registry/gpt2.hpp"

namespace tessera::inline v0 {
namespace detail {

extern template std::unique_ptr<AnyTrainer> make_gpt2<Cuda, float>(Gpt2Options const&, RecipeTable const&,
                                                                   comm::Comm, TrainerOptions const&);
extern template std::unique_ptr<AnyTrainer> make_gpt2<Cuda, double>(Gpt2Options const&, RecipeTable const&,
                                                                    comm::Comm, TrainerOptions const&);
extern template std::unique_ptr<AnyTrainer> make_gpt2<Cuda, half>(Gpt2Options const&, RecipeTable const&,
                                                                  comm::Comm, TrainerOptions const&);
extern template std::unique_ptr<AnyTrainer> make_gpt2<Cuda, bfloat16>(Gpt2Options const&, RecipeTable const&,
                                                                      comm::Comm, TrainerOptions const&);

DeviceRecipes const* cuda_recipes() {
  static DeviceRecipes const recipes{&make_gpt2_of<Cuda>, &step_shape<Cuda>,
                                     [] {
                                       int count = 0;
                                       return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
                                     },
                                     &memory_limit<Cuda>, &run_on_gpus};
  return &recipes;
}

}  // namespace detail
}  // namespace tessera::inline v0
