#!/usr/bin/env bash
# The Linux kernel's NVMe/TCP target in a guest, reachable on this machine's 127.0.0.1.
#
#   target.sh start                  boots it (settings below) and prints its state
#   target.sh status
#   target.sh ana PORT GROUP STATE   optimized|non-optimized|inaccessible|persistent-loss|change
#   target.sh portdown|portup PORT   takes the subsystem off the port, or puts it back
#   target.sh nsdown|nsup NSID
#   target.sh drop|undrop PORT       a silent black hole, both directions
#   target.sh reset PORT             RST to all its connections
#   target.sh exec COMMAND...        a shell command in the guest
#   target.sh stop
#
# Environment of `start`: HOSTPORTS="4420 4421" (on 127.0.0.1, for guest ports 1 and 2), NQN,
# NAMESPACES="NSID:GROUP:MIB ...", ANA="PORT:GROUP=STATE ...", BLOCK_BYTES.
# Of every verb: NAME (several guests at once), LINUXVM_CACHE, LINUXVM_KERNEL.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=${NAME:-target}
usage() { sed -n '2,/^set /{/^#/s/^# \?//p}' "$0" >&2; exit 2; }

start() {
  local forward=,restrict=on port=0 host dir
  dir=$(guest_dir "$NAME")
  mkdir -p "$dir/share"
  for host in ${HOSTPORTS:-4420 4421}; do
    port=$((port + 1))
    forward+=",hostfwd=tcp:127.0.0.1:$host-10.0.2.15:$((4419 + port))"
  done
  cat >"$dir/share/settings" <<END
NQN="${NQN:-nqn.2026-01.test.linuxvm:target}"
PORTS="$(for i in $(seq $port); do printf '%s:%s ' "$i" $((4419 + i)); done)"
NAMESPACES="${NAMESPACES:-1:1:256 2:2:64}"
ANA="${ANA:-1:1=optimized 1:2=non-optimized 2:1=non-optimized 2:2=optimized}"
BLOCK_BYTES="${BLOCK_BYTES:-4096}"
END
  guest_start "$NAME" "$LINUXVM/guest/nvmet.sh" 1536 "$forward"
}

[ $# -gt 0 ] || usage
verb=$1
shift
case $verb in
  start) start ;;
  stop) guest_stop "$NAME" ;;
  exec) guest_exec "$NAME" "$@" ;;
  status | ana | portdown | portup | nsdown | nsup | drop | undrop | reset)
    guest_exec "$NAME" "sh /share/role.sh $verb $*" ;;
  *) usage ;;
esac
