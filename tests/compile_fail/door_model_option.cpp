// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a field is misspelt or has another type. Write Gpt2Options{...}, and the compiler names
// the field. See docs/models.md.
#include <tessera/tessera.hpp>

// Mistake: a field of Gpt2Options is misspelt.
namespace ts = tessera;

ts::Gpt2 model() {
#if defined(TESSERA_TWIN)
  ts::Opt const copied(ts::Opt({.layers = 2, .heads = 4}));
  ts::Llama const standard;
  return ts::Gpt2({.layers = 4 * copied.options().layers, .heads = standard.options().heads});
#else
  return ts::Gpt2({.layrs = 4, .heads = 4});
#endif
}
