# SPDX-License-Identifier: Apache-2.0
# Functions that simulate two hosts on one machine, for shell scripts that run as root. Each host has its own network,
# host name, /dev/shm and semaphores. The hosts share the files and the process ids of this machine. They end when the
# script ends.
#   start_hosts FOLDER    starts h1 (10.77.0.11) and h2 (10.77.0.12), and stores their files in FOLDER
#   on HOST COMMAND...    runs a command on a host
#   $FOLDER/on            a program that launchers can use instead of ssh: on [OPTION...] HOST COMMAND...
#   hosts_missing         prints the reason why this machine cannot have such hosts, or nothing

hosts_missing() {
  local reason
  if [ "$(id -u)" != 0 ]; then
    echo "two hosts need root"
  elif ! command -v ip >/dev/null; then
    echo "two hosts need the command ip (apt-get install iproute2)"
  elif ! command -v nsenter >/dev/null; then
    echo "two hosts need the commands unshare and nsenter (apt-get install util-linux)"
  elif ! reason=$(unshare --net --uts --ipc --mount sh -c \
      'ip link add tessera0 type veth peer name tessera1 && mount -t tmpfs none /dev/shm && hostname h1' 2>&1); then
    echo "this system allows no namespaces: ${reason//$'\n'/; }"
  fi
}

start_hosts() {
  hosts_folder=$1
  mkdir -p "$hosts_folder"
  printf '127.0.0.1 localhost\n10.77.0.11 h1\n10.77.0.12 h2\n' >"$hosts_folder/hosts"
  cat >"$hosts_folder/on" <<'AGENT'
#!/bin/sh
# Ignores options of ssh.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec nsenter --target "$(cat "$(dirname "$0")/$host.pid")" --net --uts --ipc --mount sh -c "$*"
AGENT
  chmod +x "$hosts_folder/on"
  local host
  for host in h1 h2; do
    unshare --net --uts --ipc --mount sh -c "hostname $host && mount -t tmpfs none /dev/shm &&
      mount --bind '$hosts_folder/hosts' /etc/hosts && ip link set lo up && touch '$hosts_folder/$host.up' &&
      exec sleep infinity" &
    echo $! >"$hosts_folder/$host.pid"
  done
  trap stop_hosts EXIT
  local wait
  for wait in $(seq 100); do
    [ -e "$hosts_folder/h1.up" ] && [ -e "$hosts_folder/h2.up" ] && break
    sleep 0.1
  done
  ip link add eth0 netns "$(cat "$hosts_folder/h1.pid")" type veth peer name eth0 netns "$(cat "$hosts_folder/h2.pid")"
  for host in 1 2; do
    on h$host ip addr add 10.77.0.1$host/24 dev eth0
    on h$host ip link set eth0 up
  done
  for wait in $(seq 100); do  # some MPI libraries ignore a network that has just come up
    on h1 ip link show eth0 | grep -q 'state UP' && on h2 ip link show eth0 | grep -q 'state UP' && break
    sleep 0.1
  done
}

on() {
  local host=$1
  shift
  nsenter --target "$(cat "$hosts_folder/$host.pid")" --net --uts --ipc --mount --wd="$PWD" "$@"
}

stop_hosts() {
  local host
  for host in h1 h2; do
    kill "$(cat "$hosts_folder/$host.pid")" 2>/dev/null || true
    rm -f "$hosts_folder/$host".{pid,up}
  done
}
