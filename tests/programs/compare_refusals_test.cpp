// SPDX-License-Identifier: Apache-2.0
// Tests the exit codes and the error messages of `compare` for wrong command lines, settings, data and output
// files. A command that is refused must not leave a file.
#include "programs/compare_support.hpp"

using test::Compare, test::each;

TEST_CASE("compare refusals: unknown flags, missing values and wrong frozen parameters") {
  Compare const sh;
  sh.refuses("compare", R"(
      2 | --setps 3 | --setps | --steps
      2 | -x | '-x'
      2 | -steps 3 | '-steps' | --steps
      2 | tiny | 'tiny' | values follow their flag
      2 | steps 3 | 'steps' | --steps
      2 | --steps | --steps needs a value
      2 | --num-steps | --num-steps needs a value | give --num-steps VALUE
      2 | --steps --json | --steps needs a value | '--json'
      2 | --list=yes | --list takes no value
      2 | --json= | --json has an empty value
      2 | --pairs --full | --pairs | --full
      2 | --freeze 'h(' | --freeze | 'h(' | is not a regular expression (missing closing parenthesis, after 2 letters))");
  sh.refuses("compare" + Compare::brief, R"(
      3 | --freeze layers | --freeze 'layers': freeze matches none of the | names are like
      3 | --freeze '[.]' | --freeze '[.]': freeze leaves none of the | match fewer)");
}

TEST_CASE("compare refusals: the message for an unknown choice has the nearest choice") {
  Compare const sh;
  sh.refuses("compare", R"(
      2 | --mesh shards=2 | --mesh | 'shards' | 'shard'
      2 | --mesh shard | --mesh | 'shard' | no number
      2 | --mesh replicate=0 | --mesh replicate | 0
      2 | --stages 0,4 | --stages | '4'
      2 | --stages 0,,1 | --stages | empty item
      2 | --strategies zero5 | --strategies | 'zero5' | 'zero0'
      2 | --strategies none cpu_ful | --strategies | 'cpu_ful' | 'cpu_full'
      2 | --strategies zero2 cpu_full | --strategies: 'zero2' is a sharding and 'cpu_full' an offload | --stages | --offloads
      2 | --strategies none --offloads cpu_full | --strategies gives offloads, and so does --offloads
      2 | --stages 2 --strategies zero1 | --strategies gives stages, and so does --stages
      2 | --precisions fp166 | --precisions | 'fp166' | 'fp16'
      2 | --precisions BF61 | --precisions | 'BF61' | 'bf16'
      2 | --offloads cpu_optimiser | --offloads | 'cpu_optimiser' | 'cpu_optimizer'
      2 | --recompute blok | --recompute | 'blok' | 'block'
      2 | --reduction orderd | --reduction | 'orderd' | 'ordered'
      2 | --capture grph | --capture | 'grph' | 'graph'
      2 | --attention fusd | --attention | 'fusd' | 'fused'
      2 | --order shufled | --order | 'shufled' | 'shuffled'
      2 | --schedule cosin | --schedule | 'cosin' | 'cosine'
      2 | --format row | --format | 'row' | 'rows'
      2 | --model gpt2-mediun | --model | 'gpt2-mediun' | 'gpt2-medium'
      2 | --model layers=1,channels=8 | --model | lacks heads
      2 | --model layers=1,heads=1,channels=8,layers=2 | --model | lacks heads
      2 | --model layers=1,heads=1,channels=0 | --model channels | 0
      3 | --model layers=1,heads=3,channels=8 | 3 heads do not divide 8 channels | channels=6 and channels=9)");
  sh.refuses("compare --ranks 4" + Compare::brief, R"(
      3 | --mesh replicate=3 | --mesh replicate=3 | 4 ranks
      3 | --mesh replicate=2,shard=3 | --mesh replicate=2,shard=3 | 4 ranks)");
}

