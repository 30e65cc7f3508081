// SPDX-License-Identifier: Apache-2.0
// What a Linear asks of the adapter beside its weight. The functions are behind a door of their own
// (tessera/lora.hpp), so that programs without adapters do not compile them.
#pragma once

#include <vector>

#include "tessera/backend/operations.hpp"
#include "tessera/nn/lora_options.hpp"
#include "tessera/nn/pass.hpp"

namespace tessera {
inline namespace v0 {

struct MicroBatch;
struct UnitSpec;

/// `with` is what the Linear would do without an adapter.
template <class Place, class T>
struct AdapterFunctions {
  using In = Tensor<T const, Place>;
  using Out = Tensor<T, Place>;

  /// A model's units with their adapters, for a micro-batch.
  std::vector<UnitSpec> (*add)(std::vector<UnitSpec> units, LoraOptions const& lora, MicroBatch shape);
  void (*forward)(Pass<Place, T>& pass, nn::Adapter const& adapter, In x, Out y,
                  ops::LinearOptions<T, Place> const& with);
  void (*backward_input)(Pass<Place, T>& pass, nn::Adapter const& adapter, In dy, Out dx,
                         ops::LinearInputOptions<T, Place> const& with);
  void (*backward_weight)(Pass<Place, T>& pass, nn::Adapter const& adapter, In x, In dy);
};

}  // namespace v0
}  // namespace tessera
