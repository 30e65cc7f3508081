// SPDX-License-Identifier: Apache-2.0
// Defines the sizes of a GPT-2. The code of the model is in nn/gpt2.hpp, so programs can use the sizes
// without compiling the model.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// The sizes of a GPT-2. The defaults are the model with 124 million parameters.
struct Gpt2Options {
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t channels = 768;
  std::int64_t positions = 1024;
  std::int64_t vocabulary = 50257;
};

}  // namespace v0
}  // namespace tessera
