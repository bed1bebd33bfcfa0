#!/usr/bin/env bash
# A host with two connected paths and nothing to do uses next to nothing.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
seconds=20

setup() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace mem:64MiB
  start_serve --metrics 127.0.0.1:0
  connect 1
  connect 2
  export_nbd 1 "$work/nbd.sock"
}
cpu_ticks() { # PID: user and system time, of all its threads
  sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}
idle_cpu() { # PID
  local before after permille
  before=$(cpu_ticks "$1")
  sleep $seconds
  after=$(cpu_ticks "$1")
  permille=$(((after - before) * 1000 / (seconds * $(getconf CLK_TCK))))
  echo "$permille thousandths of a core"
  [ $permille -lt 10 ]
}
memory() { # PID
  local kib
  kib=$(awk '/^VmRSS:/ { print $2 }' "/proc/$1/status")
  echo "$kib KiB"
  [ "$kib" -lt 65536 ]
}

must "two paths and an export" setup
step "less than 1 % of a core" idle_cpu "${serve_pid:-}"
cat "$work"/less-than*.log
step "less than 64 MiB" memory "${serve_pid:-}"
cat "$work"/less-than-64*.log
step "the paths are still live" live_paths 2
