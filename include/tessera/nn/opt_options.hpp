// SPDX-License-Identifier: Apache-2.0
// Defines the sizes of an OPT, separately from its code, so that programs can name it without compiling it.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// The defaults are the 125M model.
struct OptOptions {
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t channels = 768;
  std::int64_t hidden = 3072;
  std::int64_t positions = 2048;
  std::int64_t vocabulary = 50272;
  std::int64_t padding_token = 1;  ///< gets no gradient from its lookups; negative: none
};

}  // namespace v0
}  // namespace tessera
