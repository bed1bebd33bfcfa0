#!/usr/bin/env bash
# The Linux kernel's NVMe/TCP host (native multipath) in a guest. Inside, this machine's 127.0.0.1
# is 10.0.2.2: a target that reports its own addresses must report that one.
#
#   host.sh start
#   host.sh discover PORT
#   host.sh connect PORT NQN [option of nvme connect]...
#   host.sh connect-all PORT [option of nvme connect-all]...
#   host.sh paths                    one line per controller with states, ANA states included
#   host.sh ios                      completed I/Os per namespace and controller
#   host.sh iopolicy POLICY
#   host.sh device NSID              its block device
#   host.sh verify NSID MIB BS DEPTH RW [fio option]...   writes and verifies; fio's exit status
#   host.sh stopio                   ends running fio jobs; they still verify and report
#   host.sh disconnect NQN
#   host.sh exec COMMAND...          a shell command in the guest
#   host.sh stop
#
# Environment: HOSTNQN, HOSTID, NAME (several guests at once), LIMIT (seconds a verb may take),
# LINUXVM_CACHE, LINUXVM_KERNEL.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
NAME=${NAME:-host}
usage() { sed -n '2,/^set /{/^#/s/^# \?//p}' "$0" >&2; exit 2; }

start() {
  local dir id=11111111-2222-4333-8444-555555555555
  dir=$(guest_dir "$NAME")
  mkdir -p "$dir/share"
  cat >"$dir/share/settings" <<END
HOSTNQN="${HOSTNQN:-nqn.2014-08.org.nvmexpress:uuid:$id}"
HOSTID="${HOSTID:-$id}"
END
  guest_start "$NAME" "$LINUXVM/guest/nvme.sh" 1024
}

[ $# -gt 0 ] || usage
verb=$1
shift
case $verb in
  start) start ;;
  stop) guest_stop "$NAME" ;;
  exec) guest_exec "$NAME" "$@" ;;
  discover | connect | connect-all | paths | ios | iopolicy | device | verify | stopio | disconnect)
    guest_exec "$NAME" -t "${LIMIT:-300}" "sh /share/role.sh $verb $*" ;;
  *) usage ;;
esac