TEST_CASE("compare refusals: numbers that are not whole, not finite or out of their range") {
  Compare const sh;
  std::string const number = "2 | FLAG VALUE | FLAG | VALUE";
  sh.refuses(
      "compare",
      each("FLAG", "--batch --sequence --accumulation --ranks --steps --repeat --global-batch --vocabulary",
           each("VALUE", "0 -1 nan inf 1.5 4x 0x10 1e3 99999999999999999999", number)) +
          each("FLAG", "--warmup --seed --threads --learning-rate-warmup",
               each("VALUE", "-1 nan 1.5 4x 99999999999999999999", number)) +
          each("FLAG", "--learning-rate --beta1 --beta2 --epsilon --weight-decay --clip --min-time",
               each("VALUE", "nan inf -1 1e999 abc 0x1p3", number)) +
          each("FLAG", "--learning-rate --epsilon --weight-decay --clip",
               "2 | FLAG 1e39 | FLAG is 1e39 | 3.40282e+38"));
  sh.refuses("compare" + Compare::brief, R"(
      2 | --epsilon 0 | --epsilon is 0 | 1.17549e-38
      2 | --accumulation 16385 | --accumulation is 16385 | 1 to 16384
      2 | --beta1 1 | --beta1 | below 1
      2 | --ranks 65 | --ranks | 64
      2 | --precisions fp32,fp16 --initial-loss-scale 2147483648 | --initial-loss-scale 2147483648 is above --max-loss-scale
      2 | --min-loss-scale 131072 | --min-loss-scale 131072 | --initial-loss-scale
      2 | --final-fraction 1.5 | --final-fraction is 1.5 | from 0 up to 1)");
}

TEST_CASE("compare refusals: the message for a wrong batch has the equation and the nearest numbers") {
  Compare const sh;
  sh.refuses("compare --data text.txt", R"(
      3 | --ranks 4 --global-batch 6 | --global-batch 6 | ranks 4 x accumulation 1 = 6 | --global-batch 4 and 8
      3 | --ranks 2 --batch 2 --accumulation 3 --global-batch 10 | --global-batch 10 | batch 2 x ranks 2 x accumulation 3 = 12 | --global-batch 12
      3 | --ranks 1 --batch 4 --global-batch 2 | --global-batch 2 | batch 4 x ranks 1 x accumulation = 2 | --global-batch 4
      3 | --ranks 47,53,59,61,64 --global-batch 16 --accumulation 9 | no global batch is a multiple of all of --ranks 47,53,59,61,64 | give fewer
      3 | --batch 1000000 --accumulation 16384 | 2147483647
      3 | --ranks 1 --batch 1 --global-batch 16385 | 16384 micro-batches
      3 | --model layers=1,heads=1,channels=8 --batch 1048576 --sequence 1024 | --batch 1048576 x --sequence 1024 | 2^28 tokens
      3 | --model gpt2-xl --batch 1000000 --sequence 1024 | 10^15)");
  // Each row of the table below is: flags | texts that the error message must contain. The message must end
  // with the last of these texts. If --ranks lists several numbers, the message must suggest only global
  // batches that are possible with all of them.
  for (auto const& row : test::table(R"(
      --ranks 3,4 --global-batch 16 | --global-batch 16 | --ranks 3,4 need a multiple of 12 | --global-batch 12 and 24
      --ranks 1,2 --batch 3 --global-batch 8 | --ranks 1,2 x --batch 3 need a multiple of 6 | --global-batch 6 and 12
      --ranks 4 --batch 3 --accumulation 1 --global-batch 16 | contradicts batch 3 x ranks 4 x accumulation 1 = 12; give --global-batch 12, or leave out --batch
      --ranks 2 --batch 2 --accumulation 1,3 --global-batch 8 | contradicts batch 2 x ranks 2 x accumulation 1 = 4 | --accumulation 1,3; leave out --accumulation
      --ranks 2 --batch 3 --accumulation 1,3 --global-batch 8 | contradicts batch 3 x ranks 2 x accumulation 1 = 6 | --accumulation 1,3; leave out --global-batch)")) {
    for (std::size_t i = 1; i < row.size(); ++i)
      sh.refuses("compare --data text.txt", "3 | " + row[0] + " | " + row[i]);
    CHECK(sh.run("compare --data text.txt " + row[0]).err.ends_with(row.back() + "\n"));
  }
}

