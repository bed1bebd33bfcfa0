#!/usr/bin/env bash
# What `serve --metrics` shows is what Prometheus reads: its own checker finds nothing to object to,
# a real one scrapes it, the queries of docs/METRICS.md have answers, and a cut path raises an alert.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need curl curl
need promtool prometheus
need prometheus prometheus

rules=$ROOT/contrib/prometheus/anabranch.rules.yml

setup() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace mem:64MiB
  start_serve --metrics 127.0.0.1:0
  connect 1
  connect 2
  at=$(json .metrics "$work/serve.json")
  page=http://$at/metrics
}
checked() { # POLICY
  set_policy "$1"
  host bench "$(head_of 1)" --runtime 1s
  curl -sSf "$page" >"$work/page"
  grep -q '^anabranch_path_ios_completed_total' "$work/page"
  promtool check metrics <"$work/page"
}
start_prometheus() {
  local port i
  port=$(free_ports 1)
  # What the rules wait for is over sooner here.
  sed 's/for: 1m/for: 1s/' "$rules" >"$work/anabranch.rules.yml"
  cat >"$work/prometheus.yml" <<END
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [anabranch.rules.yml]
scrape_configs:
  - job_name: anabranch
    static_configs: [{ targets: ["$at"] }]
END
  prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" \
    --web.listen-address="127.0.0.1:$port" --log.level=warn >"$work/prometheus.log" 2>&1 &
  started+=("$!")
  prometheus_url=http://127.0.0.1:$port
  within 60 is_there 'up{job="anabranch"} == 1'
}
ask() { promtool query instant "$prometheus_url" "$1"; }
is_there() { [ -n "$(ask "$1")" ]; }
# The queries of the page, one a line: a line that begins with spaces goes on with the one before.
queries() {
  awk '/^```/ { inside = $0 == "```promql"; next } !inside { next }
       /^ / { printf "%s", $0; next } { printf "%s%s", sep, $0; sep = "\n" } END { print "" }' \
    "$ROOT/docs/METRICS.md"
}
queries_are_answered() {
  local query count=0
  while read -r query; do
    echo "$query"
    ask "$query"
    count=$((count + 1))
  done < <(queries)
  [ $count -ge 6 ]
}
shares() {
  host bench "$(head_of 1)" --runtime 3s
  within 20 is_there "$(queries | head -n 1)"
  within 20 is_there "$(queries | sed -n 2p)"
}
alerts() {
  ctl cut 1
  within 60 is_there 'ALERTS{alertname="AnabranchPathDown", controller="nvme0", alertstate="firing"}'
  within 60 is_there 'ALERTS{alertname="AnabranchOnePathLeft", device="nvme0n1"}'
  [ -z "$(ask 'ALERTS{alertname="AnabranchNoPath"}')" ]
}

must "two paths, and metrics" setup
for policy in queue-depth service-time latency finish-time; do
  step "nothing to object to under $policy" checked $policy
done
step "the rules are right" promtool check rules "$rules"
must "a real Prometheus scrapes it" start_prometheus
step "shares and percentiles are known" shares
step "the queries of the page are answered" queries_are_answered
step "a cut path raises an alert" alerts
