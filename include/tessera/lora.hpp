// SPDX-License-Identifier: Apache-2.0
// Provides the policy Lora, which trains low-rank adapters: includes all of tessera.hpp and the code that
// adds adapters to a model and computes layers with them.
#pragma once

#include "tessera/nn/lora.hpp"
#include "tessera/tessera.hpp"

namespace tessera {
inline namespace v0 {

template <class Place, class T>
inline constexpr AdapterFunctions<Place, T> const* adapter_functions<Lora, Place, T> =
    &lora_functions<Place, T>;

}  // namespace v0
}  // namespace tessera
