// SPDX-License-Identifier: Apache-2.0
// names: learning_rat rnk layrs sequense vocab tokenz batch batch batch
#include <tessera/data/batch.hpp>
#include <tessera/nn/gpt2_options.hpp>
#include <tessera/train/options.hpp>

// Mistake: each case misspells a field or gives fields in the wrong order. The compiler's own error must name
// the field.
namespace ts = tessera;

#if defined(TESSERA_TWIN)
ts::TrainerOptions options{.learning_rate = 1e-3, .batch = 2, .lora = {.rank = 4}};
ts::Gpt2Options sizes{.layers = 2, .heads = 2};
auto batches =
    ts::data::tokens("train.bin", ts::LoaderOptions{.batch = 2}, ts::TokenOptions{.vocabulary = 256});
#elif TESSERA_CASE == 0
ts::TrainerOptions options{.learning_rat = 1e-3};
#elif TESSERA_CASE == 1
ts::TrainerOptions options{.lora = {.rnk = 4}};
#elif TESSERA_CASE == 2
ts::Gpt2Options sizes{.layrs = 2};
#elif TESSERA_CASE == 3
auto batches = ts::data::tokens("train.bin", ts::LoaderOptions{.batch = 2, .sequense = 64});
#elif TESSERA_CASE == 4
auto source = ts::TokenSource::open("train.bin", ts::TokenOptions{.vocab = 256});
#elif TESSERA_CASE == 5
ts::Batch batch{.batch = 2, .tokenz = {}};
#elif TESSERA_CASE == 6
ts::Batch batch{.sequence = 64, .batch = 2};
#elif TESSERA_CASE == 7
extern ts::TokenSource const text;
ts::Loader loader(text, {.sequence = 64, .batch = 2});
#elif TESSERA_CASE == 8
auto batches = ts::data::tokens("train.bin", {.sequence = 64, .batch = 2});
#endif
