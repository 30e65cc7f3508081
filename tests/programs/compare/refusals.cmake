# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=compare -DWORK=folder -P refusals.cmake
# Tests exit codes and messages for wrong command lines, settings, data and outputs. No file may remain.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

# Flags.
refuses(2 "--setps;--steps" --setps 3)
refuses(2 "'-x'" -x)
refuses(2 "'-steps';--steps" -steps 3)
refuses(2 "'tiny';values follow their flag" tiny)
refuses(2 "'steps';--steps" steps 3)
refuses(2 "--steps needs a value" --steps)
refuses(2 "--steps needs a value;'--json'" --steps --json)
refuses(2 "--list takes no value" --list=yes)
refuses(2 "--json has an empty value" --json=)

# Frozen parameters.
refuses(2 "--freeze;'h(';is not a regular expression (missing closing parenthesis, after 2 letters)" --freeze "h(")
refuses(3 "--freeze 'layers': freeze matches none of the;names are like" ${brief} --freeze layers)
refuses(3 "--freeze '[.]': freeze leaves none of the;match fewer" ${brief} --freeze "[.]")

# Unknown choices; the message has the nearest choice.
refuses(2 "--mesh;'shards';'shard'" --mesh shards=2)
refuses(2 "--mesh;'shard';no number" --mesh shard)
refuses(2 "--mesh replicate;0" --mesh replicate=0)
refuses(3 "--mesh replicate=3;4 ranks" ${brief} --ranks 4 --mesh replicate=3)
refuses(3 "--mesh replicate=2,shard=3;4 ranks" ${brief} --ranks 4 --mesh replicate=2,shard=3)
refuses(2 "--stages;'4'" --stages 0,4)
refuses(2 "--strategies;'zero5';'zero0'" --strategies zero5)
refuses(2 "--strategies;'cpu_ful';'cpu_full'" --strategies none cpu_ful)
refuses(2 "--strategies: 'zero2' is a sharding and 'cpu_full' an offload;--stages;--offloads" --strategies zero2 cpu_full)
refuses(2 "--strategies gives offloads, and so does --offloads" --strategies none --offloads cpu_full)
refuses(2 "--strategies gives stages, and so does --stages" --stages 2 --strategies zero1)
refuses(2 "--precisions;'fp166';'fp16'" --precisions fp166)
refuses(2 "--precisions;'BF61';'bf16'" --precisions BF61)
refuses(2 "--offloads;'cpu_optimiser';'cpu_optimizer'" --offloads cpu_optimiser)
refuses(2 "--recompute;'blok';'block'" --recompute blok)
refuses(2 "--reduction;'orderd';'ordered'" --reduction orderd)
refuses(2 "--capture;'grph';'graph'" --capture grph)
refuses(2 "--attention;'fusd';'fused'" --attention fusd)
refuses(2 "--order;'shufled';'shuffled'" --order shufled)
refuses(2 "--schedule;'cosin';'cosine'" --schedule cosin)
refuses(2 "--format;'row';'rows'" --format row)
refuses(2 "--models;'gpt2-mediun';'gpt2-medium'" --model gpt2-mediun)
refuses(2 "--models;lacks heads" --model "layers=1,channels=8")
refuses(2 "--models;lacks heads" --model "layers=1,heads=1,channels=8,layers=2")
refuses(2 "--models channels;0" --model "layers=1,heads=1,channels=0")
refuses(2 "--stages;empty item" --stages 0,,1)
refuses(3 "3 heads do not divide 8 channels;channels=6 and channels=9" --model "layers=1,heads=3,channels=8")

# Numbers.
foreach(flag --batch --sequence --accumulation --ranks --steps --repeat --global-batch --vocabulary)
  foreach(value 0 -1 nan inf 1.5 4x 0x10 1e3 99999999999999999999)
    refuses(2 "${flag};${value}" ${flag} ${value})
  endforeach()
endforeach()
foreach(flag --warmup --seed --threads --learning-rate-warmup)
  foreach(value -1 nan 1.5 4x 99999999999999999999)
    refuses(2 "${flag};${value}" ${flag} ${value})
  endforeach()
