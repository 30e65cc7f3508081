// SPDX-License-Identifier: Apache-2.0
// Declares the functions through which a linear layer uses its low-rank adapter. They are defined in
// nn/lora.hpp, which tessera.hpp does not include. So programs without adapters do not compile them.
#pragma once

#include <functional>
#include <vector>

#include "tessera/backend/operations.hpp"
#include "tessera/nn/lora_options.hpp"
#include "tessera/nn/pass.hpp"

namespace tessera {
inline namespace v0 {

struct MicroBatch;
struct UnitSpec;

/// Pointers to the functions that create low-rank adapters and compute a linear layer that has an adapter.
/// `forward` computes y from x. `backward_input` computes dx from dy. `backward_weight` computes the
/// gradients of the two matrices of the adapter. `with` has the options of the layer's own matrix product,
/// such as its bias.
template <class Place, class T>
struct AdapterFunctions {
  using In = Tensor<T const, Place>;
  using Out = Tensor<T, Place>;

  using Units = std::function<std::vector<UnitSpec>(MicroBatch)>;

  /// Returns a function that calls `units` and adds the adapters of `lora` to the result.
  Units (*add)(Units units, LoraOptions const& lora);
  void (*forward)(Pass<Place, T>& pass, nn::Adapter const& adapter, In x, Out y,
                  ops::LinearOptions<T, Place> const& with);
  void (*backward_input)(Pass<Place, T>& pass, nn::Adapter const& adapter, In dy, Out dx,
                         ops::LinearInputOptions<T, Place> const& with);
  void (*backward_weight)(Pass<Place, T>& pass, nn::Adapter const& adapter, In x, In dy);
};

}  // namespace v0
}  // namespace tessera
