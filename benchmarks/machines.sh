#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Estimates the times of other GPUs from a measured H200: benchmarks/machines.sh [--check | --fold FILE] [FOLDER]
# FOLDER (default examples/machines) contains h200.json, which info --measure wrote on an H200. The script writes one file to
# FOLDER for each GPU of the table below. With --check it compares the existing files with its results instead. With --fold it
# first copies the times of collectives of FILE to h200.json. They replace the times of the same kind of collective and the same
# number of ranks. FILE was written by info --measure on a host with several H100 or H200 GPUs.
#
# Each line of h200.json gives the time T of one entry of a training step, with its bytes and FLOPs. At the rates in the data
# sheet of the H200, there is a time for moving the bytes and a time for computing the FLOPs. r is the longer of these two
# times, because the GPU moves and computes at the same time. r' is the longer of the two times at the rates of the other GPU.
# The part of T up to 4 r counts as work of the GPU and is multiplied by r' / r. The rest of T is launches and waits, and does
# not change. The times of copies to and from the host are scaled by the rate of the link. The times of the host's own work are
# scaled by the memory bandwidth of the assumed host. The estimate ignores caches, power limits that lower the clocks, and
# kernels that exist only for Hopper. The programs apply the same rule to work that was not measured on the H200, so each file
# has the rates of both GPUs (PeakRates::scaled in examples/programs/prediction/machine_times.cpp).
#
# The time of a collective is the longer of two times: its time over NVLink 4, and alpha + bytes x traffic / (share x rate).
# Here alpha is the latency over NVLink 4. traffic is the part of the buffer that a link carries by the ring model of NCCL's
# tests (doc/PERFORMANCE.md in NVIDIA/nccl-tests). rate is the rate of the link in the data sheet, and share is the part of this
# rate that NCCL reached.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
check=
fold=
if [ "${1:-}" = --check ]; then
  check=yes
  shift
