// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a field is misspelt or has another type. Write LlamaOptions{...}, and the compiler names
// the field. See docs/models.md.
#include <tessera/tessera.hpp>

// Mistake: a field has the name that Hugging Face and the command line use, not the name in LlamaOptions.
namespace ts = tessera;

void make() {
#if defined(TESSERA_TWIN)
  ts::Llama model{{.heads = 8, .key_heads = 4}};
#else
  ts::Llama model{{.heads = 8, .kv_heads = 4}};
#endif
  model.vocabulary();
}
