// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Array<T, Place> does not know the memory of this place. Write Cpu or Cuda. For Cuda,
// include <tessera/cuda.cuh> and compile the file with nvcc. See docs/tensor.md.
#include <tessera/tessera.hpp>

// Makes an array on a GPU in a source of the host compiler. The mistake must give only one error.
namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Place = ts::Cpu;
#else
using Place = ts::Cuda;
#endif

ts::Shape shape_of_array() {
  ts::Array<float, Place> array({2, 3});
  ts::Tensor<float, Place> const view = array;
  return view.shape();
}
