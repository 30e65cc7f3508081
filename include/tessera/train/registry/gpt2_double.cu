// SPDX-License-Identifier: Apache-2.0
// The engine and GPT-2's units in double on a GPU.
#include "tessera/cuda.cuh"
#include "tessera/train/registry/gpt2.hpp"

namespace tessera::inline v0 {
namespace detail {

template std::unique_ptr<AnyTrainer> make_gpt2<Cuda, double>(Gpt2Options const&, RecipeTable const&,
                                                             comm::Comm, TrainerOptions const&);

}  // namespace detail
}  // namespace tessera::inline v0
