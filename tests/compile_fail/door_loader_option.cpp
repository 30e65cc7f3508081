// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a field is misspelt or has another type. Write LoaderOptions{...}, and the compiler names
// the field. See docs/trainer.md.
#include <tessera/tessera.hpp>

// Mistake: a field of LoaderOptions is misspelt.
namespace ts = tessera;

void read(ts::TokenSource const& text) {
#if defined(TESSERA_TWIN)
  ts::Loader batches(text, {.batch = 4, .sequence = 64});
  ts::Loader standard(text, {});
  standard.load(0);
#else
  ts::Loader batches(text, {.batch = 4, .sequense = 64});
#endif
  batches.load(0);
}