TEST_CASE("compare refusals: schedules, models and data that do not fit together") {
  Compare const sh;
  sh.write("short.txt", "hi");
  sh.write("empty.txt", "");
  sh.refuses("compare" + Compare::brief, R"(
      2 | --schedule cosine --min-time 1 | --min-time | --schedule cosine | --steps
      3 | --schedule linear --learning-rate-warmup 4 | --schedule linear | --learning-rate-warmup 4 | --warmup 1 + --steps 3 are only 4
      3 | --device cpu --product-plans plans | --product-plans plans: matrix products are measured on GPUs only, and the device is cpu; leave the product plans out, or)");
  sh.refuses("compare --data text.txt", R"(
      3 | --model gpt2 --sequence 1025 | --sequence 1025 | 1024 positions of gpt2
      3 | --model layers=1,heads=1,channels=8,positions=16 --sequence 17 | --sequence 17 | 16 positions)");
  sh.refuses("compare" + Compare::small, R"(
      4 | --data text.txt --vocabulary 50 | text.txt: token | beyond the vocabulary of 50 | --vocabulary
      4 | --data short.txt | short.txt: too little data, 2 tokens present, 17 needed
      4 | --data empty.txt | empty.txt: the file is empty
      4 | --data absent.txt | absent.txt: no such file
      2 | --data text.txt --nvme-path absent | --nvme-path absent)");
}

TEST_CASE("compare refusals: outputs that cannot be written or that overwrite data, before the first step") {
  Compare const sh;
  sh.passes(R"(
      mkdir -p corpus/zs0_fp32_ranks2_bs2_sl16/run1
      cp text.txt corpus/compare.csv
      cp text.txt corpus/zs0_fp32_ranks2_bs2_sl16/run1/step_log.csv)");
  std::string const one_row = Compare::brief + "--ranks 2 --stages 0 --precisions fp32 --offloads none ";
  sh.refuses("compare" + one_row, R"(
      1 | --json no/such/out.json | no/such/out.json | does not exist
      1 | --csv no/out.csv | no/out.csv | does not exist
      1 | --json . | is a folder
      1 | --output-dir text.txt | text.txt | not a folder
      2 | --json out --csv out | the same file
      2 | --json out --output-dir elsewhere | --output-dir elsewhere would stay empty | with --json or --csv
      2 | --csv - --output-dir elsewhere | --output-dir elsewhere would stay empty | with --json or --csv
      2 | --json out --csv ./out | --json 'out' | --csv './out' | the same file
      2 | --json ./text.txt | --json './text.txt' | --data 'text.txt' | same file
      2 | --csv text.txt | --csv 'text.txt' | --data 'text.txt' | same file
      2 | --data corpus --csv corpus/new | --csv 'corpus/new' | --data 'corpus' | outside
      2 | --data corpus --output-dir corpus | --output-dir 'corpus/compare.json' | --data 'corpus' | outside
      2 | --data corpus/compare.csv --output-dir corpus | --output-dir 'corpus/compare.csv' | --data 'corpus/compare.csv' | same file)");
  std::string const log = "corpus/zs0_fp32_ranks2_bs2_sl16/run1/step_log.csv";
  sh.refuses("compare" + one_row, "2 | --output-dir corpus --data " + log + " | --output-dir '" + log +
                                      "' | --data '" + log + "' | same file");
  sh.passes("mkdir -p results/compare.json");
  sh.refuses("compare", "1 | " + one_row + " | compare.json | is a folder");
  sh.passes("rmdir results/compare.json; echo in the way > results/zs0_fp32_ranks2_bs2_sl16");
  sh.refuses("compare", "1 | " + one_row + " | zs0_fp32_ranks2_bs2_sl16 | not a folder");
}

TEST_CASE("compare refusals: half a launch, and another number of ranks than the launcher's") {
  Compare const sh;
  std::string const launch = "WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 compare";
  sh.refuses("RANK=1 compare", "3 | " + Compare::brief + " | WORLD_SIZE is not set");
  sh.refuses("RANK=1 " + launch,
             "3 | --ranks 3 " + Compare::brief + " | torchrun: rank 1 of 2 | leave --ranks out");
  sh.passes("RANK=1 " + launch + " --list");
}
