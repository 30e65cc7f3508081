// SPDX-License-Identifier: Apache-2.0
// Defines a macro that compiles the functions of a model into tessera::recipes. The class Trainer gets these
// compiled functions from detail::library_functions.
#pragma once

#include "tessera/train/compiled_model.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

template <class M, class Place, class T>
UnitFunctions<Place, T> library_functions() {
  return unit_functions<M, Place, T>();
}

}  // namespace detail

#define TESSERA_LIBRARY_FUNCTIONS_ON(M, P)                                 \
  namespace detail {                                                       \
  template UnitFunctions<P, float> library_functions<M, P, float>();       \
  template UnitFunctions<P, double> library_functions<M, P, double>();     \
  template UnitFunctions<P, half> library_functions<M, P, half>();         \
  template UnitFunctions<P, bfloat16> library_functions<M, P, bfloat16>(); \
  }
#if defined(TESSERA_RECIPES_CUDA)
#define TESSERA_LIBRARY_FUNCTIONS(M)   \
  TESSERA_LIBRARY_FUNCTIONS_ON(M, Cpu) \
  TESSERA_LIBRARY_FUNCTIONS_ON(M, Cuda)
#else
#define TESSERA_LIBRARY_FUNCTIONS(M) TESSERA_LIBRARY_FUNCTIONS_ON(M, Cpu)
#endif

}  // namespace v0
}  // namespace tessera
