#!/bin/sh
# In the guest: the Linux kernel's NVMe/TCP host with native multipath. `boot` loads it, the other
# verbs use it (host.sh lists them).
export PATH=/sbin:/usr/sbin:/bin:/usr/bin
. /share/settings
die() { echo "nvme.sh: $*" >&2; exit 1; }

boot() {
  modprobe nvme_core multipath=Y && modprobe nvme-fabrics && modprobe nvme-tcp ||
    die "no nvme-tcp modules"
  mkdir -p /etc/nvme
  echo "$HOSTNQN" >/etc/nvme/hostnqn
  echo "$HOSTID" >/etc/nvme/hostid
}
discover() { # PORT
  nvme discover -t tcp -a 10.0.2.2 -s "$1"
}
connect() { # PORT NQN [option of nvme connect]...
  p=$1 q=$2
  shift 2
  nvme connect -t tcp -a 10.0.2.2 -s "$p" -n "$q" "$@"
}
connect_all() { # PORT [option of nvme connect-all]...
  p=$1
  shift
  nvme connect-all -t tcp -a 10.0.2.2 -s "$p" "$@"
}
disconnect() { nvme disconnect -n "$1"; }
# One line per controller: its state, and the ANA state of every namespace seen through it.
paths() {
  for c in /sys/class/nvme/nvme*; do
    [ -e "$c/address" ] || continue
    printf '%s %s state=%s' "${c##*/}" "$(cat "$c/address")" "$(cat "$c/state")"
    for n in "$c"/nvme*c*n*; do
      [ -e "$n/ana_state" ] || continue
      printf ' ns%s/grp%s=%s' "$(cat "$n/nsid")" "$(cat "$n/ana_grpid")" "$(cat "$n/ana_state")"
    done
    echo
  done
}
# Completed I/Os per namespace and controller.
ios() {
  for n in /sys/class/nvme/nvme*/nvme*c*n*; do
    c=${n%/*}
    [ -e "$n/stat" ] && awk -v what="ns$(cat "$n/nsid")@${c##*/}" \
      '{ print what, "reads=" $1, "writes=" $5 }' "$n/stat"
  done
}
iopolicy() {
  for s in /sys/class/nvme-subsystem/*; do echo "$1" >"$s/iopolicy" || return 1; done
}
# The block device of a namespace head; from 6.12 on the number in its name need not be the NSID.
device() { # NSID
  for d in /sys/block/nvme*n*; do
    case ${d##*/} in *c*) continue ;; esac
    [ "$(cat "$d/nsid" 2>/dev/null)" = "$1" ] && echo "/dev/${d##*/}" && return 0
  done
  die "no namespace $1"
}
# fio writes and verifies. A job that `stopio` ended counts by its errors, as it has verified too.
verify() { # NSID MIB BS DEPTH RW [fio option]...
  d=$(device "$1") || exit 1
  mib=$2 bs=$3 depth=$4 rw=$5
  shift 5
  fio --name=verify --filename="$d" --direct=1 --ioengine=libaio --rw="$rw" --bs="$bs" \
    --size="${mib}M" --iodepth="$depth" --verify=crc32c --verify_fatal=1 --randrepeat=0 \
    --output-format=terse --terse-version=3 --output=/tmp/fio.$$.terse "$@"
  status=$?
  [ $status = 128 ] && status=0 # ended by a signal
  awk -F';' 'NF > 60 { printf "fio err=%s read=%s KiB write=%s KiB\n", $5, $6, $47; seen = 1; bad += $5 }
    END { exit !seen || bad != 0 }' /tmp/fio.$$.terse && return $status
}
# Ends running fio jobs in order: they still verify what they wrote, and report. Only the first
# process of fio may get the signal: it tells the others, and can hang when they were told already.
stopio() {
  kill -INT "$(pidof fio | tr ' ' '\n' | sort -n | head -n 1)"
  n=0
  while pidof fio >/dev/null && [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done
  pidof fio >/dev/null || return 0
  echo "fio does not end; I/Os in flight per path:"
  grep . /sys/class/nvme/nvme*/nvme*n*/inflight
  dmesg | tail -n 20
  return 1
}

verb=$1
shift
case $verb in
  boot | discover | connect | disconnect | paths | ios | iopolicy | device | verify | stopio)
    $verb "$@" ;;
  connect-all) connect_all "$@" ;;
  *) die "no verb '$verb'" ;;
esac
