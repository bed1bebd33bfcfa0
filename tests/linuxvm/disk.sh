#!/usr/bin/env bash
# A Linux guest whose disk is an NBD export, as a virtual machine has it: qemu is the NBD client,
# the guest sees a virtio disk with ext4 on it.
#
#   disk.sh start SOCKET EXPORT      boots it; the disk is that export of that Unix socket
#   disk.sh up | down                mounts the file system, unmounts it
#   disk.sh work SECONDS             writes and verifies files; makes, renames and removes others
#   disk.sh same                     the last of those are what was written
#   disk.sh exec COMMAND...          a shell command in the guest
#   disk.sh qmp COMMAND [ARGUMENTS]  a command for its qemu, and what that returns
#   disk.sh move SOCKET EXPORT NAME  moves the running guest to another qemu, whose disk is that export
#   disk.sh stop
#
# Environment: NAME (several guests at once), LIMIT (seconds a verb may take), LINUXVM_CACHE,
# LINUXVM_KERNEL.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=${NAME:-disk}
usage() { sed -n '2,/^set /{/^#/s/^# \?//p}' "$0" >&2; exit 2; }

qemu_with() { # guest_start|guest_launch NAME SOCKET EXPORT [qemu option]...
  local file
  printf -v file '{"driver": "nbd", "server": {"type": "unix", "path": "%s"}, "export": "%s",
    "reconnect-delay": 60}' "$3" "$4"
  mkdir -p "$(guest_dir "$2")/share"
  # No cache in between: what the guest's kernel sends is what we get.
  "$1" "$2" "$LINUXVM/guest/disk.sh" 512 "" \
    -blockdev '{"driver": "raw", "node-name": "disk", "discard": "unmap",
      "cache": {"direct": true}, "file": '"$file"'}' \
    -device virtio-blk-pci,drive=disk,num-queues=2 "${@:5}"
}
start() { qemu_with guest_start "$NAME" "$@"; } # SOCKET EXPORT
# What the guest has mounted of this machine would keep it here; it has its script itself. It stands
# still while its memory is copied: when an emulated CPU ran meanwhile, the guest's kernel came to
# grief after some moves, with garbage in lists of its own. What its disk does is the same: all is
# waited for here, the other qemu takes the export, and goes on.
move() { # SOCKET EXPORT NAME
  local way limit=$((SECONDS + ${LIMIT:-300})) state=none
  way=unix:$(guest_dir "$3")/incoming
  guest_exec "$NAME" "! grep -q ' /share ' /proc/mounts || umount /share"
  qemu_with guest_launch "$3" "$1" "$2" -incoming "$way"
  guest_qmp "$NAME" stop
  guest_qmp "$NAME" migrate '{"uri": "'"$way"'"}'
  until [ "$state" = completed ]; do
    state=$(guest_qmp "$NAME" query-migrate | jq -r .status)
    if [ "$state" = failed ] || [ $SECONDS -gt $limit ]; then
      echo "it did not move: $state" >&2
      return 1
    fi
    sleep 0.2
  done
  guest_qmp "$3" cont
  guest_stop "$NAME"
}

[ $# -gt 0 ] || usage
verb=$1
shift
case $verb in
  start)
    [ $# = 2 ] || usage
    start "$@"
    ;;
  stop) guest_stop "$NAME" ;;
  exec) guest_exec "$NAME" "$@" ;;
  qmp) guest_qmp "$NAME" "$@" ;;
  move)
    [ $# = 3 ] || usage
    move "$@"
    ;;
  up | down | work | same)
    guest_exec "$NAME" -t "${LIMIT:-300}" "sh /role.sh $verb $*"
    ;;
  *) usage ;;
esac
