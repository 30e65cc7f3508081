#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a model on the nodes of a SLURM cluster, with one process for each GPU.
#
#   examples/slurm/train.sh --gpus 16 --strategy zs2 --data tokens.bin --output runs/zs2 -- --model gpt2 --precision bf16
#
# Submits a job with sbatch and prints the number of the job. Inside a job it trains at once: in an allocation of `salloc`,
# or when sbatch runs this script.
#
# Options, with their defaults in brackets:
#   --gpus N            number of ranks, each with one GPU                       [1]
#   --cpus N            number of ranks, each on the CPU; replaces --gpus
#   --per-node N        number of ranks on each node                             [8]
#   --cpus-per-rank N   CPU cores of each rank: --cpus-per-task of SLURM         [the default of the cluster]
#   --strategy NAME     dp, zs0, zs1, zs2 or zs3: the flag --stage of train      [zs2]
#   --data PATH         file of text or tokens: the flag --data of train         [the default of train]
#   --output FOLDER     folder for steps.jsonl, checkpoints/, ranks/rank-R.log and job-NUMBER.out   [runs/STRATEGY]
#   --program FILE      the program `train`  [build/cuda/bin/train, with --cpus build/cpu/bin/train, of the script's repository]
#   --requeue           submits the job again after each time limit, until the training is complete
#   --dry-run           prints the command of sbatch and the options that sbatch reads from this script, and submits nothing.
#                       Only warns if the program or the data do not exist
#   -- FLAG...          further flags of train
#
# Options of sbatch, such as a partition or a time limit, come from the environment variables that sbatch reads, for example
# SBATCH_PARTITION=gpu SBATCH_TIMELIMIT=60 (minutes). SLURM sends SIGTERM to all ranks two to three minutes before the time
# limit. The ranks then save a checkpoint and end. A later job with the same --output resumes from this checkpoint.
#SBATCH --job-name=tessera
#SBATCH --signal=TERM@120
#SBATCH --open-mode=append
set -euo pipefail
fail() { printf 'train.sh: %s\n' "$1" >&2; exit 2; }
# missing MESSAGE: ends the script, because a file is missing. With --dry-run it only prints a warning.
missing() {
  [ -n "$dry" ] || fail "$1"
  printf 'train.sh: warning: %s\n' "$1" >&2
}

arguments=("$@")
ranks=1 device=cuda per_node=8 strategy=zs2 data=() output='' program='' requeue='' dry='' cores=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --requeue) requeue=1; shift; continue ;;
    --dry-run) dry=1; shift; continue ;;
    --gpus | --cpus | --per-node | --cpus-per-rank | --strategy | --data | --output | --program) [ $# -gt 1 ] || fail "$1 needs a value" ;;
    -h | --help) sed -n '3,/^#SBATCH/{/^#SBATCH/!s/^# \{0,1\}//p}' "$0"; exit ;;
    *) fail "the option '$1' is not known; --help lists the options, and flags of train follow --" ;;
  esac
  case $1 in
    --gpus) ranks=$2 ;;
    --cpus) ranks=$2 device=cpu ;;
    --per-node) per_node=$2 ;;
    --cpus-per-rank)
      [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "'$2' is not a number of cores of a rank"
      cores=(--cpus-per-task="$2") ;;
    --strategy) strategy=$2 ;;
    --data)
      data=(--data "$2") ;;
    --output) output=$2 ;;
    --program) program=$2 ;;
  esac
  shift 2
done
shift $(($# > 0))
[[ $ranks =~ ^[1-9][0-9]*$ ]] || fail "'$ranks' is not a number of ranks"
[[ $per_node =~ ^[1-9][0-9]*$ ]] || fail "'$per_node' is not a number of ranks on a node"
[ "$per_node" -le "$ranks" ] || per_node=$ranks
[ $((ranks % per_node)) = 0 ] || fail "$ranks ranks do not fill nodes of $per_node; give another --per-node"
if [ -z "$program" ]; then
  program=build/cuda/bin/train
  [ "$device" = cuda ] || program=build/cpu/bin/train
  # In a job, $0 is a copy of the script outside of the repository. The script that submits the job therefore passes --program.
  repository=$(cd -- "$(dirname -- "$0")/../.." 2>/dev/null && pwd) || repository=''
  if [ -f "$repository/examples/slurm/train.sh" ]; then program=$repository/$program; fi
fi
preset=cuda
[ "$device" = cuda ] || preset=cpu
command -v "$program" >/dev/null ||
  missing "the program $program does not exist; build it with: cmake --preset $preset && cmake --build --preset $preset --target tessera_train, or give --program"
if [ "${#data[@]}" -gt 0 ] && [ ! -e "${data[1]}" ]; then
  missing "the file ${data[1]} does not exist; give --data a file or folder that exists on every node"
fi
output=${output:-runs/$strategy}

if [ -z "${SLURM_JOB_ID:-}" ]; then
  gpus=()
  [ "$device" = cpu ] || gpus=(--gpus-per-node="$per_node")
  passed=() after=''
  for word in "${arguments[@]}"; do
    [ "$word" != -- ] || after=1
    [ -z "$after" ] && [ "$word" = --dry-run ] || passed+=("$word")
  done
  submit=(sbatch --nodes=$((ranks / per_node)) --ntasks-per-node="$per_node" "${gpus[@]}" "${cores[@]}"
    --output="$output/job-%j.out" "$0" --program "$program" "${passed[@]}")
  if [ -n "$dry" ]; then
    line=''
    for name in "${!SBATCH_@}"; do line+=$(printf '%s=%q ' "$name" "${!name}"); done
    line+=$(printf '%q ' "${submit[@]}")
    printf '%s\n# sbatch also reads from the script:%s\n' "${line% }" "$(sed -n 's/^#SBATCH / /p' "$0" | tr -d '\n')"
    exit
  fi
  mkdir -p "$output"
  exec "${submit[@]}"
fi
[ -z "$dry" ] || fail "--dry-run prints the command of sbatch, but this is already job $SLURM_JOB_ID; leave it out"
mkdir -p "$output"

# CPU ranks on several nodes communicate through MPI. To start MPI, srun must provide PMIx.
if [ "$device" = cpu ] && [ "$ranks" != "$per_node" ]; then export SLURM_MPI_TYPE=${SLURM_MPI_TYPE:-pmix}; fi
code=0
srun --nodes=$((ranks / per_node)) --ntasks="$ranks" --ntasks-per-node="$per_node" "${cores[@]}" \
  "$program" --device "$device" --stage "$strategy" "${data[@]}" \
  --checkpoint "$output/checkpoints" --resume --log "$output/steps.jsonl" --log-ranks "$output/ranks" "$@" || code=$?
if [ "$code" = 143 ] && [ -n "$requeue" ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
