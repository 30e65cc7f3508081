# SPDX-License-Identifier: Apache-2.0
# Functions that run SLURM on the two hosts of two_hosts.sh: a controller on h1, and a node on each host. A script
# sources two_hosts.sh before this file, and calls start_hosts before start_slurm.
#   start_slurm FOLDER CORES    starts SLURM with CORES cores on each node, and stores its files in FOLDER. Sets the variable
#                               SLURM_CONF, so that `on h1 srun ...` finds the controller
#   slurm_missing               prints the reason why this machine cannot run SLURM, or nothing
#   stop_slurm                  ends all programs of SLURM; call it before stop_hosts

slurm_missing() {
  local program
  for program in slurmctld slurmd munged srun sbatch; do
    PATH=$PATH:/usr/sbin command -v $program >/dev/null ||
      { echo "$program is not installed (apt-get install slurmctld slurmd slurm-client munge)"; return; }
  done
  hosts_missing
}

start_slurm() {
  slurm_folder=$1
  local cores=$2 host
  PATH=$PATH:/usr/sbin
  mkdir -p "$slurm_folder/controller" "$slurm_folder/h1.spool" "$slurm_folder/h2.spool" "$slurm_folder/h1.tmp" "$slurm_folder/h2.tmp"
  # Creates a key, a socket and a configuration for this test only. If this machine has a SLURM of its own, that SLURM
  # is not changed.
  (umask 077 && dd if=/dev/urandom of="$slurm_folder/munge.key" bs=128 count=1 2>/dev/null)
  munged --force --key-file="$slurm_folder/munge.key" --socket="$slurm_folder/munge.socket" \
    --pid-file="$slurm_folder/munge.pid" --seed-file="$slurm_folder/munge.seed" --log-file="$slurm_folder/munge.log"
  export SLURM_CONF=$slurm_folder/slurm.conf
  cat >"$SLURM_CONF" <<CONF
ClusterName=tessera
SlurmctldHost=h1
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm_folder/munge.socket
StateSaveLocation=$slurm_folder/controller
SlurmctldPidFile=$slurm_folder/slurmctld.pid
SlurmctldLogFile=$slurm_folder/slurmctld.log
SlurmdSpoolDir=$slurm_folder/%n.spool
TmpFS=$slurm_folder/%n.tmp
SlurmdPidFile=$slurm_folder/%n.slurmd.pid
SlurmdLogFile=$slurm_folder/%n.slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerType=sched/builtin
KillWait=30
NodeName=h1 NodeAddr=10.77.0.11 CPUs=$cores
NodeName=h2 NodeAddr=10.77.0.12 CPUs=$cores
PartitionName=all Nodes=h1,h2 Default=YES MaxTime=INFINITE State=UP
CONF
  on h1 slurmctld -D >"$slurm_folder/slurmctld.out" 2>&1 &
  for host in h1 h2; do on $host slurmd -D -N $host >"$slurm_folder/$host.slurmd.out" 2>&1 & done
  local wait
  for wait in $(seq 200); do
    [ "$(on h1 sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return
    sleep 0.1
  done
  tail -n 20 "$slurm_folder"/*.log "$slurm_folder"/*.out
  return 1
}

stop_slurm() {
  local file
  for file in h1.slurmd h2.slurmd slurmctld munge; do
    [ ! -s "$slurm_folder/$file.pid" ] || kill "$(cat "$slurm_folder/$file.pid")" 2>/dev/null || true
  done
}
