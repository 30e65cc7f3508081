// SPDX-License-Identifier: Apache-2.0
// Defines the sizes of an OPT. The code of the model is in nn/opt.hpp, so programs can use the sizes without
// compiling the model.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// The sizes of an OPT. The defaults are the model with 125 million parameters.
struct OptOptions {
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t channels = 768;
  std::int64_t hidden = 3072;
  std::int64_t positions = 2048;
  std::int64_t vocabulary = 50272;
  std::int64_t padding_token = 1;  ///< a token whose embedding gets no gradient from inputs; negative: none
};

}  // namespace v0
}  // namespace tessera
