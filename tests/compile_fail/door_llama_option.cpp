// SPDX-License-Identifier: Apache-2.0
// expect: tessera: unknown or misplaced size of a model. See docs/models.md.
#include <tessera/tessera.hpp>

// Uses the name of a size from Hugging Face and the command line.
namespace ts = tessera;

void make() {
#if defined(TESSERA_TWIN)
  ts::Llama model{{.heads = 8, .key_heads = 4}};
#else
  ts::Llama model{{.heads = 8, .kv_heads = 4}};
#endif
  model.vocabulary();
}
