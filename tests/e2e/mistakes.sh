#!/usr/bin/env bash
# What users and their machines do wrong ends in one clear sentence, the right exit status, and
# harms nothing that runs.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

fails() { # STATUS PATTERN COMMAND...: with a sentence on standard error that has the pattern
  local expected=$1 pattern=$2 status=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" || status=$?
  equals $status "$expected" "exit status of '$*'"
  grep -qi -- "$pattern" "$work/err" && ! grep -q panicked "$work/err" && return
  echo "'$*' does not say '$pattern':"
  cat "$work/err"
  return 1
}
usage() {
  fails 2 no-such-verb "$ANABRANCH" no-such-verb
  fails 2 no-such-option "$ANABRANCH" list --no-such-option
  fails 2 nqn "$ANABRANCH" connect -t tcp -a 127.0.0.1 -s 4420
  fails 2 DEVICE "$ANABRANCH" explain
  fails 2 interval "$ANABRANCH" explain nvme0n1 --interval 0
  fails 2 delay "$ANABRANCH" top -b -d 0
  fails 2 batch "$ANABRANCH" top --socket "$work/nobody.sock" </dev/null
  fails 2 port "$ANABRANCH" discover -t tcp -a 127.0.0.1 -s 70000
  fails 1 'cannot be looked up' "$ANABRANCH" discover -t tcp -a array..invalid
}
nobody_serves() {
  local verb
  for verb in list list-subsys show-topology "get nvme-subsys0 iopolicy" "export list" \
    "explain nvme0n1" "explain nvme0n1 --interval 1s" "top -b" "top -o json -n 1" \
    "disconnect -n nqn.2026-01.test:x" "connect -a 127.0.0.1 -n nqn.2026-01.test:x"; do
    # shellcheck disable=SC2086  # a verb and its arguments
    fails 1 'anabranch serve' "$ANABRANCH" $verb --socket "$work/nobody.sock"
  done
}
bad_namespaces() {
  mkfifo "$work/fifo"
  local spec
  for spec in "file:$work/absent $work/absent" "file:$work/fifo $work/fifo" "file:$work $work" \
    'mem:0 0 bytes' 'mem:100 100 bytes' 'mem:1MiB,bs=513 513' 'floppy:a floppy' \
    'mem:1MiB,colour=red colour'; do
    fails '[12]' "${spec#* }" "$ANABRANCH" target --socket "$work/t2.sock" \
      --listen 127.0.0.1:0 --namespace "${spec%% *}"
  done
}
bad_configurations() {
  printf 'fence = "strict"\n' >"$work/strict.toml"
  printf 'colour = "red"\n' >"$work/unknown.toml"
  printf 'workers = \n' >"$work/broken.toml"
  fails 2 'strict' "$ANABRANCH" serve --socket "$work/s2.sock" --config "$work/strict.toml"
  fails 2 'colour' "$ANABRANCH" serve --socket "$work/s2.sock" --config "$work/unknown.toml"
  fails 2 'broken.toml' "$ANABRANCH" serve --socket "$work/s2.sock" --config "$work/broken.toml"
  fails 2 'zero' "$ANABRANCH" serve --socket "$work/s2.sock" \
    -I 00000000-0000-0000-0000-000000000000
  fails 2 'absent.toml' "$ANABRANCH" serve --socket "$work/s2.sock" --config "$work/absent.toml"
}
setup() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 --namespace mem:64MiB
  start_serve
  connect 1 --reconnect-delay 1
  connect 2 --reconnect-delay 1
  export_nbd 1 "$work/nbd.sock"
}
second_instance() {
  fails 1 "$work/host.sock" "$ANABRANCH" serve --socket "$work/host.sock"
  fails 1 "$work/target.sock" "$ANABRANCH" target --socket "$work/target.sock" \
    --listen 127.0.0.1:0 --namespace mem:1MiB
  live_paths 2
}
bad_connects() {
  local port
  port=$(free_ports 1)
  fails 1 "$port" host connect -t tcp -a 127.0.0.1 -s "$port" -n "$nqn"
  fails 1 'no such subsystem' \
    host connect -t tcp -a 127.0.0.1 -s "$(port_of 1)" -n nqn.2026-01.test:unknown
  host connect-all -a 127.0.0.1 -s "$(port_of 1)" 2>"$work/err" # what is there is no mistake
  equals "$(grep -c 'already connected' "$work/err")" 2 "paths that are there"
  fails 1 'already' host connect -t tcp -a 127.0.0.1 -s "$(port_of 1)" -n "$nqn"
  fails 1 'host-iface' host connect -a 127.0.0.1 -s "$port" -f nosuch0 -n "$nqn"
  fails 1 'host-traddr' host connect -a 127.0.0.1 -s "$port" -w 192.0.2.1 -n "$nqn"
  live_paths 2
}
interfaces_of_this_network() { # /sys may be that of another network namespace
  unshare -n true 2>/dev/null || { echo "not run: may not make a network namespace"; return; }
  # shellcheck disable=SC2016  # the inner shell expands
  fails 1 unreachable unshare -n sh -c 'ip link add ours0 type veth peer ours1 &&
    exec "$0" discover -a 192.0.2.1 -f ours0' "$ANABRANCH"
}
a_name_without_an_address() { # the other path serves, and the name is asked for again
  cat >"$work/names.toml" <<EOT
[[subsystem]]
nqn = "$nqn"
[[subsystem.path]]
traddr = "array..invalid"
reconnect_delay = "100ms"
[[subsystem.path]]
traddr = "127.0.0.1"
trsvcid = $(port_of 1)
EOT
  "$ANABRANCH" serve --socket "$work/names.sock" --config "$work/names.toml" -o json \
    >"$work/names.json" 2>"$work/names.err" &
  local pid=$!
  within 20 json .socket "$work/names.json"
  # Its number is kept: what follows is called as if it were there.
  "$ANABRANCH" list-subsys --socket "$work/names.sock" | grep -q 'nvme1 .*live'
  "$ANABRANCH" list --socket "$work/names.sock" | grep -q nvme0n1
  within 20 looked_up_again
  "$ANABRANCH" disconnect --socket "$work/names.sock" -n "$nqn"
  within 20 nobody_looks "$pid"
  kill "$pid"
  wait "$pid"
}
a_name_service_that_says_nothing() { # the path that needs none serves
  unshare -mn true 2>/dev/null || { echo "not run: may not make namespaces"; return; }
  printf 'nameserver 127.0.0.1\noptions timeout:30 attempts:5\n' >"$work/resolv.conf"
  cat >"$work/silent.toml" <<EOT
[[subsystem]]
nqn = "$nqn"
[[subsystem.path]]
traddr = "array.test"
[[subsystem.path]]
traddr = "127.0.0.1"
EOT
  # shellcheck disable=SC2016  # the inner shell expands
  unshare -mn bash -c 'set -euo pipefail
    trap "kill \$(jobs -p)" EXIT
    ip link set lo up
    mount --bind "$2/resolv.conf" /etc/resolv.conf
    mkfifo "$2/bound"
    python3 -c "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((\"127.0.0.1\", 53))
open(sys.argv[1], \"w\").close()
while s.recv(4096): pass
" "$2/bound" &
    cat "$2/bound"
    "$1" target --socket "$2/silent-target.sock" --listen 127.0.0.1:4420 \
      --namespace mem:1MiB >"$2/silent-target.out" &
    "$1" target ctl status --socket "$2/silent-target.sock" >/dev/null
    "$1" serve --socket "$2/silent.sock" --config "$2/silent.toml" >"$2/silent.out" &
    timeout 20 sh -c "until grep -q live \"\$1\"; do sleep 0.1; done" sh "$2/silent.out"
    "$1" list-subsys --socket "$2/silent.sock" | grep "nvme1 .*live"
  ' bash "$ANABRANCH" "$work"
}
a_name_that_leads_elsewhere() { # its path goes there, whether of the file or of connect
  unshare -mn true 2>/dev/null || { echo "not run: may not make namespaces"; return; }
  printf '127.0.0.2 file.test\n127.0.0.3 verb.test\n' >"$work/hosts"
  cat >"$work/moves.toml" <<EOT
[[subsystem]]
nqn = "$nqn"
[[subsystem.path]]
traddr = "file.test"
reconnect_delay = "100ms"
EOT
  # shellcheck disable=SC2016  # the inner shell expands
  unshare -mn bash -c 'set -euo pipefail
    trap "kill \$(jobs -p)" EXIT
    ip link set lo up
    mount --bind "$2/hosts" /etc/hosts
    target() { # ADDR ADDR
      "$ANABRANCH" target --socket "$work/moves-target.sock" --listen "$1:4420" \
        --listen "$2:4420" --namespace "file:$work/moves.img,size=1MiB" >/dev/null &
      "$ANABRANCH" target ctl status --socket "$work/moves-target.sock" >/dev/null
    }
    host() { "$ANABRANCH" "$@" --socket "$work/moves.sock"; }
    live() { # ADDR ADDR
      timeout 20 sh -c "until [ \"\$(\"\$0\" list-subsys --socket \"\$1\" |
        grep -cE \"traddr=(\$2|\$3),.* live\")\" = 2 ]; do sleep 0.1; done" \
        "$ANABRANCH" "$work/moves.sock" "$@" || { host list-subsys; return 1; }
    }
    ANABRANCH=$1 work=$2
    target 127.0.0.2 127.0.0.3
    first=$!
    "$ANABRANCH" serve --socket "$work/moves.sock" --config "$work/moves.toml" >/dev/null &
    host connect -a verb.test -n "$3" -c 100ms
    live 127.0.0.2 127.0.0.3
    kill "$first"
    wait "$first"
    target 127.0.0.4 127.0.0.5
    printf "127.0.0.4 file.test\n127.0.0.5 verb.test\n" >"$work/hosts"
    live 127.0.0.4 127.0.0.5
    host list | grep nvme0n1
  ' bash "$ANABRANCH" "$work" "$nqn"
}
a_name_with_two_addresses() { # that one of them does not answer keeps nobody out
  unshare -mn true 2>/dev/null || { echo "not run: may not make namespaces"; return; }
  printf '127.0.0.2 both.test\n127.0.0.3 both.test\n' >"$work/hosts"
  printf '[[subsystem]]\nnqn = "%s"\n[[subsystem.path]]\n' "$nqn" >"$work/both.toml"
  printf 'traddr = "both.test"\nreconnect_delay = "100ms"\n' >>"$work/both.toml"
  # shellcheck disable=SC2016  # the inner shell expands
  unshare -mn bash -c 'set -euo pipefail
    trap "kill \$(jobs -p)" EXIT
    ANABRANCH=$1 work=$2
    ip link set lo up
    mount --bind "$work/hosts" /etc/hosts
    [ "$(getent hosts both.test | wc -l)" = 2 ]
    on="--socket $work/both.sock"
    # shellcheck disable=SC2086  # two words
    "$ANABRANCH" serve $on --config "$work/both.toml" >/dev/null &
    for address in 127.0.0.2 127.0.0.3 127.0.0.2; do
      "$ANABRANCH" target --socket "$work/both-target.sock" --listen "$address:4420" \
        --namespace "file:$work/both.img,size=1MiB" >/dev/null &
      target=$!
      "$ANABRANCH" target ctl status --socket "$work/both-target.sock" >/dev/null
      timeout 20 sh -c "until $ANABRANCH list-subsys $on | grep -q \"traddr=$address,.* live\"
        do sleep 0.1; done" || { $ANABRANCH list-subsys $on; exit 1; }
      "$ANABRANCH" serve --socket "$work/one.sock" >/dev/null &
      serve=$!
      "$ANABRANCH" connect --socket "$work/one.sock" -a both.test -n "$3" >/dev/null
      "$ANABRANCH" list-subsys --socket "$work/one.sock" | grep -q "traddr=$address,"
      kill "$serve"
      wait "$serve"
      kill "$target"
      wait "$target"
    done
  ' bash "$ANABRANCH" "$work" "$nqn"
}
nobody_looks() { ! grep -qx names "/proc/$1/task/"*/comm; } # PID
looked_up_again() { [ "$(grep -c "'array..invalid' cannot be looked up" "$work/names.err")" -gt 2 ]; }
bad_attributes() {
  fails 1 'queue-depth' host set nvme-subsys0 iopolicy no-such-policy
  equals "$(host get nvme-subsys0 iopolicy)" queue-depth iopolicy
  fails 1 'no-such' host get nvme-subsys0 no-such-attribute
  fails 1 'nvme9' host get nvme9 state
  fails 1 'nvme7n1' host explain nvme7n1
  fails 1 'nvme0c0n1' host explain nvme0c0n1
  fails 1 'nvme7n1' host top -b nvme7n1
}
bad_exports() {
  fails 1 nvme7n1 host export add nvme7n1 --nbd "$work/x.sock"
  fails 1 nvme0n1 host export add nvme0n1 --nbd "$work/y.sock"
  touch "$work/file"
  fails 1 "$work/file" host export add nvme0n1 --name other --nbd "$work/file"
  fails 1 no-such host export rm no-such
  python3 "$E2E/nbd_requests.py" "$work/nbd.sock" >/dev/null
}
nonsense_on_the_control_socket() {
  head -c 100000 /dev/urandom | timeout 10 python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
try:
    s.sendall(sys.stdin.buffer.read())
    s.shutdown(socket.SHUT_WR)
    while s.recv(65536): pass
except OSError: pass
' "$work/host.sock"
  live_paths 2
}
standard_error_that_has_gone() { # serve 2>&1 | head -1; and the end of a terminal
  mkfifo "$work/gone"
  env --default-signal=HUP "$ANABRANCH" serve --socket "$work/gone.sock" -o json \
    >"$work/gone.json" 2>"$work/gone" &
  local pid=$!
  head -n 1 "$work/gone" >/dev/null
  within 10 json .socket "$work/gone.json"
  "$ANABRANCH" connect --socket "$work/gone.sock" -a 127.0.0.1 -s "$(port_of 1)" -n "$nqn"
  "$ANABRANCH" disconnect --socket "$work/gone.sock" --all
  kill -HUP "$pid"
  wait "$pid"
}
no_thread_left() { # whatever there is none for, the end is in order and says why
  local verb threads status
  if [ "$(id -u)" != 0 ]; then
    echo "NOT RUN: only root can be somebody with few threads"
    return 0
  fi
  chmod 711 "$work"
  mkdir -m 700 "$work/few"
  cp "$ANABRANCH" "$work/few/anabranch"
  chown -R 65534 "$work/few"
  for verb in serve "target --listen 127.0.0.1:0 --namespace mem:1MiB"; do
    for threads in 1 2 3 4 5 6 7 8; do
      status=0
      # shellcheck disable=SC2086 # its options
      timeout --preserve-status 3 setpriv --reuid 65534 --clear-groups \
        prlimit --nproc=$threads "$work/few/anabranch" $verb --socket "$work/few/socket" \
        >"$work/out" 2>"$work/err" || status=$?
      if [ $status != 0 ]; then
        equals $status 1 "exit status of $verb with $threads threads: $(cat "$work/err")"
        grep -q thread "$work/err" || die "$verb with $threads threads: $(cat "$work/err")"
      fi
    done
  done
}
last_export_withdrawn() {
  unexport 1
  [ ! -e "$work/nbd.sock" ] || die "the socket is still there"
  export_nbd 1 "$work/nbd.sock"
  python3 "$E2E/nbd_requests.py" "$work/nbd.sock" >/dev/null
}
bad_loads() {
  local head
  head=$(head_of 1)
  fails 1 'past the device' host bench "$head" --offset 64m
  fails 2 'multiple of 512' host bench "$head" --offset 100
  fails 2 '1048576' host bench "$head" --bs 2m
  fails 2 'policy' host bench "$head" --policy numa
}
every_address() { # the discovery log can name none of them
  "$ANABRANCH" target --socket "$work/t3.sock" --listen 0.0.0.0:0 --namespace mem:1MiB \
    >"$work/out" 2>"$work/err" &
  local pid=$!
  within 10 grep -q -- --advertise "$work/err"
  kill "$pid"
  wait "$pid"
}
wrong_socket() {
  fails 1 "'anabranch serve'" "$ANABRANCH" list --socket "$work/target.sock"
  fails 1 "'anabranch target'" "$ANABRANCH" target ctl --socket "$work/host.sock" status
}
bench_that_is_ended() {
  local status=0 pid
  "$ANABRANCH" bench --socket "$work/host.sock" "$(head_of 1)" --runtime 300s &
  pid=$!
  within 10 someone_reads
  kill "$pid"
  wait "$pid" || status=$?
  equals $status 1 "exit status"
  host bench "$(head_of 1)" --runtime 100ms --runs 1
}
someone_reads() { [ "$(paths_of 1 | awk '{ n += $4 } END { print n }')" -gt 1000 ]; }
target_dies() {
  kill -9 "$target_pid"
  wait "$target_pid" || true
  within 10 live_paths 0
  host list-subsys | grep -q connecting
}

step "usage mistakes end with 2" usage
step "verbs without a running host name 'serve'" nobody_serves
step "namespaces that cannot be" bad_namespaces
step "configurations that cannot be" bad_configurations
must "two paths and an export" setup
step "a second instance is refused, the first unharmed" second_instance
step "connects that cannot be" bad_connects
step "an interface is looked for in the network namespace of the process" interfaces_of_this_network
step "a name without an address leaves the other paths alone" a_name_without_an_address
step "a silent name service keeps no other path waiting" a_name_service_that_says_nothing
step "a path follows its name to another address" a_name_that_leads_elsewhere
step "a name with two addresses leads to the one that answers" a_name_with_two_addresses
step "attributes that cannot be" bad_attributes
step "exports that cannot be" bad_exports
step "nonsense on the control socket" nonsense_on_the_control_socket
step "standard error that nobody reads any more" standard_error_that_has_gone
step "threads that the system does not give" no_thread_left
step "the last export that is withdrawn frees its address" last_export_withdrawn
step "a load that does not fit, or options that do nothing" bad_loads
step "the socket of somebody else" wrong_socket
step "a port on every address asks for one to name" every_address
step "a bench that is ended leaves no load behind" bench_that_is_ended
must "a killed target leaves paths that reconnect" target_dies
must "the host ends in order all the same" terminate serve
