#!/usr/bin/env bash
# The lab's report in a browser: at 360 and 1440 px, light and dark, and on paper. No complaint of
# the browser's, no request, nothing beyond the edge, headings in order, every chart named, every
# text readable.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need chromium chromium
need python3 python3

hostile='</title><script>window.hostile = true</script>'
scenario() { # a title that wants out, a change, published figures, a path with a long name
  cat >"$work/hostile.toml" <<END
title = "$hostile"
source = "nobody <b>at all</b>"
[[path]]
name = "fast"
rate = "40MiB/s"
weight = 4
[[path]]
name = "a path with a name that no chart has room for"
rate = "10MiB/s"
[[job]]
rw = "randread"
bs = "4k"
iodepth = 16
[[change]]
at = "1s"
path = "fast"
state = "cut"
[[published]]
policy = "round-robin"
mib_s = 20
iops = 5000
mean = "12ms"
END
}
results() {
  scenario
  "$ANABRANCH" lab run --ramp 100ms --window 400ms --runs 6 --out results hostile.toml \
    service-time-mixed
  "$ANABRANCH" lab run --ramp 100ms --window 400ms --runs 2 --mode sim --out results hostile.toml
}
report() {
  "$ANABRANCH" lab report results
  "$ANABRANCH" lab report results --output again.html -o json | json '.bytes > 50000'
  cmp results/report.html again.html
}
only_one_script() {
  equals "$(grep -o '<script' results/report.html | wc -l)" 1 "scripts"
  grep -q '&lt;/title&gt;&lt;script&gt;window.hostile = true' results/report.html
}
nothing_there() {
  local status=0
  "$ANABRANCH" lab report nowhere 2>said || status=$?
  cat said
  [ $status != 0 ] || die "no directory, and no complaint"
  grep -q nowhere said
}
a_mount() { # as where a container has one file of its host's; it can not be replaced
  echo before >mounted.html
  # shellcheck disable=SC2016
  unshare --map-root-user --mount sh -ec '
    mount --bind mounted.html mounted.html
    "$0" lab report results --output mounted.html' "$ANABRANCH"
  cmp results/report.html mounted.html
  [ -z "$(find . -maxdepth 1 -name '.mounted*')" ] || die "something is left beside it"
}
look() { python3 "$E2E/report_browser.py" chromium results/report.html; }

must "results, simulated in both ways" results
must "a report, twice the same" report
step "a hostile title is text" only_one_script
step "no directory: a sentence" nothing_there
step "a page that is a mount of its own" a_mount
step "a browser finds nothing wrong" look
