# Sourced by every end-to-end script: strict mode, steps, processes that end with the script, and
# the program under test. Scripts talk to it as users do: command line, JSON, exit status.
set -euo pipefail
E2E=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$E2E/../.." && pwd)
ANABRANCH=$(realpath -m "${ANABRANCH:-${CARGO_TARGET_DIR:-$ROOT/target}/debug/anabranch}")
export RUST_BACKTRACE=1

work=$(mktemp -d "${TMPDIR:-/tmp}/anabranch-e2e.XXXXXX")
cd "$work" # programs may leave files where they run; fio does
started=()  # processes to end
at_exit=()  # functions to call before that
failures=0
current=    # what `must` runs just now

finish() {
  local status=$? command pid i
  set +e
  trap - EXIT INT TERM
  if [ -n "$current" ]; then report_failure "$current" "$current_log"; fi
  for command in "${at_exit[@]}"; do "$command"; done
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${started[@]}"; do
    for i in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null && echo "process $pid had to be killed" >&2
  done
  [ $failures = 0 ] || [ $status != 0 ] || status=1
  case $status in
    0 | 77) cd / && rm -rf "$work" ;;
    *) rmdir "$work" 2>/dev/null || echo "kept for a look: $work" >&2 ;;
  esac
  exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

die() { echo "$*" >&2; exit 1; }
need() { # PROGRAM PACKAGE: exit status 77 means "cannot run here"
  command -v "$1" >/dev/null && return
  echo "$(basename "$0") needs '$1' (package $2)" >&2
  exit 77
}
report_failure() { # NAME LOG
  printf 'FAIL  %s\n' "$1"
  tail -n 15 "$2" | sed 's/^/      /'
  failures=$((failures + 1))
}
# Runs something that the rest of the script needs, in this shell. The script ends if it fails.
must() { # NAME COMMAND...
  local start=$SECONDS
  current=$1 current_log=$work/${1//[^a-z0-9A-Z]/-}.log
  shift
  "$@" >"$current_log" 2>&1
  printf 'ok    %s (%s s)\n' "$current" $((SECONDS - start))
  current=
}
# Runs a check in a shell of its own, strictly: no command in it may fail. The script goes on after
# a failure, and fails at its end. Never part of a condition: bash would ignore failures inside.
step() { # NAME COMMAND...
  local name=$1 log=$work/${1//[^a-z0-9A-Z]/-}.log start=$SECONDS status
  shift
  set +e
  (
    trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
    set -e
    "$@"
  ) >"$log" 2>&1
  status=$?
  set -e
  if [ $status = 0 ]; then
    printf 'ok    %s (%s s)\n' "$name" $((SECONDS - start))
  else
    report_failure "$name" "$log"
  fi
}
within() { # SECONDS COMMAND...: waits until the command succeeds, else shows its last output
  local limit=$1 start=$SECONDS
  shift
  until "$@" >/dev/null 2>&1; do
    if [ $((SECONDS - start)) -ge "$limit" ]; then
      echo "not within $limit s: $*"
      "$@"
      return
    fi
    sleep 0.2
  done
}
equals() { # ACTUAL EXPECTED WHAT: the expected value is a pattern
  # shellcheck disable=SC2053
  [[ "$1" = $2 ]] && return
  echo "$3: '$1', expected '$2'"
  return 1
}
json() { # FILTER [FILE]: jq that fails on null, on false, and on nothing (which passes jq 1.6)
  local found
  found=$(jq -er "$@") || return
  [ -n "$found" ] && printf '%s\n' "$found"
}
free_ports() { # COUNT: TCP ports of the loopback interface that nobody uses now
  python3 - "$1" <<'END'
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
ports = [s.getsockname()[1] for s in held]
for s in held:
    s.close()
print(*ports)
END
}

need jq jq
need python3 python3
[ -x "$ANABRANCH" ] || die "no program at $ANABRANCH: run 'cargo build' first"

# Starts a process that prints one JSON object when it is ready, and waits for that.
spawn_ready() { # NAME ARGUMENT...: output in $work/NAME.json, messages in $work/NAME.log
  local name=$1 i pid
  shift
  "$ANABRANCH" "$@" >"$work/$name.json" 2>"$work/$name.log" &
  pid=$!
  started+=("$pid")
  printf -v "${name}_pid" %s "$pid"
  for i in $(seq 150); do
    jq -e . "$work/$name.json" >/dev/null 2>&1 && [ -s "$work/$name.json" ] && return 0
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "'anabranch $*' did not get ready:" >&2
  cat "$work/$name.log" >&2
  return 1
}
# Ends a process of spawn_ready in order; its exit status must be 0.
terminate() { # NAME
  local name=$1_pid pid status=0 other left=()
  pid=${!name}
  kill "$pid"
  wait "$pid" || status=$?
  for other in "${started[@]}"; do [ "$other" = "$pid" ] || left+=("$other"); done
  started=("${left[@]}")
  if [ $status != 0 ]; then
    echo "'$1' ended with exit status $status:"
    cat "$work/$1.log"
    return 1
  fi
}
start_target() { # ARGUMENT...: the embedded target; sets nqn
  spawn_ready target target --socket "$work/target.sock" -o json "$@"
  nqn=$(json .nqn "$work/target.json")
}
ctl() { "$ANABRANCH" target ctl --socket "$work/target.sock" "$@"; }
start_serve() { # ARGUMENT...: the host
  spawn_ready serve serve --socket "$work/host.sock" -o json "$@"
}
host() { # VERB ARGUMENT...: a verb of the running host
  local verb=$1
  shift
  "$ANABRANCH" "$verb" --socket "$work/host.sock" "$@"
}
port_of() { # LISTENER (1, 2, ...): its TCP port
  json ".listeners[$(($1 - 1))]" "$work/target.json" | sed 's/.*://'
}
connect() { # LISTENER OPTION...: one path to the embedded target
  host connect -t tcp -a 127.0.0.1 -s "$(port_of "$1")" -n "$nqn" "${@:2}"
}
head_of() { # NSID: the device that stands for it
  host show-topology -o json |
    json --argjson nsid "$1" '.[].Subsystems[].Namespaces[] | select(.NSID == $nsid) | .Name'
}
export_nbd() { # NSID SOCKET
  host export add "$(head_of "$1")" --nbd "$2"
}
unexport() { # NSID
  host export rm "$(head_of "$1")"
}
set_policy() { # POLICY
  host set "$(host list-subsys -o json | json '.[].Subsystems[].Name')" iopolicy "$1"
}
# One line per path of a namespace: controller, its state, ANA state, completed commands.
paths_of() { # NSID
  host show-topology -o json | jq -r --argjson nsid "$1" '.[].Subsystems[].Namespaces[]
    | select(.NSID == $nsid) | .Paths[]
    | [.Controller[0].Name, .Controller[0].State, .ANAState, .Diag.reads + .Diag.writes] | @tsv'
}
live_paths() { # COUNT
  equals "$(host list-subsys -o json |
    jq '[.[].Subsystems[].Paths[] | select(.State == "live")] | length')" "$1" "live paths"
}
# Does this controller, and no other, complete I/O of the namespace?
served_by() { # NSID CONTROLLER
  local before after
  before=$(paths_of "$1" | cut -f 1,4 | sort)
  sleep 1
  after=$(paths_of "$1" | cut -f 1,4 | sort)
  equals "$(comm -13 <(echo "$before") <(echo "$after") | cut -f 1 | xargs)" "$2" "who serves"
}
