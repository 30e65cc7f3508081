// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a field is misspelt or has another type. Write TokenOptions{...}, and the compiler names
// the field. See docs/trainer.md.
#include <tessera/tessera.hpp>

// Mistake: a field of TokenOptions is set to a string, but it has another type.
namespace ts = tessera;

void read() {
#if defined(TESSERA_TWIN)
  auto const text = ts::TokenSource::open("train.bin", {.vocabulary = 256});
#else
  auto const text = ts::TokenSource::open("train.bin", {.vocabulary = "256"});
#endif
  (void)text.size();
}