endforeach()
foreach(flag --learning-rate --beta1 --beta2 --epsilon --weight-decay --clip --min-time)
  foreach(value nan inf -1 1e999 abc 0x1p3)
    refuses(2 "${flag};${value}" ${flag} ${value})
  endforeach()
endforeach()
foreach(flag --learning-rate --epsilon --weight-decay --clip)
  refuses(2 "${flag} is 1e39;3.40282e+38" ${flag} 1e39)  # beyond fp32
endforeach()
refuses(2 "--epsilon is 0;1.17549e-38" --epsilon 0)
refuses(2 "--accumulation is 16385;1 to 16384" --accumulation 16385)
refuses(2 "--beta1;below 1" --beta1 1)
refuses(2 "--ranks;64" --ranks 65)
refuses(2 "--initial-loss-scale 2147483648 is above --max-loss-scale" ${brief} --precisions fp32,fp16 --initial-loss-scale 2147483648)
refuses(2 "--min-loss-scale 131072;--initial-loss-scale" ${brief} --min-loss-scale 131072)
refuses(2 "--final-fraction is 1.5;from 0 up to 1" ${brief} --final-fraction 1.5)
refuses(2 "--pairs;--full" --pairs --full)

# Wrong batches; the message has the equation and the nearest numbers.
refuses(3 "--global-batch 6;ranks 4 x accumulation 1 = 6;--global-batch 4 and 8" --data text.txt --ranks 4
        --global-batch 6)
refuses(3 "--global-batch 10;batch 2 x ranks 2 x accumulation 3 = 12;--global-batch 12" --data text.txt --ranks 2
        --batch 2 --accumulation 3 --global-batch 10)
refuses(3 "--global-batch 2;batch 4 x ranks 1 x accumulation = 2;--global-batch 4" --data text.txt --ranks 1 --batch 4
        --global-batch 2)
# For several numbers of ranks, the message suggests only global batches that suit all of them.
refuses(3 "--global-batch 16;--ranks 3,4 need a multiple of 12;--global-batch 12 and 24\n" --data text.txt
        --ranks 3,4 --global-batch 16)
refuses(3 "--ranks 1,2 x --batch 3 need a multiple of 6;--global-batch 6 and 12\n" --data text.txt --ranks 1,2
        --batch 3 --global-batch 8)
refuses(3 "no global batch is a multiple of all of --ranks 47,53,59,61,64;give fewer" --data text.txt
        --ranks 47,53,59,61,64 --global-batch 16 --accumulation 9)
refuses(3 "contradicts batch 3 x ranks 4 x accumulation 1 = 12; give --global-batch 12, or leave out --batch\n"
        --data text.txt --ranks 4 --batch 3 --accumulation 1 --global-batch 16)
refuses(3 "contradicts batch 2 x ranks 2 x accumulation 1 = 4;--accumulation 1,3; leave out --accumulation\n"
        --data text.txt --ranks 2 --batch 2 --accumulation 1,3 --global-batch 8)
refuses(3 "contradicts batch 3 x ranks 2 x accumulation 1 = 6;--accumulation 1,3; leave out --global-batch\n"
        --data text.txt --ranks 2 --batch 3 --accumulation 1,3 --global-batch 8)
refuses(3 "2147483647" --data text.txt --batch 1000000 --accumulation 16384)
refuses(3 "16384 micro-batches" --data text.txt --ranks 1 --batch 1 --global-batch 16385)
refuses(3 "--batch 1048576 x --sequence 1024;2^28 tokens" --data text.txt --model "layers=1,heads=1,channels=8" --batch 1048576
        --sequence 1024)
refuses(3 "10^15" --data text.txt --model gpt2-xl --batch 1000000 --sequence 1024)

# A schedule that ends before its training, or never starts.
refuses(2 "--min-time;--schedule cosine;--steps" ${brief} --schedule cosine --min-time 1)
refuses(3 "--schedule linear;--learning-rate-warmup 4;--warmup 1 + --steps 3 are only 4" ${brief} --schedule linear
        --learning-rate-warmup 4)

