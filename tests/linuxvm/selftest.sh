#!/usr/bin/env bash
# Proves the rig without Anabranch: the kernel's host in one guest, the kernel's target in another.
# LINUXVM_KERNEL chooses the kernel of both.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
nqn=nqn.2026-01.test.linuxvm:target
ports=(24420 24421)
target() { NAME=selftest-target HOSTPORTS="${ports[*]}" "$LINUXVM/target.sh" "$@"; }
host() { NAME=selftest-host "$LINUXVM/host.sh" "$@"; }
finish() {
  host stop
  target stop
}
trap finish EXIT

say() { printf '%3s s  %s\n' "$SECONDS" "$*"; }
within() { # SECONDS COMMAND...
  local limit=$(($1 + SECONDS))
  shift
  until "$@" >/dev/null; do
    [ "$SECONDS" -lt "$limit" ] || { say "not in time: $*"; exit 1; }
    sleep 0.3
  done
}
live() { [ "$(host paths | grep -c state=live)" = "$1" ]; }
served() { # CONTROLLER: does namespace 1 get its I/O done through this one, and no other?
  local before after
  before=$(host ios | grep ^ns1@)
  sleep 1.5
  after=$(host ios | grep ^ns1@)
  [ "$(comm -13 <(sort <<<"$before") <(sort <<<"$after") | sed 's/^ns1@//;s/ .*//')" = "$1" ]
}

target start
host start
for port in "${ports[@]}"; do
  host connect "$port" $nqn --keep-alive-tmo=30 --reconnect-delay=1
done
within 20 live 2
say "two live paths"
host verify 1 8 128k 8 write
say "data verified"
host verify 1 16 16k 4 write --verify_backlog=32 --time_based --runtime=600 &
job=$!
within 60 served nvme0
target ana 1 1 inaccessible
target ana 2 1 optimized
within 60 served nvme1
say "ANA change moved the I/O"
target ana 1 1 optimized
target portdown 2
within 60 served nvme0
within 60 live 1
target portup 2
within 60 live 2
say "port down and up again"
target reset 2
within 60 live 2
target drop 1
target undrop 1
host stopio
wait $job
host disconnect $nqn
say "passed"
