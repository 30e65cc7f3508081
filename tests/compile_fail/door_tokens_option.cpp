// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a field is misspelt or has another type. Write LoaderOptions{...}, and the compiler
// names the field. See docs/trainer.md.
#include <tessera/tessera.hpp>

// Mistake: a field of LoaderOptions is misspelt in a call of data::tokens.
namespace ts = tessera;

void read() {
#if defined(TESSERA_TWIN)
  auto batches = ts::data::tokens("train.bin", {.batch = 4, .sequence = 64}, {.vocabulary = 256});
#else
  auto batches = ts::data::tokens("train.bin", {.batch = 4, .sequense = 64});
#endif
  batches.loader().load(0);
}