elif [ "${1:-}" = --fold ] && [ $# -gt 1 ]; then
  fold=$2
  shift 2
fi
if [[ "${1:-}" = -* ]] || [ $# -gt 1 ]; then
  echo "benchmarks/machines.sh: '$*' is not a valid list of arguments; give [--check | --fold FILE] [FOLDER]" >&2
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
rtx4090     | NVIDIA GeForce RTX 4090 | 1008 | 165.2 | 82.6 | 32 | NVIDIA Ada GPU Architecture, appendix A (products with fp32 sums)
rtx3090     | NVIDIA GeForce RTX 3090 |  936 | 71.0 | 35.6 | 32 | NVIDIA Ampere GA102 GPU Architecture, appendix A (products with fp32 sums)
'
# The links between GPUs of one host. A line holds for hosts with up to "ranks" GPUs. The rate is GB/s in one direction (half of
# the data sheet's figure). "share" is the bus bandwidth of a large all_reduce divided by the rate. The bandwidths are from
# issues of NVIDIA/nccl-tests and NVIDIA/nccl: 8 A100 SXM reach 200 to 235 GB/s (149) and 2 A100 208 GB/s (178); 2 H100 with
# bridges reach 116 GB/s (nccl 1161); a ring over PCIe 4 reaches 20 GB/s (178). GeForce cards cannot copy to each other directly.
# Each byte goes through host memory, so half of the share is assumed for them. "error" is the expected error of a time in
# percent. "slow" is the share of its speed that a computation loses during a collective, and "slowed" is the share that the
# collective loses. Both shares were measured on two H100. For PCIe they are assumptions: NCCL occupies fewer multiprocessors
# there, and the link limits the collective. "MiB" is the memory of the card as the driver reports it.
# name        MiB      ranks  GB/s  share  error  slow  slowed  link
links='
h200        | 143771 |  8 | 450 | -    | 20 | 0.25 | 0.45   | NVLink 4 with 900 GB/s
h100-sxm    |  81559 |  8 | 450 | -    | 20 | 0.25 | 0.45   | NVLink 4 with 900 GB/s
h100-nvl    |  95830 |  2 | 300 | 0.39 | 50 | 0.25 | 0.45   | NVLink 4 bridges with 600 GB/s between two GPUs
h100-nvl    |  95830 |  8 |  64 | 0.62 | 50 | 0.25 | 0.45   | PCIe 5 x16 with 128 GB/s between more GPUs
a100-80gb   |  81920 |  8 | 300 | 0.70 | 30 | 0.25 | 0.45   | NVLink 3 with 600 GB/s
l4          |  23034 |  8 |  32 | 0.62 | 50 | 0.1  | 0.1    | PCIe 4 x16 with 64 GB/s
rtx4090     |  24564 |  8 |  32 | 0.31 | 50 | 0.1  | 0.1    | PCIe 4 x16 with 64 GB/s, through host memory
rtx3090     |  24576 |  8 |  32 | 0.31 | 50 | 0.1  | 0.1    | PCIe 4 x16 with 64 GB/s, through host memory
'
# The host of one GPU. "GB/s" is the memory bandwidth that the GPU's share of the host has at the most, by the data sheet of the
# processor. An update of AdamW is assumed to reach 0.8 of it (host_share). The rate of the H200's host, to which it is
# compared, is the rate of its largest measured AdamW update. A dash means that the host is like the host of the H200, whose
# model and memory are not recorded, so its own share is not known. "error" is the expected error of the time of a step without collectives. Steps of
# two H100 SXM were predicted within 5 percent; the errors of the other GPUs are assumptions, because none was measured.
# name        GB/s  error  host
host_share=0.8
hosts='
h100-sxm    | - | 15 | like the host of the H200, 16 cores for each GPU
h100-nvl    | - | 30 | like the host of the H200, 16 cores for each GPU
a100-80gb   | 51 | 30 | an eighth of a DGX A100: two EPYC 7742 with 8 channels of DDR4-3200 each (409.6 GB/s)
l4          | 17 | 30 | 8 vCPUs for each GPU, as AWS g6.2xlarge: a twelfth of an EPYC 7R13 with 8 channels of DDR4-3200 (204.8 GB/s)
rtx4090     | 83 | 30 | a desktop with one GPU and two channels of DDR5-5200 (83.2 GB/s)
rtx3090     | 51 | 30 | a desktop with one GPU and two channels of DDR4-3200 (51.2 GB/s)
'
# The network between hosts. "GB/s" is for one GPU and one direction. The latency of 9.6 us is that of a step of a ring over a
# network in src/graph/tuning.cc of NVIDIA/nccl. h200.json has the network of an NVIDIA DGX H200, in the same way. The other
# machines have no usual network, so their files have none.
# name        GB/s  network
networks='
h100-sxm    | 50 | InfiniBand with 400 Gb/s for each GPU | NVIDIA DGX H100 Datasheet
a100-80gb   | 25 | InfiniBand with 200 Gb/s for each GPU | NVIDIA DGX A100 Datasheet
'
measured=$folder/h200.json
[ -r "$measured" ] || { echo "benchmarks/machines.sh: there is no $measured; info --measure h200.json makes it on an H200" >&2; exit 2; }
good=yes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "$fold" ]; then
  grep -q '^{"kind":' "$fold" || {
    echo "benchmarks/machines.sh: $fold has no collectives; info --measure writes them on a host with several GPUs" >&2
    exit 2
  }
  # The line of the key "collectives" is followed by one line for each point and by a line that begins with "]}".
  awk -v fold="$fold" '
    function key_of(text) { match(text, /"kind":"[a-z_]+","ranks":[0-9]+/); return substr(text, RSTART, RLENGTH) }
    function point(text) { sub(/,$/, "", text); printf "%s%s", between, text; between = ",\n" }
    BEGIN {
      while ((getline text < fold) > 0)
        if (text ~ /^[{]"kind":/) { added[++count] = text; is_new[key_of(text)] = 1 }
    }
    /^[{]"kind":/ { inside = 1; if (!(key_of($0) in is_new)) point($0); next }
    inside { for (i = 1; i <= count; ++i) point(added[i]); printf "\n"; inside = 0 }
    { print }' "$measured" > "$work/h200.json"
  cp "$work/h200.json" "$measured"
  echo "wrote the collectives of $fold to $measured"
fi
# The bytes per second of the largest AdamW update on the host of the H200.
host_rate=$(awk '
  /"what":"host_adamw"/ {
    match($0, /"bytes":[^,}]+/); bytes = substr($0, RSTART + 8, RLENGTH - 8) + 0
    match($0, /"seconds":[^,}]+/); seconds = substr($0, RSTART + 10, RLENGTH - 10) + 0
    if (bytes > most) { most = bytes; rate = bytes / seconds }
  }
  END { printf "%.0f", rate }' "$measured")
for name in $(awk -F' *[|] *' 'NF > 1 && $1 != "h200" { print $1 }' <<< "$table"); do
  awk -v to="$name" -v table="$table" -v links="$links" -v hosts="$hosts" -v networks="$networks" -v host_rate="$host_rate" -v host_share="$host_share" '
    BEGIN {
      lines = split(table, line, "\n")
      for (i = 1; i <= lines; ++i) {
        if (split(line[i], cell, / *[|] */) != 7) continue
        machine[cell[1]] = cell[2]; memory[cell[1]] = cell[3] * 1e9; half[cell[1]] = cell[4] * 1e12
        single[cell[1]] = cell[5] * 1e12; link[cell[1]] = cell[6] * 1e9; sheet[cell[1]] = cell[7]
      }
      lines = split(links, line, "\n")
      for (i = 1; i <= lines; ++i) {
        if (split(line[i], cell, / *[|] */) != 9 || cell[1] != to) continue
        ++link_count; bytes_of_card = cell[2] * 1048576; up_to[link_count] = cell[3]; rate_of[link_count] = cell[4] * 1e9
        share[link_count] = cell[5]; error = cell[6]; slow = cell[7]; slowed = cell[8]
        link_text = link_text (link_count > 1 ? ", " : "") cell[9]
      }
      lines = split(hosts, line, "\n")
      for (i = 1; i <= lines; ++i) {
        if (split(line[i], cell, / *[|] */) != 4 || cell[1] != to) continue
        host_slower = cell[2] == "-" || host_rate == 0 ? 1 : host_rate / (cell[2] * 1e9 * host_share); step_error = cell[3]; host_text = cell[4]
      }
      lines = split(networks, line, "\n")
      for (i = 1; i <= lines; ++i) {
        if (split(line[i], cell, / *[|] */) != 4 || cell[1] != to) continue
        network = sprintf(" \"network\": {\"link\":\"%s\",\"source\":\"computed from the %s\",\"bytes_per_s\":%.4g,\"latency_s\":9.6e-06,\"error_pct\":50.0},\n", cell[3], cell[4], cell[2] * 1e9)
      }
      printf "{\n \"format\": \"tessera machine times\",\n \"version\": 1,\n \"device\": \"cuda\",\n"
      printf " \"machine\": \"%s\",\n", machine[to]
      printf " \"source\": \"%s, scaled from the times of %s by data sheet; not measured\",\n", machine[to], machine["h200"]
      printf " \"environment\": {\"made_by\": \"benchmarks/machines.sh\", \"measured\": \"h200.json\", \"data_sheets\": [\"%s\", \"%s\"], \"host_link_bytes_per_s\": %.4g},\n", sheet["h200"], sheet[to], link[to]
      printf " \"scaled_from\": {\"machine\":\"h200\",%s},\n \"rates\": {%s},\n", rates_text("h200"), rates_text(to)
      printf " \"memory_bytes\": %.0f,\n \"max_ranks\": %d,\n", bytes_of_card, up_to[link_count]
      printf " \"host\": \"assumed %s\",\n \"error_pct\": %.1f,\n%s", host_text, step_error, network
    }
    function rates_text(of) {
      return sprintf("\"memory_bytes_per_s\":%.4g,\"flops_16_bit\":%.4g,\"flops_fp32\":%.4g", memory[of], half[of], single[of])
    }
    function number(key,   part) {
      if (!match($0, "\"" key "\":[^,}]+")) { print "no " key " in line " NR > "/dev/stderr"; failed = 1; exit 1 }
      part = substr($0, RSTART, RLENGTH)
      sub(/^[^:]*:/, "", part)
      return part + 0
    }
    function rate(of, precision) { return precision ? single[of] : half[of] }
    function least(a, b) { return a < b ? a : b }
    function most(a, b) { return a > b ? a : b }
    # The part of the buffer that a link carries, and the steps of the ring.
    function traffic(kind, ranks) { return kind == "broadcast" ? 1 : steps(kind, ranks) / ranks }
    function steps(kind, ranks) { return (kind == "all_reduce" ? 2 : 1) * (ranks - 1) }
    # The latency of a kind and number of ranks, from the line through its two smallest sizes.
    function alpha_of(key,   beta) {
      if (points[key] < 2) return 0
      beta = (time[key, 2] - time[key, 1]) / (size[key, 2] - size[key, 1])
      return least(time[key, 1], most(0, time[key, 1] - beta * size[key, 1]))
    }
    function collectives(   at, ranks, from, key, alpha, i, k, found, wanted, text) {
      text = share[1] == "-" ? source : "computed from the data sheet of the link and the times of NVLink 4"
      printf " \"collectives\": {\"source\":\"%s\",\"link\":\"%s\",\"scaled\":%s,", text, link_text, share[1] == "-" ? "false" : "true"
      printf "\"error_pct\":%.1f,\"slowdown\":%g,\"collective_slowdown\":%g, \"points\": [", error, slow, slowed
      split("2 4 8", wanted, " ")
      for (k = 1; k <= kind_count; ++k)
        for (at = 1; at <= 3; ++at) {
          ranks = wanted[at]; from = 0
          for (i = 1; i <= 3; ++i) if (points[kind[k], wanted[i]] && (!from || from < ranks)) from = wanted[i]
          key = kind[k] SUBSEP from
          if (share[1] == "-" && from != ranks) continue
          for (i = 1; ranks > up_to[i]; ++i) continue
          alpha = alpha_of(key)
          for (found = 1; found <= points[key]; ++found) {
            took = (time[key, found] - alpha) * traffic(kind[k], ranks) / traffic(kind[k], from)
            if (share[i] != "-") took = most(took, size[key, found] * traffic(kind[k], ranks) / (share[i] * rate_of[i]))
            printf "%s\n{\"kind\":\"%s\",\"ranks\":%d,\"bytes\":%.1f,\"seconds\":%.6g}", between, kind[k], ranks, size[key, found], alpha * steps(kind[k], ranks) / steps(kind[k], from) + took
            between = ","
          }
        }
      printf "\n]},\n"
      between = ""
    }
    /^ "collectives":/ {
      if (!match($0, /"source":"[^"]*"/)) { print "line " NR " has no source of collectives" > "/dev/stderr"; failed = 1; exit 1 }
      source = substr($0, RSTART + 10, RLENGTH - 11)
    }
    /^[{]"kind":/ {
      match($0, /"kind":"[a-z_]+"/)
      name = substr($0, RSTART + 8, RLENGTH - 9)
      if (!(name in seen)) { seen[name] = 1; kind[++kind_count] = name }
      key = name SUBSEP number("ranks")
      size[key, ++points[key]] = number("bytes"); time[key, points[key]] = number("seconds")
    }
    /^ "timings":/ { if (kind_count) collectives(); printf " \"timings\": [" }
    /^[{]"precision":/ {
      took = number("seconds"); bytes = number("bytes"); flops = number("flops") + number("attention_flops")
      if (number("ranks") != 1) { print "line " NR " is of several ranks, but only times of one rank can be scaled" > "/dev/stderr"; failed = 1; exit 1 }
      host = /"what":"host_/; copy = /"move":true/; fp32 = /"precision":"fp32"/
      if (!fp32 && !/"precision":"(bf16|fp16)"/) { print "line " NR " is of a precision whose rate is not in the table" > "/dev/stderr"; failed = 1; exit 1 }
      if (copy && !/"what":"copy (upload|download)"/) { print "line " NR " is a move that the table does not scale" > "/dev/stderr"; failed = 1; exit 1 }
      here = copy ? bytes / link["h200"] : most(bytes / memory["h200"], flops / rate("h200", fp32))
      there = copy ? bytes / link[to] : most(bytes / memory[to], flops / rate(to, fp32))
      work = host ? 0 : 4 * here
      if (work > took) work = took
      if (work > 0) took += work * (there / here - 1)
      if (host) took *= host_slower
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
    echo "$folder/$name.json differs from the output of benchmarks/machines.sh for $measured; run it" >&2
    diff "$folder/$name.json" "$work/$name.json" | head -n 6 >&2 || true
    good=no
  fi
done
[ $good = yes ]
