// SPDX-License-Identifier: Apache-2.0
// expect: tessera: this device has no layer normalisation. Specialise backend::LayerNorm for it. For GPUs,
// include tessera/cuda.cuh. See docs/how-to/add-an-operation.md.
#include <tessera/ops/layer_norm.hpp>

// A user's device. It has a context, but its operations are not defined yet.
namespace ts = tessera;

struct Abacus {};
template <>
class ts::Context<Abacus> {
 public:
  template <class F>
  void enqueue(ts::Operation const&, F&& body) {
    body();
  }
};

#if defined(TESSERA_TWIN)
using Place = ts::Cpu;
#else
using Place = Abacus;
#endif

void normalise(ts::Context<Place>& context, ts::Tensor<float, Place> x, ts::Tensor<float, Place> statistic) {
  ts::ops::layer_norm_forward(context, x, x, x, 1e-5, x, statistic, statistic);
}
