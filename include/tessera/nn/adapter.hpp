// SPDX-License-Identifier: Apache-2.0
// Declares the functions through which a Linear uses its adapter. They are defined behind tessera/lora.hpp,
// so that programs without adapters do not compile them.
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

/// `with` holds the options that the Linear would use without an adapter.
template <class Place, class T>
struct AdapterFunctions {
  using In = Tensor<T const, Place>;
  using Out = Tensor<T, Place>;

  using Units = std::function<std::vector<UnitSpec>(MicroBatch)>;

  /// Adds adapters to a model's units.
  Units (*add)(Units units, LoraOptions const& lora);
  void (*forward)(Pass<Place, T>& pass, nn::Adapter const& adapter, In x, Out y,
                  ops::LinearOptions<T, Place> const& with);
  void (*backward_input)(Pass<Place, T>& pass, nn::Adapter const& adapter, In dy, Out dx,
                         ops::LinearInputOptions<T, Place> const& with);
  void (*backward_weight)(Pass<Place, T>& pass, nn::Adapter const& adapter, In x, In dy);
};

}  // namespace v0
}  // namespace tessera
