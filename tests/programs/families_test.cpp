// SPDX-License-Identifier: Apache-2.0
// Tests the program tessera_families. It is the program `train` with an additional model family, `mlp`, which
// is not part of the library.
#include "programs/train.hpp"

using test::Train;

TEST_CASE("families: models by name and by sizes train, and their saved weights are read again") {
  Train const sh;
  std::string const train = "tessera_families --data text.txt --sequence 8 --batch 2 --steps 2 --model ";
  sh.passes(
      train + "mlp-small --precision bf16 --ranks 2 --stage 3 --log log.jsonl --save weights.safetensors",
      "mlp-small, [0-9,]+ parameters");
  sh.logs(
      "log.jsonl",
      R"({"model": "mlp-small", "layers": 2, "channels": 24, "hidden": 40, "positions": 1024, "vocabulary": 256})");
  sh.passes(train + "mlp:layers=2,channels=24,hidden=40 --init weights.safetensors");
  sh.passes(train + "mlp:channels=24,layers=2,positions=9 --log own.jsonl");
  sh.logs("own.jsonl", R"({"model": "mlp:layers=2,channels=24,positions=9", "hidden": 96})");
  sh.passes(train + "gpt2:layers=1,heads=2,channels=16");
  sh.passes("tessera_families --help", "mlp-small");
}

TEST_CASE("families: refusals give the sizes and the models of the family, and its own limits") {
  Train const sh;
  sh.refuses("tessera_families --model", R"(
      3 | mlp-words --data text.txt --sequence 129 | --sequence 129 | 128 positions of mlp-words
      2 | mlp:layers=2 | lacks channels | write mlp:layers=L,channels=C[,hidden=H][,positions=P]
      2 | mlp:layers=2,heads=2 | 'heads' is not known | layers, channels, hidden, positions
      2 | mlpp:layers=2 | 'mlpp' is not known, the nearest is 'mlp'
      2 | mlp-smal | mlp-small, mlp-words, name a folder with a config.json or a file of llm.c, or write layers=L,heads=H,channels=C[,positions=P] or | or mlp:layers=L
      3 | opt-350m | model opt-350m normalises after its blocks | word_embed_proj_dim 512 | which OPT models do not support here
      3 | mlp-small --data text.txt --sequence 8 --batch 2 --steps 2 --save folder | MLP models have no config.json | .safetensors)");
}
