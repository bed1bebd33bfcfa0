#!/usr/bin/env bash
# The demo does what its summary says: a path is cut and comes back, and every byte is right.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

report=$work/demo.json
run_demo() {
  local start=$SECONDS
  "$ANABRANCH" demo --seconds 9 -o json >"$report"
  [ $((SECONDS - start)) -lt 60 ] || die "took $((SECONDS - start)) s"
}
holds() { # FILTER...: each must be true of the report
  local filter bad=0
  for filter in "$@"; do
    json "$filter" "$report" >/dev/null && continue
    echo "not so: $filter"
    bad=1
  done
  [ $bad = 0 ] || jq . "$report"
  return $bad
}
refuses_unknown_policy() {
  local status=0 policy
  "$ANABRANCH" demo --policy no-such-policy >"$work/out" 2>"$work/err" || status=$?
  equals $status 2 "exit status"
  for policy in numa round-robin queue-depth; do grep -q -- $policy "$work/err"; done
}

nobody_reads() {
  local status
  set +o pipefail
  "$ANABRANCH" demo --seconds 6 2>"$work/err" | true
  status=${PIPESTATUS[0]}
  equals "$status" 0 "exit status"
  ! [ -s "$work/err" ]
  "$ANABRANCH" demo --seconds 6 -o json 2>/dev/full | jq -e '.io_errors == 0' >"$work/out"
}

step "the demo ends well" run_demo
step "no I/O error and no wrong byte" holds '.io_errors == 0' '.verify_errors == 0' '.ios > 0'
step "a failover and a reconnect" holds '.failovers >= 1' '.reconnects >= 1'
step "two live paths that both carried I/O" holds '.paths | length == 2' \
  '[.paths[].state] == ["live", "live"]' '[.paths[].ios > 0] | all' \
  '([.paths[].ios] | add) >= .ios' '[.paths[].share] | add | . > 0.99 and . < 1.01' \
  '[.paths[] | .lat_ns | .p50 > 0 and .p99 >= .p50 and .mean > 0] | all' \
  '[.paths[] | .bytes > 0 and (.name | length > 0) and .ana_state == "optimized"] | all'
step "the report names its policy and length" holds '.policy == "queue-depth"' '.seconds >= 9'
step "a closed pipe ends no demo half way" nobody_reads
step "an unknown policy is refused with those that exist" refuses_unknown_policy