# Models and data.
refuses(3 "--sequence 1025;1024 positions of gpt2" --data text.txt --model gpt2 --sequence 1025)
refuses(3 "--sequence 17;16 positions" --data text.txt --model "layers=1,heads=1,channels=8,positions=16" --sequence 17)
refuses(4 "text.txt: token;beyond the vocabulary of 50;--vocabulary" ${small} --data text.txt --vocabulary 50)
refuses(4 "short.txt: too little data, 2 tokens present, 17 needed" ${small} --data short.txt)
refuses(4 "empty.txt: the file is empty" ${small} --data empty.txt)
refuses(4 "absent.txt: no such file" ${small} --data absent.txt)
refuses(2 "--nvme-path absent" ${small} --data text.txt --nvme-path absent)
refuses(3 "--product-plans plans: matrix products are measured on GPUs only, and the device is cpu; leave the product plans out, or " ${brief}
        --device cpu --product-plans plans)

# Outputs, before the first step.
refuses(1 "no/such/out.json;does not exist" ${brief} --json no/such/out.json)
refuses(1 "no/out.csv;does not exist" ${brief} --csv no/out.csv)
refuses(1 "is a folder" ${brief} --json .)
refuses(1 "text.txt;not a folder" ${brief} --output-dir text.txt)
refuses(2 "the same file" ${brief} --json out --csv out)
refuses(2 "--output-dir elsewhere would stay empty;with --json or --csv" ${brief} --json out --output-dir elsewhere)
refuses(2 "--output-dir elsewhere would stay empty;with --json or --csv" ${brief} --csv - --output-dir elsewhere)
refuses(2 "--json 'out';--csv './out';the same file" ${brief} --json out --csv ./out)
refuses(2 "--json './text.txt';--data 'text.txt';same file" ${brief} --json ./text.txt)
refuses(2 "--csv 'text.txt';--data 'text.txt';same file" ${brief} --csv text.txt)
file(MAKE_DIRECTORY "${WORK}/corpus")
file(COPY_FILE "${WORK}/text.txt" "${WORK}/corpus/compare.csv")
refuses(2 "--csv 'corpus/new';--data 'corpus';outside" ${brief} --data corpus --csv corpus/new)
refuses(2 "--output-dir 'corpus/compare.json';--data 'corpus';outside" ${brief} --data corpus --output-dir corpus)
refuses(2 "--output-dir 'corpus/compare.csv';--data 'corpus/compare.csv';same file" ${brief} --data corpus/compare.csv
        --output-dir corpus)
set(log "corpus/zs0_fp32_ranks2_bs2_sl16/run1/step_log.csv")
file(MAKE_DIRECTORY "${WORK}/corpus/zs0_fp32_ranks2_bs2_sl16/run1")
file(COPY_FILE "${WORK}/text.txt" "${WORK}/${log}")
refuses(2 "--output-dir '${log}';--data '${log}';same file" ${brief} --ranks 2 --stages 0 --precisions fp32
        --offloads none --data ${log} --output-dir corpus)
file(MAKE_DIRECTORY "${WORK}/results/compare.json")
refuses(1 "compare.json;is a folder" ${brief})
file(REMOVE_RECURSE "${WORK}/results")
file(MAKE_DIRECTORY "${WORK}/results")
file(WRITE "${WORK}/results/zs0_fp32_ranks2_bs2_sl16" "in the way")
refuses(1 "zs0_fp32_ranks2_bs2_sl16;not a folder" ${brief} --ranks 2 --stages 0 --precisions fp32 --offloads none)

# A launch of several processes is refused, since each would train alone.
set(ENV{RANK} 1)
refuses(3 "WORLD_SIZE is not set" ${brief})
set(ENV{WORLD_SIZE} 2)
set(ENV{LOCAL_RANK} 1)
set(ENV{MASTER_ADDR} 127.0.0.1)
refuses(3 "torchrun: rank 1 of 2;--ranks" ${brief})
passes(--list)
