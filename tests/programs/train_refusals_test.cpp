// SPDX-License-Identifier: Apache-2.0
// Tests the exit codes and the error messages of the program `train` for wrong command lines, settings and
// data.
#include "programs/train.hpp"

using test::each, test::Train;

TEST_CASE("train refusals: unknown flags and values name the nearest") {
  Train const sh;
  sh.refuses("train", R"(
      2 | --stpes 3 | --stpes | --steps
      2 | -x | -x
      2 | --num_gpus 2 | '--num_gpus' is a flag of the launcher | deepspeed --no_python --num_gpus N | use --ranks N
      2 | --nproc-per-node=2 | '--nproc-per-node' is a flag of the launcher | torchrun --nproc-per-node N
      2 | --hostfile hosts | '--hostfile' is a flag of the launcher
      2 | tiny | tiny | values follow their flag
      2 | --steps | --steps needs a value
      2 | --quiet=yes | --quiet takes no value
      2 | --product-plans | --product-plans needs a value
      2 | --stage 7 | --stage | '7'
      2 | --gpus 65 | --gpus is 65; give a whole number from 1 to 64
      2 | --ranks 65 | --ranks is 65; give
      2 | --stage -1 | --stage | '-1'
      2 | --precision fp17 | --precision | 'fp17' | fp16
      2 | --offload cpu_full_ | --offload | 'cpu_full_' | cpu_full
      2 | --recompute blocks | --recompute | 'blocks' | block
      2 | --reduction order | --reduction | 'order' | ordered
      2 | --attention fusd | --attention | 'fusd' | fused
      2 | --order shufled | --order | 'shufled' | shuffled
      2 | --schedule cosin | --schedule | 'cosin' | cosine
      2 | --model gpt2-mediun | --model | 'gpt2-mediun' | gpt2-medium
      2 | --model layers=1,channels=8 | --model | lacks heads
      2 | --model layers=0,heads=1,channels=8 | --model
      3 | --model layers=1,heads=5,channels=8 | 5 heads do not divide 8 channels
      3 | --model opt-350m | model opt-350m normalises after its blocks | which OPT models do not support here)");
}

TEST_CASE("train refusals: --freeze needs a valid and fast regular expression that leaves some parameters") {
  Train const sh;
  sh.refuses(sh.small, R"(
      2 | --freeze 'h(' | --freeze | 'h(' | is not a regular expression (missing closing parenthesis, after 2 letters)
      2 | --freeze '([a-z0-9._]+)+[!?]' | --freeze '([a-z0-9._]+)+[!?]': takes too long on
      3 | --freeze layers | --freeze 'layers': freeze matches none of the | names are like
      3 | --freeze '[.]' | --freeze '[.]': freeze leaves none of the | match fewer)");
  sh.refuses(sh.small + "--freeze $(printf '(%.0s' $(seq 60000); printf 'h'; printf ')%.0s' $(seq 60000))",
             "2 |  | --freeze | '(((( | is not a regular expression | too deeply nested");
}

TEST_CASE("train refusals: numbers have a form and a range") {
  Train const sh;
  std::string const row = "2 | FLAG VALUE | FLAG | VALUE";
  sh.refuses(
      "train",
      each("FLAG", "--batch --sequence --accumulation --ranks --global-batch --vocabulary --epochs --samples",
           each("VALUE", "0 -1 nan 1.5 3x 0x10 99999999999999999999 1e3", row)));
  sh.refuses("train", each("FLAG", "--steps --warmup-steps --validate-every --seed --threads",
                           each("VALUE", "-1 nan 1.5 3x 99999999999999999999", row)));
  sh.refuses("train",
             each("FLAG", "--learning-rate --beta1 --beta2 --epsilon --weight-decay --clip --min-time",
                  each("VALUE", "nan inf -inf -1 1e999 abc 1,5 0x1p3", row)));
  sh.refuses("train", each("FLAG", "--learning-rate --lr --epsilon --weight-decay --clip",
                           "2 | FLAG 1e39 | 1e39 | 3.40282e+38"));  // 1e39 exceeds fp32
  sh.refuses("train",
             each("VALUE", "0 1e-38 1e-300", "2 | --epsilon VALUE | --epsilon is VALUE | 1.17549e-38"));
  sh.refuses("train", R"(
      2 | --accumulation 16385 | --accumulation is 16385 | 1 to 16384
      2 | --beta1 1 | --beta1 | below 1
      2 | --beta2 1.5 | --beta2 | below 1
      2 | --ranks 65 | --ranks | 64
      2 | --seed 18446744073709551616 | --seed | from 0 to 18446744073709551615)");
}

