#!/usr/bin/env bash
# An independent decoder reads our wire: connect, in-capsule writes, R2T writes, reads, with and
# without digests. tshark finds no malformed packet, no wrong digest and no expert error.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$E2E/wire.sh"
need tshark tshark
need dumpcap wireshark-common
need fio fio
capture=$work/wire.pcapng
uri="nbd+unix:///?socket=$work/nbd.sock"

setup() {
  local ports
  read -ra ports < <(free_ports 2)
  start_target --listen "127.0.0.1:${ports[0]}" --listen "127.0.0.1:${ports[1]}" \
    --namespace mem:64MiB
  capture_start "$capture" "${ports[@]}"
  start_serve
  wire=("${ports[@]}")
}
exchange() { # NAME: small writes fit into capsules, large ones need R2T
  fio --name=small --ioengine=nbd --uri="$uri" --rw=randwrite --bs=4k --size=2m --verify=crc32c \
    --iodepth=8
  # Not more: at some C2HData PDUs of 256 KiB tshark 4.0 ends with a segmentation fault.
  fio --name=large --ioengine=nbd --uri="$uri" --rw=randwrite --bs=128k --offset=8m --size=8m \
    --verify=crc32c --iodepth=4
}
with_options() { # OPTION of path 1 .. -- OPTION of path 2 ..
  local first=() second=() into=first option
  for option in "$@"; do
    if [ "$option" = -- ]; then into=second; continue; fi
    if [ $into = first ]; then first+=("$option"); else second+=("$option"); fi
  done
  connect 1 "${first[@]}"
  connect 2 "${second[@]}"
  set_policy round-robin
  export_nbd 1 "$work/nbd.sock"
  exchange
  unexport 1
  host disconnect -n "$nqn"
}
discovery() { "$ANABRANCH" discover -t tcp -a 127.0.0.1 -s "${wire[0]}"; }
has_all_types() {
  local types
  types=$(wire_types "$capture" "${wire[@]}" | cut -d' ' -f1 | xargs)
  equals "$types" "0 1 4 5 6 7 9" "PDU types on the wire"
}
has_digests() {
  wire_digests "$capture" "${wire[@]}"
  wire_digests "$capture" "${wire[@]}" | awk '$2 < 50 { exit 1 }'
}

must "a target, a host, a capture" setup
step "discovery" discovery
step "I/O without digests and with both" with_options -- --hdr-digest --data-digest
step "I/O with one digest each" with_options --hdr-digest -- --data-digest
must "host ends" terminate serve
must "target ends" terminate target
must "capture ends" capture_stop
step "every PDU type was seen" has_all_types
step "tshark checked digests" has_digests
step "tshark finds nothing wrong" wire_clean "$capture" "${wire[@]}"
