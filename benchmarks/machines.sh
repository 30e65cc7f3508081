#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Estimates the times of other GPUs from a measured H200: benchmarks/machines.sh [--check] [FOLDER]
# FOLDER (default examples/machines) contains h200.json, which info --measure wrote on an H200. The script writes one file to
# FOLDER for each GPU of the table below. With --check it compares the existing files with its results instead.
#
# Each line of h200.json gives the time T of one entry of a training step, with its bytes and FLOPs. At the data sheet's rates
# of the H200, its bytes need m seconds and its FLOPs f seconds. At the rates of the other GPU they need m' and f' seconds.
# The part of T up to 4 (m + f) counts as work of the GPU and is multiplied by (m' + f') / (m + f). The rest of T is launches
# and waits, and does not change. The times of copies to and from the host are scaled by the rate of the link. The times of
# the host's own work do not change, so each file describes the host of the H200. The estimate ignores caches, power limits
# that lower the clocks, and kernels that exist only for Hopper.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
check=
if [ "${1:-}" = --check ]; then
  check=yes
  shift
fi
if [[ "${1:-}" = -* ]] || [ $# -gt 1 ]; then
  echo "benchmarks/machines.sh: '$*' is not what it takes; give [--check] [FOLDER]" >&2
  exit 2
fi
folder=${1:-$root/examples/machines}

# From NVIDIA's data sheets: memory in GB/s; dense 16-bit products on tensor cores in TFLOP/s (half of the figure with
# sparsity); fp32 without tensor cores in TFLOP/s; PCIe in GB/s in one direction (half of the figure for both directions). The
# figures in TFLOP/s equal the ones in examples/programs/machine/peaks.hpp.
# name        the driver's name         memory  16-bit  fp32  PCIe  data sheet
table='
h200        | NVIDIA H200             | 4800 | 989.4 | 66.9 | 64 | NVIDIA H200 Tensor Core GPU Datasheet (SXM)
h100-sxm    | NVIDIA H100 80GB HBM3   | 3350 | 989.4 | 66.9 | 64 | NVIDIA H100 Tensor Core GPU Datasheet (SXM)
h100-nvl    | NVIDIA H100 NVL         | 3900 | 835.5 | 60.0 | 64 | NVIDIA H100 Tensor Core GPU Datasheet (NVL)
a100-80gb   | NVIDIA A100-SXM4-80GB   | 2039 | 312.0 | 19.5 | 32 | NVIDIA A100 Tensor Core GPU Datasheet (80GB SXM)
l4          | NVIDIA L4               |  300 | 121.0 | 30.3 | 32 | NVIDIA L4 Tensor Core GPU Datasheet
'
measured=$folder/h200.json
[ -r "$measured" ] || { echo "benchmarks/machines.sh: there is no $measured; info --measure h200.json makes it on an H200" >&2; exit 2; }
good=yes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in $(awk -F' *[|] *' 'NF > 1 && $1 != "h200" { print $1 }' <<< "$table"); do
  awk -v to="$name" -v table="$table" '
    BEGIN {
      lines = split(table, line, "\n")
      for (i = 1; i <= lines; ++i) {
        if (split(line[i], cell, / *[|] */) != 7) continue
        machine[cell[1]] = cell[2]; memory[cell[1]] = cell[3] * 1e9; half[cell[1]] = cell[4] * 1e12
        single[cell[1]] = cell[5] * 1e12; link[cell[1]] = cell[6] * 1e9; sheet[cell[1]] = cell[7]
      }
      printf "{\n \"format\": \"tessera machine times\",\n \"version\": 1,\n \"device\": \"cuda\",\n"
      printf " \"machine\": \"%s\",\n", machine[to]
      printf " \"source\": \"%s, scaled from the times of %s by data sheet; not measured\",\n", machine[to], machine["h200"]
      printf " \"environment\": {\"made_by\": \"benchmarks/machines.sh\", \"measured\": \"h200.json\", \"data_sheets\": [\"%s\", \"%s\"],\n", sheet["h200"], sheet[to]
      printf "  \"memory_bytes_per_s\": %.4g, \"flops_16_bit\": %.4g, \"flops_fp32\": %.4g, \"host_link_bytes_per_s\": %.4g},\n", memory[to], half[to], single[to], link[to]
      printf " \"timings\": ["
    }
    function number(key,   part) {
      if (!match($0, "\"" key "\":[^,}]+")) { print "no " key " in line " NR > "/dev/stderr"; failed = 1; exit 1 }
      part = substr($0, RSTART, RLENGTH)
      sub(/^[^:]*:/, "", part)
      return part + 0
    }
    function rate(of, precision) { return precision ? single[of] : half[of] }
    /^[{]"precision":/ {
      took = number("seconds"); bytes = number("bytes"); flops = number("flops") + number("attention_flops")
      if (number("ranks") != 1) { print "line " NR " is of several ranks, and the table has no link between GPUs" > "/dev/stderr"; failed = 1; exit 1 }
      host = /"what":"host_/; copy = /"move":true/; fp32 = /"precision":"fp32"/
      if (!fp32 && !/"precision":"(bf16|fp16)"/) { print "line " NR " is of a precision whose rate is not in the table" > "/dev/stderr"; failed = 1; exit 1 }
      if (copy && !/"what":"copy (upload|download)"/) { print "line " NR " is a move that the table does not scale" > "/dev/stderr"; failed = 1; exit 1 }
      here = copy ? bytes / link["h200"] : bytes / memory["h200"] + flops / rate("h200", fp32)
      there = copy ? bytes / link[to] : bytes / memory[to] + flops / rate(to, fp32)
      work = host ? 0 : 4 * here
      if (work > took) work = took
      if (work > 0) took += work * (there / here - 1)
      sub(/,$/, "")
      sub(/"seconds":[^}]*/, sprintf("\"seconds\":%.6g", took))
      printf "%s%s", between, "\n" $0
      between = ","
      ++count
    }
    END {
      if (failed) exit 1
      if (!count) { print "it holds no line of a timing" > "/dev/stderr"; exit 1 }
      print "\n]}"
    }' "$measured" > "$work/$name.json" || { echo "benchmarks/machines.sh: cannot scale $measured to $name" >&2; exit 2; }
  if [ -z "$check" ]; then
    cp "$work/$name.json" "$folder/$name.json"
    echo "wrote $folder/$name.json"
  elif ! cmp -s "$work/$name.json" "$folder/$name.json"; then
    echo "$folder/$name.json is not what benchmarks/machines.sh makes of $measured; run it" >&2
    diff "$folder/$name.json" "$work/$name.json" | head -n 6 >&2 || true
    good=no
  fi
done
[ $good = yes ]