TEST_CASE("train refusals: settings that contradict each other") {
  Train const sh;
  sh.refuses(sh.small, R"(
      2 | --bf16 --precision bf16 | --precision, --bf16 and --fp16 all say | give one of them
      2 | --bf16 --fp16 | --precision, --bf16 and --fp16 all say | give one of them
      2 | --steps 3 --epochs 2 | --steps 3 | --epochs 2
      2 | --min-time 1 --epochs 2 | --min-time | epochs | --steps
      2 | --min-time 1 --steps 0 | --min-time | --steps 0 trains nothing
      2 | --min-time 1 --steps 9 --schedule cosine | --min-time | --schedule cosine | --schedule constant
      2 | --min-time 1 --checkpoint there | --min-time | --checkpoint | leave one out
      2 | --validate-every 3 | --validate-every 3 | --validation
      3 | --global-batch 7 --ranks 2 | --global-batch 7 | batch 2 | ranks 2
      3 | --global-batch 16 --accumulation 3 | --global-batch 16 | batch 2 x ranks 1 x accumulation 3 = 6
      3 | --batch 1 --global-batch 16386 | accumulation 16386 = 16386 | 16384 micro-batches
      3 | --sequence 17 | --sequence 17 | 16 positions
      3 | --capture graph | --capture graph records | needs --device cuda
      3 | --attention cudnn | --attention cudnn calls | needs --device cuda
      3 | --precision fp16 --loss-scale none | --precision fp16 without a loss scale | Use --loss-scale dynamic or --loss-scale static, or --precision bf16
      3 | --loss-scale static | --loss-scale dynamic and --loss-scale static need --precision fp16 | Leave --loss-scale out
      3 | --adapters lora | --adapters lora needs a description of the adapters | give --lora rank=8
      3 | --adapters none --lora rank=2,alpha=4,targets=c_attn | --lora describes adapters | --adapters none
      2 | --final-fraction 7 | --final-fraction is 7 | from 0 up to 1
      2 | --bucket-bytes 1099511627777 | --bucket-bytes is 1099511627777
      2 | --best | --best | --from FILE
      2 | --row zs0 | --row 'zs0' | --from FILE
      3 | --device cpu --product-plans plans | --product-plans plans: matrix products are measured on GPUs only, and the device is cpu; leave the product plans out, or )");
  sh.refuses(sh.small, each("SCHEDULE", "linear cosine",
                            each("WARMUP", "2 3",
                                 "3 | -q --steps 2 --schedule SCHEDULE --warmup-steps WARMUP | --schedule "
                                 "SCHEDULE | --warmup-steps WARMUP | 2 steps | --steps")));
  sh.refuses(sh.small, each("PRECISION", "tf32 bf16x6 bf16x3",
                            "3 | --precision PRECISION | PRECISION | need --device cuda"));
  sh.refuses("train --model layers=1,heads=2,channels=16 --data text.txt",
             "3 | --batch 268435457 --sequence 2 | --batch 268435457 x --sequence 2 | 2^28 tokens");
}

TEST_CASE("train refusals: a first loss scale outside its bounds, set by flags or by keys of a file") {
  Train const sh;
  sh.write("scale.json",
           R"({"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": true, "loss_scale": 128}})");
  sh.refuses(sh.small, R"(
      2 | --initial-loss-scale 0.5 | --initial-loss-scale 0.5 is below --min-loss-scale 1 (default); give --min-loss-scale 0.5
      2 | --max-loss-scale 256 | --initial-loss-scale 65536 (default) is above --max-loss-scale 256
      2 | --config scale.json --initial-loss-scale 1024 | --initial-loss-scale 1024 is above --max-loss-scale 128 (scale.json: fp16.loss_scale))");
}

TEST_CASE("train refusals: the advice in a message is possible") {
  Train const sh;
  for (auto const& row : test::table(R"(
      --global-batch 40001 | the nearest is --global-batch 32768
      --batch 715827882 --ranks 3 --global-batch 2147483647 | the nearest is --global-batch 2147483646
      --model layers=1,heads=3,channels=65536 | the nearest that fit are channels=65535)")) {
    auto const result = sh.run(sh.small + row[0]);
    CHECK(result.code == 3);
    test::shows(result.err, "^error: .*" + row[1] + "\\n$");
  }
}

TEST_CASE("train refusals: a model that does not fit, also on many ranks with many layers") {
  Train const sh;
  sh.refuses("train --data text.txt --sequence 1024", R"(
      5 | --model gpt2-xl --batch 65536 | out of memory | bytes | parameters | activations | fit
      5 | --model layers=300,heads=8,channels=1024 --ranks 16 --batch 1024 --accumulation 64 --stage 3 | 16 ranks plan | activations)");
}

