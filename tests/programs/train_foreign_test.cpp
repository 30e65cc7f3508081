// SPDX-License-Identifier: Apache-2.0
// Tests the program `train` with weight files of other tools. `train` reads the files of llm.c. It refuses
// pickles and other formats, and the error must name the format.
#include "programs/train.hpp"

using test::each, test::Train;

namespace {

/// Runs commands in a folder that has one model in three files: in the two formats of llm.c and as
/// safetensors.
struct Foreign : Train {
  std::string const model =
      "train --model layers=2,heads=2,channels=4,positions=8 --vocabulary 5 --sequence 8 --steps 0 ";
  std::string const any = "train --sequence 8 --steps 0 ";
  Foreign() {
    passes(
        R"(cp "$TESSERA_SOURCE"/tests/programs/train/llmc/*.bin "$TESSERA_SOURCE"/tests/programs/train/llmc/same.safetensors .)");
  }
};

}  // namespace

TEST_CASE(
    "train foreign: both formats of llm.c equal a safetensors file, as --model, --init and saved as a "
    "folder") {
  Foreign const sh;
  sh.passes(sh.model + "--init same.safetensors --save want.safetensors");
  for (std::string const file : {"fp32.bin", "bf16.bin"})
    for (std::string const& command :
         {sh.any + "--model " + file, sh.model + "--ranks 3 --stage 3 --seed 9 --init " + file,
          sh.any + "--save folder --model " + file + " && " + sh.any + "--model folder"}) {
      INFO(command);
      sh.passes(command + " --save got.safetensors");
      CHECK(sh.equal("want.safetensors", "got.safetensors"));
    }
  sh.refuses(sh.model,
             "4 | --init fp32.bin --model layers=3,heads=2,channels=4,positions=8 | "
             "fp32.bin: does not fit the model | layers=2,channels=4,positions=8 and vocabulary 5");
  sh.refuses(sh.any,
             "2 | --model same.safetensors | same.safetensors is a file, but only files of llm.c contain the "
             "sizes of their model | --init");
}

TEST_CASE("train foreign: damaged files of llm.c, and other files of llm.c than weights") {
  Foreign const sh;
  sh.passes(R"(
      head -c -1 fp32.bin > cut.bin; head -c 900 fp32.bin > stub.bin; head -c 4 fp32.bin > four.bin
      cp fp32.bin long.bin; printf x >> long.bin
      changed() { cp fp32.bin $1.bin; printf $3 | dd of=$1.bin bs=1 seek=$2 conv=notrunc status=none; }
      changed version 4 '\001'; changed heads 20 '\003'; changed headless 20 '\000'
      changed negative 24 '\377\377\377\377'; changed rows 28 '\004'
      changed state 0 '\117\330\064\001'  # 20240463 is nothing
      changed optimizer 0 '\217\330\064\001'  # 20240527
      changed debug 0 '\307\327\064\001'  # 20240327
      changed tokens 0 '\210\330\064\001'  # 20240520)");
  std::string const rows = R"(
      4 | FLAG cut.bin | cut.bin: holds 3,263 bytes | says 3,264 | copy it again
      4 | FLAG long.bin | holds 3,265 bytes | says 3,264
      4 | FLAG stub.bin | stub.bin: is cut short: 900 bytes
      4 | FLAG four.bin | four.bin: is cut short: 4 bytes
      4 | FLAG version.bin | version.bin: has version 1 | 3 (fp32) and 5 (bf16)
      4 | FLAG heads.bin | heads.bin: has an impossible header | heads 3, channels 4
      4 | FLAG headless.bin | headless.bin: has an impossible header | heads 0
      4 | FLAG negative.bin | impossible header | channels -1
      4 | FLAG rows.bin | impossible header | vocabulary 5 in rows 4
      4 | FLAG optimizer.bin | optimizer.bin: is the optimizer state of an llm.c run
      4 | FLAG debug.bin | debug.bin: is a debug state of llm.c
      4 | FLAG tokens.bin | tokens.bin: are tokens of llm.c | --data
      4 | FLAG state.bin | begins with the number 20240463, but weights of llm.c begin with 20240326)";
  sh.refuses(sh.model, each("FLAG", "--init", rows));
  sh.refuses(sh.any, each("FLAG", "--model", rows));
}

TEST_CASE(
    "train foreign: pickles are refused by every flag that reads weights, with a command that converts "
    "them") {
  Foreign const sh;
  sh.passes(R"(mkdir hub gpt meta
      printf 'PK\003\004................pytorch_model/data.pklFB..wte.weight' > hub/pytorch_model.bin; cp hub/pytorch_model.bin plain.bin
      printf 'PK\003\004................ckpt/data.pklFB..model_args' > gpt/ckpt.pt
      printf 'PK\003\004................consolidated.00/data.pklFB..tok_embeddings.weight' > meta/consolidated.00.pth
      printf '\200\002}q' > old.pt; printf 'PK\003\004................values.npy' > other.npz
      : a header length of 66,176 bytes that looks like the start of a pickle
      printf '\200\002\001\000\000\000\000\000{' > long.safetensors)");
  sh.refuses(sh.model, each("FLAG", "--init --model", R"(
      4 | FLAG plain.bin | plain.bin: is a pickle of PyTorch, which may run code when it is read | torch.load('plain.bin', map_location='cpu', weights_only=True) | 'plain.safetensors'
      4 | FLAG gpt | gpt/ckpt.pt: is a pickle | ['model'] | removeprefix('_orig_mod.')
      4 | FLAG meta | consolidated.00.pth: is a pickle | convert_llama_weights_to_hf --input_dir meta --output_dir meta/hf
      4 | FLAG hub | hub)"));
  sh.refuses(sh.model, R"(
      4 | --init old.pt | old.pt: is a pickle
      4 | --init long.safetensors | long.safetensors: its first 8 bytes say that the header has 66176 bytes
      4 | --checkpoint gpt --resume | gpt/ckpt.pt: is a pickle
      4 | --init other.npz | other.npz)");
  // `train` also refuses a pickle in a folder that has a config.json. `train` starts from the initial weights
  // of the seed only if the folder has no weights in any format.
  sh.passes(sh.any + "--model fp32.bin --save named; rm named/model.safetensors");
  CHECK(
      test::has(sh.run(sh.any + "--model named").err, "no weights: the training starts from random weights"));
  sh.passes("cp old.pt named/weights.pt");
  sh.refuses(sh.any, "4 | --model named | named/weights.pt: is a pickle");
}

TEST_CASE("train foreign: pointer files of Git LFS") {
  Foreign const sh;
  sh.write("pointer.safetensors",
           "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548105171\n");
  sh.passes(
      "mkdir cloned; for file in model.safetensors config.json tokenizer.json; do cp pointer.safetensors "
      "cloned/$file; done");
  sh.refuses(sh.model, R"(
      4 | --init pointer.safetensors | pointer.safetensors: is a pointer of Git LFS | git lfs pull
      4 | --model pointer.safetensors | pointer.safetensors: is a pointer of Git LFS
      4 | --model cloned | cloned/config.json: is a pointer of Git LFS
      4 | --init cloned | cloned/model.safetensors: is a pointer of Git LFS
      4 | --steps 1 --data text.txt --tokenizer cloned/tokenizer.json | cloned/tokenizer.json: is a pointer of Git LFS
      4 | --steps 1 --data pointer.safetensors | pointer.safetensors: is a pointer of Git LFS)");
}
