#!/usr/bin/env bash
# A Linux guest that runs Anabranch itself: its kernel is the NVMe/TCP target and the NBD client.
#
#   machine.sh start PROGRAM         boots it, with that build of Anabranch
#   machine.sh demo                  runs the demo
#   machine.sh nodes                 numa: each NUMA node's worker keeps to the card of its node
#   machine.sh serve                 runs the host, connected to both ports of the guest's kernel
#   machine.sh attach                attaches the kernel's NBD client, and makes a file system
#   machine.sh work SECONDS          writes and verifies files while ports go and come
#   machine.sh detach                the files are there, the file system is in order; detaches
#   machine.sh compare               attribute files beside those of the kernel's own host
#   machine.sh finish                ends the host
#   machine.sh exec COMMAND...       a shell command in the guest
#   machine.sh stop
#
# Environment: NAME (several guests at once), LIMIT (seconds a verb may take), LINUXVM_CACHE,
# LINUXVM_KERNEL.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=${NAME:-machine}
usage() { sed -n '2,/^set /{/^#/s/^# \?//p}' "$0" >&2; exit 2; }

start() { # PROGRAM
  local share library
  share=$(guest_dir "$NAME")/share
  rm -rf "$share/lib"
  mkdir -p "$share/lib"
  cp "$1" "$share/lib/anabranch"
  # What it was linked to here, the loader too: the guest may have other libraries.
  ldd "$1" | grep -oE '/[^ ]+' | while read -r library; do
    case $library in
      */ld-linux*) cp -L "$library" "$share/lib/loader" ;;
      *) cp -L "$library" "$share/lib/" ;;
    esac
  done
  cp "$LINUXVM"/guest/{nvmet,disk}.sh "$share/"
  cat >"$share/settings" <<END
NQN="nqn.2026-01.test.linuxvm:machine"
PORTS="1:4420 2:4421"
NAMESPACES="1:1:256"
ANA="1:1=optimized 2:1=optimized"
BLOCK_BYTES="4096"
END
  # Two NUMA nodes with half of the CPUs each, and a network card.
  local nodes=(-smp "$LINUXVM_CPUS,sockets=2") half=$((LINUXVM_CPUS / 2)) node cpus
  for node in 0 1; do
    cpus=$((half * node))-$((half * (node + 1) - 1))
    nodes+=(
      -object "memory-backend-ram,id=memory$node,size=768M"
      -numa "node,nodeid=$node,cpus=$cpus,memdev=memory$node"
      -device "pxb,bus=pci.0,id=bus$node,bus_nr=$((64 + 64 * node)),numa_node=$node"
      -netdev "user,id=net$node,restrict=on"
      -device "virtio-net-pci,netdev=net$node,bus=bus$node,addr=1,romfile="
    )
  done
  nodes+=(-numa "dist,src=0,dst=1,val=21")
  guest_start "$NAME" "$LINUXVM/guest/machine.sh" 1536 "" "${nodes[@]}"
}

[ $# -gt 0 ] || usage
verb=$1
shift
case $verb in
  start)
    [ $# = 1 ] || usage
    start "$1"
    ;;
  stop) guest_stop "$NAME" ;;
  exec) guest_exec "$NAME" "$@" ;;
  demo | nodes | serve | attach | work | detach | compare | finish)
    guest_exec "$NAME" -t "${LIMIT:-300}" "sh /share/role.sh $verb $*"
    ;;
  *) usage ;;
esac
