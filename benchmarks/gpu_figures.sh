#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the figures of docs/performance.md on this machine's GPUs: benchmarks/gpu_figures.sh BIN OUT PART...
# BIN is the folder of compare and train (build/cuda/bin); cuda_ranks is in BIN/../benchmarks. A part writes OUT/PART*.json and
# .csv and prints one line per row. The parts alone and ctas only print lines.
# Parts: sizes, precisions, stages, memory, ranks (two GPUs), alone and ctas (two GPUs), predictions (two GPUs, about 100 s),
# drift, start. Parts with the runs of published comparisons for docs/results: published-1, published-3, published-3-offload,
# published-4 (two GPUs, three minutes), published-5, published-5-ranks (two GPUs), published-5-offload and published-5-large.
# The parts published-3-offload, published-5-offload and published-5-large use a disk (TESSERA_NVME, default OUT). The last
# one needs a host with 256 GB and a disk with 40 GB.
# TESSERA_DEVICE=cpu tests a part on the CPU. The part predictions times the collectives of this machine and writes them to
# OUT/two.json. Then it compares 18 rows with predictions from TESSERA_MACHINE (default h200).
# The part drift reads these variables: TESSERA_SEEDS (default "1 2 3 4 5") and TESSERA_STEPS (default 100).
set -euo pipefail
[ $# -ge 3 ] || { sed -n 3,13p "$0" | cut -c3-; exit 2; }
bin=$(realpath "$1") out=$2
shift 2
mkdir -p "$out"
device=${TESSERA_DEVICE:-cuda}
experiments=$(realpath "$(dirname "$0")/../examples/experiments")
nvme=${TESSERA_NVME:-$out}
cuda_ranks=$bin/../benchmarks/cuda_ranks
long='layers=12,heads=12,channels=768,positions=8192'
heads_of_80='layers=12,heads=10,channels=800'

# rows NAME FLAGS...: runs compare with FLAGS and prints the measurements of its rows. If a row fails, the script goes on.
rows() {
  local name=$1
  shift
  echo "== $name: compare $*"
  # Removes the files of an earlier run, because its figures would remain if compare fails.
  rm -f "$out/$name.json" "$out/$name.csv"
  "$bin/compare" --device "$device" --json "$out/$name.json" --csv "$out/$name.csv" "$@" \
    > "$out/$name.txt" 2>&1 || echo "compare ended with $?: $(tail -n 1 "$out/$name.txt")"
  [ -e "$out/$name.csv" ] || return 0
  sed 's/"[^"]*"/-/g' "$out/$name.csv" | awk -F, '
    # A hyphen stands for a value that was not measured.
    function cell(name) { return $at[name] == "" ? "-" : $at[name] }
    function in_form(form, name) { return $at[name] == "" ? "-" : sprintf(form, $at[name]) }
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { printf "%-44s %-8s %9s tok/s +- %s, %9s MB (planned %9s), %s busy, %s W, %s MFU, collectives %s, exposed %s, %s\n",
        cell("experiment"), cell("status"), in_form("%.0f", "median_tokens_per_sec"), in_form("%.2f%%", "spread_pct"),
        in_form("%.1f", "peak_gpu_mem_mb"), in_form("%.1f", "planned_gpu_mem_mb"), in_form("%s%%", "avg_gpu_util_pct"),
        cell("avg_power_w"), in_form("%s%%", "mfu_pct"), in_form("%s s", "comm_time_s"), in_form("%s s", "comm_exposed_s"),
        cell("weights_hash") }'
}

# predicted NAME FLAGS...: runs the rows of compare with predictions and prints predicted rate, measured rate and error.
predicted() {
  rows "$@" --machine "${TESSERA_MACHINE:-h200}"
  [ -e "$out/$1.csv" ] || return 0
  sed 's/"[^"]*"/-/g' "$out/$1.csv" | awk -F, -v from="${TESSERA_MACHINE:-h200}" '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["prediction_error_pct"] == "" { print $at["experiment"] ": no prediction or no rate"; next }
    { error = $at["prediction_error_pct"]
      mark = (error > 15 || error < -15) ? " (more than 15%)" : ""
      printf "%-44s predicted from %s %.0f tok/s, measured %.0f tok/s, error %+.1f%%%s\n", $at["experiment"], from,
        $at["predicted_tokens_per_sec"], $at["median_tokens_per_sec"], error, mark }'
}

one=(--gpus 1 --stages 0 --offloads none --steps 8 --warmup 4 --min-time 1.5)
for part in "$@"; do
  case $part in
    sizes)
      rows sizes_64x1024 --model gpt2 "${one[@]}" --batch 64 --sequence 1024 --precisions bf16
      rows sizes_32x1024 --model gpt2 "${one[@]}" --batch 32 --sequence 1024 --precisions bf16,fp16
      rows sizes_8x1024 --model gpt2 "${one[@]}" --batch 8 --sequence 1024 --precisions bf16,fp16
      rows sizes_4x8192 --model "$long" --vocabulary 50257 "${one[@]}" --batch 4 --sequence 8192 --precisions bf16
      rows sizes_heads_of_80 --model "$heads_of_80" --vocabulary 50257 "${one[@]}" --batch 32 --sequence 1024 --precisions bf16
      rows sizes_medium --model gpt2-medium "${one[@]}" --batch 16 --sequence 1024 --precisions bf16
      rows sizes_large --model gpt2-large "${one[@]}" --batch 8 --sequence 1024 --precisions bf16
      rows sizes_xl --model gpt2-xl "${one[@]}" --batch 8 --sequence 1024 --precisions bf16
      ;;
    precisions)
      rows precisions --model gpt2 "${one[@]}" --batch 32 --sequence 128 --precisions bf16,fp16,fp32,tf32,bf16x6,bf16x3
      ;;
    stages)
      rows stages --model gpt2 "${one[@]}" --batch 32 --sequence 128 --precisions fp16,fp32 --stages 0,1,2,3 \
        --repeat 3 --min-time 3
      ;;
    memory)
      rows memory_64x1024 --model gpt2 "${one[@]}" --batch 64 --sequence 1024 --precisions bf16 --recompute none,gelu
      rows memory_xl --model gpt2-xl "${one[@]}" --batch 8 --sequence 1024 --precisions bf16 --recompute none,gelu
      ;;
    ranks)
      rows ranks_32x1024 --model gpt2 "${one[@]}" --gpus 2 --stages dp,0,1,2,3 --batch 32 --sequence 1024 --precisions bf16
      rows ranks_8x1024 --model gpt2 "${one[@]}" --gpus 2 --stages dp,0,1,2,3 --batch 8 --sequence 1024 --precisions fp16
      rows ranks_xl --model gpt2-xl "${one[@]}" --gpus 2 --stages 0,2,3 --batch 8 --sequence 1024 --precisions bf16
      ;;
    alone)
      # Two GPUs that train together, and two GPUs that train alone at the same time. Both share the power and the host,
      # so the difference is the cost of the collectives, by copy engines and by NCCL.
      for work in '32 1024' '16 256' '8 1024 fp16' '8 1024 bf16 gpt2-xl'; do
        for round in 1 2; do
          for sharding in alone zs0 zs2 zs3; do "$cuda_ranks" 2 "$sharding" $work || echo "cuda_ranks ended with $?"; done
          for sharding in zs0 zs2 zs3; do
            echo -n "NCCL: "
            TESSERA_COPY_ENGINES=0 "$cuda_ranks" 2 "$sharding" $work || echo "cuda_ranks ended with $?"
          done
        done
      done
      ;;
    ctas)
      # The number of multiprocessors that NCCL uses at most.
      for ctas in default 1 2 4 8 16 32; do
        for sharding in zs0 zs3; do
          echo -n "NCCL_MAX_CTAS=$ctas: "
          if [ "$ctas" = default ]; then unset NCCL_MAX_CTAS; else export NCCL_MAX_CTAS=$ctas; fi
          TESSERA_COPY_ENGINES=0 "$cuda_ranks" 2 "$sharding" 32 1024 || echo "cuda_ranks ended with $?"
        done
      done
      unset NCCL_MAX_CTAS
      ;;
    published-1)
      # The file has --min-time 3, so each repeat is long enough to measure the power.
      rows zero-stages-gpt2 "@$experiments/zero-stages-gpt2.flags" --steps 100
      rows zero-stages-shapes "@$experiments/zero-stages-shapes.flags" --min-time 1
      ;;
    published-3)
      rows zero-medium "@$experiments/zero-medium.flags"
      rows zero3-large "@$experiments/zero3-large-offload.flags" --offloads none
      ;;
    published-3-offload)
      rows zero2-large-offload "@$experiments/zero3-large-offload.flags" --stages 2 --offloads cpu_optimizer
      # The publication has no row of the next two, so a tenth of the samples and few steps are enough.
      rows zero3-large-offload "@$experiments/zero3-large-offload.flags" --stages 3 --offloads cpu_full --samples 100
      # With a larger loss scale, gradients overflow in timed steps, which then skip their update.
      rows zero3-wished "@$experiments/zero3-wished.flags" --steps 2 --warmup 1 --initial-loss-scale 4096 \
        --nvme-path "$nvme"
      ;;
    published-4)
      rows zero2-two-h100 "@$experiments/zero2-two-h100.flags" --learning-rate 1e-4 --min-time 180
      ;;
    published-5)
      rows stage-sweep "@$experiments/stage-sweep.flags" --min-time 1
      ;;
    published-5-ranks)
      rows stage-sweep-ranks "@$experiments/stage-sweep.flags" --gpus 2 --min-time 1
      rows stage-sweep-7b "@$experiments/stage-sweep-7b.flags" --gpus 2 --min-time 1
      ;;
    published-5-offload)
      rows offload-sweep "@$experiments/offload-sweep.flags" --models gpt2,gpt2-medium,gpt2-large --min-time 1 \
        --nvme-path "$nvme"
      # Larger models take seconds for a step from NVMe.
      rows offload-sweep-xl "@$experiments/offload-sweep.flags" --models gpt2-xl,opt-1.3b --steps 5 --warmup 2 --min-time 1 \
        --nvme-path "$nvme"
      ;;
    published-5-large)
      rows offload-sweep-7b "@$experiments/offload-sweep.flags" --models llama-2-7b --steps 3 --warmup 1 --min-time 1 \
        --nvme-path "$nvme"
      rows offload-sweep-13b "@$experiments/offload-sweep.flags" --models llama-2-13b --steps 2 --warmup 1 --min-time 1 \
        --nvme-path "$nvme"
      ;;
    predictions)
      "$bin/info" --measure "$out/two.json" --device "$device" --ranks 1,2 --precisions bf16 --measure-time 1
      two=("${one[@]}" --gpus 2 --stages dp,0,1,2,3)
      without_dp=("${one[@]}" --gpus 2 --stages 0,1,2,3)
      predicted predictions_32x1024 --model gpt2 "${two[@]}" --batch 32 --sequence 1024 --precisions bf16
      predicted predictions_16x256 --model gpt2 "${two[@]}" --batch 16 --sequence 256 --precisions bf16
      predicted predictions_8x1024 --model gpt2 "${without_dp[@]}" --batch 8 --sequence 1024 --precisions fp16
      predicted predictions_medium --model gpt2-medium "${without_dp[@]}" --batch 8 --sequence 1024 --precisions bf16
      ;;
    drift)
      # For each precision and seed, prints how far the losses of a run are from the losses of a run in fp64 that has the
      # same weights and samples. Chance decides how much small differences grow, so this part trains with several seeds.
      for precision in fp64 fp32 tf32 bf16x6 bf16x3; do
        attention=auto
        if [ "$precision" = fp64 ]; then attention=reference; fi
        rm -f "$out/drift_$precision".*
        for seed in ${TESSERA_SEEDS:-1 2 3 4 5}; do
          "$bin/train" -q --device "$device" --model gpt2 --precision "$precision" --attention "$attention" --batch 4 \
            --sequence 128 --steps "${TESSERA_STEPS:-100}" --clip 1 --min-time 0.000001 --seed "$seed" \
            --log "$out/drift_$precision.$seed.jsonl" || { echo "drift: $precision, seed $seed ended with $?"; continue; }
          grep -o '"step":[0-9]*,"loss":[^,]*' "$out/drift_$precision.$seed.jsonl" | sed 's/.*://' > "$out/drift_$precision.$seed.txt"
          [ -e "$out/drift_fp64.$seed.txt" ] || { echo "drift: there is no run in double with seed $seed"; continue; }
          paste "$out/drift_fp64.$seed.txt" "$out/drift_$precision.$seed.txt" | awk -v name="$precision" -v seed="$seed" '
            { off = $1 - $2; if (off < 0) off = -off; if (off > most) most = off; sum += off * off; if (NR <= 12 && off > early) early = off }
            END { printf "%-8s seed %d: of %d losses from double: largest %.3g, of the first 12 %.3g, root mean square %.3g\n",
                    name, seed, NR, most, early, sqrt(sum / NR) }'
        done
      done
      ;;
    start)
      for model in gpt2 gpt2-xl; do
        for run in 1 2 3; do
          rm -f "$out/start.jsonl"
          "$bin/train" --device "$device" --model "$model" --precision bf16 --batch 8 --sequence 1024 --steps 1 \
            --min-time 0.000001 --log "$out/start.jsonl" > "$out/start.txt" 2>&1 || tail -n 1 "$out/start.txt"
          echo "start of $model, run $run: $(grep -o '"first_step_s":[0-9.]*' "$out/start.jsonl" 2> /dev/null || echo none)"
        done
      done
      ;;
    *)
      echo "no part '$part'" >&2
      exit 2
      ;;
  esac
done
