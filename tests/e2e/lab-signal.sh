#!/usr/bin/env bash
# A live run with links of the kernel that is told to end takes its network namespaces with it.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need ip iproute2
need tc iproute2
probe=anabranch-e2e-$$
if ! ip netns add "$probe" 2>/dev/null; then
  echo "this user cannot make network namespaces"
  exit 77
fi
ip netns delete "$probe"

namespaces() { # PID
  ip netns list | grep -c "^anabranch-lab-$1-"
}
both() { [ "$(namespaces "$1")" = 2 ]; }
ends_by() { # SIGNAL
  local pid status=0
  "$ANABRANCH" lab run twenty-to-one --mode live --kernel-shaping --scale 0.02 --window 60s \
    >"$work/run.txt" 2>"$work/run.log" &
  pid=$!
  within 20 both "$pid"
  kill "-$1" "$pid"
  wait "$pid" || status=$?
  cat "$work/run.log"
  equals $status 1 "exit status"
  grep -q 'ended by a signal' "$work/run.log"
  equals "$(namespaces "$pid" || true)" 0 "namespaces that are left"
}

step "SIGINT" ends_by INT
step "SIGTERM" ends_by TERM