TEST_CASE("train refusals: data that is absent, too short or of another kind") {
  Train const sh;
  sh.passes(R"(
      : > empty.txt; : > empty.bin; printf abc > odd.bin; printf 12345678 > short.txt; mkdir nothing
      cp text.txt text.bin; printf 'The letters of a text, read as numbers of 16 bits.' > letters.bin
      printf '\223NUMPY\001\000' > numpy.bin; head -c 2000 /dev/zero >> numpy.bin
      : a model file of llm.c, and a header of llm.c with more tokens than the file has
      printf '\206\331\064\001\003\000\000\000' > model.bin; head -c 2000 /dev/zero >> model.bin
      printf '\110\332\064\001\001\000\000\000\377\377\000\000' > cut.bin; head -c 1100 /dev/zero >> cut.bin)");
  sh.refuses(sh.tiny + "--steps 2", R"(
      4 | --data absent.txt | absent.txt
      4 | --data empty.txt | empty.txt | empty
      4 | --data empty.bin | empty.bin | empty
      4 | --data odd.bin | odd.bin
      4 | --data short.txt | short.txt | 8 tokens | 9 needed
      4 | --data nothing | nothing | no text
      4 | --data model.bin | model.bin
      4 | --data cut.bin | cut.bin
      4 | --data numpy.bin | numpy.bin | a NumPy array | not tokens
      4 | --data text.bin | text.bin | is text | rename it to .txt
      4 | --data letters.bin --vocabulary 300 | letters.bin | index 0 | 26708 | --vocabulary
      4 | --data text.txt --vocabulary 90 | text.txt | vocabulary of 90
      4 | --data text.txt letters.bin | text.txt | letters.bin | files of the same kind
      4 | --data text.txt --validation short.txt | short.txt | 8 tokens | 9 needed
      4 | --data text.txt --samples 100000 | text.txt | --samples 100000)");
}

TEST_CASE("train refusals: outputs are checked before the first step, and nothing is created") {
  Train const sh;
  sh.passes("mkdir folder.safetensors");
  sh.refuses(sh.small, R"(
      1 | --save no/such/folder/w.safetensors | no/such/folder/w.safetensors | does not exist
      1 | --log no/such/log.jsonl | no/such/log.jsonl | does not exist
      1 | --save folder.safetensors | folder.safetensors | folder
      2 | --log - | --log '-' | /dev/stdout
      2 | --save - | --save '-' | /dev/stdout
      1 | --save text.txt/w | text.txt/w
      2 | --save same --log same | --log | --save | same file
      2 | --log text.txt | --log | --data | text.txt
      2 | --save ./text.txt | --save | --data | text.txt)");
  CHECK(sh.text("text.txt") == sh.words);
  sh.write("given.json", R"({"train_batch_size": 2})");
  sh.write("rows.json", R"({"schema_version": 3, "command": "", "environment": {}, "wall_s": 1,
      "rows": [{"experiment": "zs0", "status": "ok"}]})");
  sh.refuses(sh.small, each("OUT", "--log --trace --save --checkpoint", R"(
      2 | OUT ./given.json --config given.json | OUT './given.json' and --config 'given.json' are the same file
      2 | OUT rows.json --from rows.json --best | OUT 'rows.json' and --from 'rows.json' are the same file)"));
}

TEST_CASE("train refusals: an output is not a file of the data or another output, under any name") {
  Train const sh;
  std::string const here = sh.passes(R"(
      mkdir -p corpus/inner; cp text.txt corpus/one.txt; cp text.txt corpus/inner/two.txt
      ln corpus/inner/two.txt hard; ln -s corpus/one.txt soft; ln -s corpus other; ln -s . here; printf %s "$PWD")");
  std::string const within =
      "corpus/one.txt corpus/inner/two.txt corpus/inner/new other/one.txt hard soft " + here + "/corpus/new";
  sh.refuses(sh.small,
             each("OUT", "--log --save",
                  each("DATA", "--data --validation",
                       each("PATH", within,
                            "2 | DATA corpus OUT PATH | OUT 'PATH' leads into the folder | DATA 'corpus'"))));
  sh.refuses(sh.small, each("OUT", "--log --save", R"(
      2 | --data corpus/one.txt OUT soft | OUT 'soft' | --data 'corpus/one.txt' | same file
      2 | --validation corpus/inner/two.txt OUT hard | OUT 'hard' | --validation 'corpus/inner/two.txt' | same file)"));
  sh.refuses(sh.small, each("PATH", "./same here/same corpus/../same " + here + "/same",
                            "2 | --log same --save PATH | --log 'same' | --save 'PATH' | same file"));
  for (std::string const file : {"text.txt", "corpus/one.txt", "corpus/inner/two.txt"})
    CHECK(sh.text(file) == sh.words);
}

TEST_CASE("train refusals: a rank that cannot start its threads") {
  Train const sh;
  std::string const limit = "ulimit -s 8192; ulimit -v 1500000; ";
  if (sh.run(limit + "train --version").code != 0) return;  // with a sanitizer, the program cannot start
  // This test uses one rank. With several ranks, the memory possibly ends earlier, when another rank
  // allocates its arena. The error would then be another one.
  sh.refuses(limit + sh.small,
             "1 | -q --steps 1 --ranks 1 --threads 240 | needs 240 threads | lower --threads");
}

TEST_CASE("train refusals: half a launch, and another number of ranks than the launcher's") {
  Train const sh;
  sh.refuses("RANK=1 " + sh.small, "3 |  | WORLD_SIZE is not set");
  sh.refuses("RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 " + sh.small,
             "3 | --ranks 3 | torchrun: rank 1 of 2 | leave --ranks out");
}
