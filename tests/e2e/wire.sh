# Sourced: capture NVMe/TCP on the loopback interface and let tshark's dissector judge it.
# Start a capture before the connections that it shall judge: ICReq and ICResp negotiate the
# digests, so a dissector that missed them cannot read what follows.

capture_start() { # FILE PORT...
  local file=$1 filter="" port i
  shift
  for port in "$@"; do filter+="${filter:+ or }tcp port $port"; done
  dumpcap -q -i lo -s 0 -B 256 -f "$filter" -w "$file" >"$file.log" 2>&1 &
  capture_pid=$!
  started+=("$capture_pid")
  for i in $(seq 100); do
    [ -s "$file" ] && return 0
    sleep 0.1
  done
  echo "dumpcap did not start:" >&2
  cat "$file.log" >&2
  return 1
}
capture_stop() {
  sleep 1 # dumpcap hands packets over once a second
  kill -INT "$capture_pid"
  wait "$capture_pid" || true
}
tshark_on() { # FILE "PORT..." [tshark option]...
  local file=$1 ports=$2 port decode=()
  shift 2
  for port in $ports; do decode+=(-d "tcp.port==$port,nvme-tcp"); done
  tshark -n -r "$file" "${decode[@]}" -o tcp.desegment_tcp_streams:TRUE \
    -o tcp.reassemble_out_of_order:TRUE -o nvme-tcp.check_hdgst:TRUE \
    -o nvme-tcp.check_ddgst:TRUE "$@" 2>/dev/null
}
# How often each PDU type occurs, as lines "TYPE COUNT" (decimal, see the table in wire_has).
wire_types() { # FILE PORT...
  local file=$1
  shift
  tshark_on "$file" "$*" -Y nvme-tcp -T fields -e nvme-tcp.type | tr ',' '\n' |
    sort -n | uniq -c | awk '{ print $2, $1 }'
}
wire_name() {
  case $1 in
    0) echo ICReq ;; 1) echo ICResp ;; 2) echo H2CTermReq ;; 3) echo C2HTermReq ;;
    4) echo CapsuleCmd ;; 5) echo CapsuleResp ;; 6) echo H2CData ;; 7) echo C2HData ;;
    9) echo R2T ;; *) echo "type $1" ;;
  esac
}
# Fails on a malformed packet, an unknown PDU type, a wrong digest, an expert error, a termination
# request, or a hole in the capture. tshark passes unknown types and wrong digests without an
# expert error, so they are asked for by name.
wire_clean() { # FILE PORT...
  local file=$1 bad holes type count
  shift
  wire_types "$file" "$@" | while read -r type count; do
    printf '  %-12s %s\n' "$(wire_name "$type")" "$count"
  done
  bad=$(tshark_on "$file" "$*" -Y '_ws.malformed || nvme-tcp.type == 2 || nvme-tcp.type == 3
    || nvme-tcp.type == 8 || nvme-tcp.type > 9 || nvme-tcp.hdgst.status == 0
    || nvme-tcp.ddgst.status == 0 || (nvme-tcp && _ws.expert.severity == 8388608)' \
    -T fields -e frame.number -e tcp.stream -e tcp.srcport -e nvme-tcp.type -e _ws.expert.message)
  holes=$(tshark_on "$file" "$*" -Y 'tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment')
  if [ -n "$bad" ]; then
    printf 'frames that tshark rejects (frame, stream, source port, type, message):\n%s\n' "$bad" >&2
  fi
  [ -z "$holes" ] || printf 'the capture has holes:\n%s\n' "$holes" >&2
  [ -z "$bad$holes" ]
}
# How many PDUs carried a digest that tshark found right: lines "header N" and "data N".
wire_digests() { # FILE PORT...
  local file=$1
  shift
  for kind in header:hdgst data:ddgst; do
    printf '%s %s\n' "${kind%:*}" "$(tshark_on "$file" "$*" -Y "nvme-tcp.${kind#*:}.status == 1" \
      -T fields -e "nvme-tcp.${kind#*:}.status" | tr ',' '\n' | grep -c 1)"
  done
}
