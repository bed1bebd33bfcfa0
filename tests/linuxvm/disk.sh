#!/usr/bin/env bash
# A Linux guest whose disk is an NBD export, as a virtual machine has it: qemu is the NBD client,
# the guest sees a virtio disk with ext4 on it.
#
#   disk.sh start SOCKET EXPORT      boots it; the disk is that export of that Unix socket
#   disk.sh up | down                mounts the file system, unmounts it
#   disk.sh work SECONDS             writes and verifies files; makes, renames and removes others
#   disk.sh same                     the last of those are what was written
#   disk.sh exec COMMAND...          a shell command in the guest
#   disk.sh stop
#
# Environment: NAME (several guests at once), LIMIT (seconds a verb may take), LINUXVM_CACHE,
# LINUXVM_KERNEL.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=${NAME:-disk}
usage() { sed -n '2,/^set /{/^#/s/^# \?//p}' "$0" >&2; exit 2; }

start() { # SOCKET EXPORT
  local file
  printf -v file '{"driver": "nbd", "server": {"type": "unix", "path": "%s"}, "export": "%s",
    "reconnect-delay": 60}' "$1" "$2"
  mkdir -p "$(guest_dir "$NAME")/share"
  # No cache in between: what the guest's kernel sends is what we get.
  guest_start "$NAME" "$LINUXVM/guest/disk.sh" 512 "" \
    -blockdev '{"driver": "raw", "node-name": "disk", "discard": "unmap",
      "cache": {"direct": true}, "file": '"$file"'}' \
    -device virtio-blk-pci,drive=disk,num-queues=2
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
  up | down | work | same)
    guest_exec "$NAME" -t "${LIMIT:-300}" "sh /share/role.sh $verb $*"
    ;;
  *) usage ;;
esac
