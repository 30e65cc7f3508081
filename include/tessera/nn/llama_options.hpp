// SPDX-License-Identifier: Apache-2.0
// Defines the sizes of a LLaMA. The code of the model is in nn/llama.hpp, so programs can use the sizes
// without compiling the model.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// The sizes of a LLaMA. The defaults are LLaMA-2 7B.
struct LlamaOptions {
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::int64_t key_heads = 32;  ///< number of key and value heads; a divisor of `heads`
  std::int64_t channels = 4096;
  std::int64_t hidden = 11008;
  std::int64_t positions = 4096;  ///< the longest sequence; no parameter depends on it
  std::int64_t vocabulary = 32000;
  bool tied = false;                ///< the weight of the head is the token embedding
  std::int64_t padding_token = -1;  ///< a token whose embedding gets no gradient from inputs; negative: none
  double norm_epsilon = 1e-5;
  double rotary_theta = 10000.0;
  /// Llama 3's scaling of rotary frequencies (rope_scaling in Hugging Face). A factor of 0 means no scaling.
  double rotary_factor = 0.0, rotary_low_frequency = 1.0, rotary_high_frequency = 4.0,
         rotary_positions = 8192.0;
};

}  // namespace v0
}  // namespace tessera
