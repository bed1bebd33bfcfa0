#!/usr/bin/env bash
# Unmodified nvme-cli, and scripts that know /sys, on the attribute tree: bound over /sys in a mount
# namespace of its own, so that nothing of this machine is changed.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need nvme nvme-cli
need unshare util-linux
need fusermount3 fuse3
[ -w /dev/fuse ] || { echo "cannot open /dev/fuse" >&2; exit 77; }
unshare -m true 2>/dev/null || { echo "may not make a mount namespace: not root" >&2; exit 77; }

# The version of libnvme as a number to compare with: 1.8 is 1008.
libnvme=$(nvme version | sed -n 's/^libnvme version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' |
  awk '{ print $1 * 1000 + $2 }')
libnvme=${libnvme:-0}

inside() { # COMMAND...: with our tree as its /sys
  # shellcheck disable=SC2016  # the inner shell expands
  unshare -m sh -c 'mount --bind "$0" /sys && exec "$@"' "$work/sys" "$@"
}
setup() {
  start_target --listen 127.0.0.1:0 --listen 127.0.0.1:0 \
    --namespace mem:64MiB --namespace mem:32MiB,bs=4096
  mkdir "$work/sys"
  start_serve --attr-fs "$work/sys"
  equals "$(json .attr_fs "$work/serve.json")" "$work/sys" attr_fs
  connect 1 --reconnect-delay 1
  connect 2 --reconnect-delay 1
  live_paths 2
}
list_subsys() {
  inside nvme list-subsys >text
  cat text
  grep -qx "nvme-subsys0 - NQN=$nqn" text
  local i
  for i in 1 2; do
    grep -q "+- nvme$((i - 1)) tcp traddr=127.0.0.1,trsvcid=$(port_of $i),src_addr=127.0.0.1 live" text
  done
  equals "$(grep -c -- '+- ' text)" 2 "controllers"
  inside nvme list-subsys -v | grep -q "nvme-subsys0 - NQN=$nqn"
}
list_subsys_json() {
  inside nvme list-subsys -o json >list.json
  cat list.json
  equals "$(json '.[0].HostNQN' list.json)" "$(json .hostnqn "$work/serve.json")" HostNQN
  equals "$(json '.[0].HostID' list.json)" "$(json .hostid "$work/serve.json")" HostID
  equals "$(json '.[0].Subsystems[0] | .Name + " " + .NQN' list.json)" "nvme-subsys0 $nqn" subsystem
  equals "$(jq -r '[.[].Subsystems[].Paths[] | .Name + .Transport + .State] | sort | join(" ")' \
    list.json)" "nvme0tcplive nvme1tcplive" paths
}
ana_states() { # of nvme0's and nvme1's paths to the first device, through nvme-cli
  inside nvme list -v -o json | jq -r '[.Devices[].Subsystems[].Controllers[].Paths[]
    | select(.Path | endswith("n1")) | .Path + "=" + .ANAState] | sort | join(" ")'
}
shows_ana() { equals "$(ana_states)" "$1" "ANA states"; }
ana() {
  within 10 shows_ana "nvme0c0n1=optimized nvme0c1n1=optimized"
  ctl ana 2 1 non-optimized
  within 10 shows_ana "nvme0c0n1=optimized nvme0c1n1=non-optimized"
  ctl ana 1 1 inaccessible
  within 10 shows_ana "nvme0c0n1=inaccessible nvme0c1n1=non-optimized"
  ctl ana 1 1 optimized
  ctl ana 2 1 optimized
  within 10 shows_ana "nvme0c0n1=optimized nvme0c1n1=optimized"
}
# Before 1.8 libnvme opens /dev/nvmeXnY for each namespace, and there is none.
list_devices() {
  inside nvme list >text
  cat text
  if [ "$libnvme" -ge 1008 ]; then
    grep -q '^/\?\(dev/\)\?nvme0n1 .*67.11  *MB.*512  *B' text
    grep -q '^/\?\(dev/\)\?nvme0n2 .*33.55  *MB.*4  *KiB' text
    inside nvme list-subsys /dev/nvme0n1 | grep -q '+- nvme0 tcp .* live optimized'
  else
    equals "$(wc -l <text)" 2 "lines: libnvme $libnvme opens devices"
  fi
}
# The tree must stand in a directory `sys` for that.
by_environment() {
  if [ "$libnvme" -lt 1008 ]; then
    echo "libnvme $libnvme does not know LIBNVME_SYSFS_PATH"
    return
  fi
  LIBNVME_SYSFS_PATH=$work nvme list-subsys | grep -q "nvme-subsys0 - NQN=$nqn"
}
script_over_sys() {
  # shellcheck disable=SC2016
  inside sh -euc '
    for policy in /sys/class/nvme-subsystem/nvme-subsys*/iopolicy; do
      echo round-robin >"$policy"
      test "$(cat "$policy")" = round-robin
    done
    for path in /sys/block/nvme0n1/multipath/nvme*; do
      controller=$(basename "$(readlink "$path/device")")
      test "$(cat "/sys/class/nvme/$controller/state")" = live
      test "$(cat "$path/ana_state")" = optimized
      test "$(wc -c <"$path/queue_depth")" = 0
    done
    test "$(cat /sys/block/nvme0n2/queue/logical_block_size)" = 4096
    if echo fastest >/sys/class/nvme-subsystem/nvme-subsys0/iopolicy; then exit 1; fi
    if (echo live >/sys/class/nvme/nvme0/state); then exit 1; fi
  '
  equals "$(host get nvme-subsys0 iopolicy)" round-robin iopolicy
}
one_controller() { # STATE: what list-subsys says of nvme1
  inside nvme list-subsys | grep -q -- "+- nvme1 tcp .* $1"
}
loss_and_return() {
  ctl cut 2
  within 10 one_controller connecting
  ctl restore 2
  within 10 one_controller live
  inside nvme disconnect -d nvme1
  equals "$(inside nvme list-subsys | grep -c -- '+- ')" 1 "controllers"
}
# As another user than root, who mounts through fusermount3.
another_user() {
  local as=(setpriv --reuid 65534 --regid 65534 --clear-groups env "HOME=$work/user")
  install -d -o 65534 -g 65534 "$work/user" "$work/user/sys"
  chmod o+x "$work"
  if ! "${as[@]}" test -w /dev/fuse || ! "${as[@]}" test -x "$ANABRANCH"; then
    echo "not run: another user may not open /dev/fuse, or not run $ANABRANCH"
    return
  fi
  "${as[@]}" "$ANABRANCH" serve --socket "$work/user/host.sock" -o json \
    --attr-fs "$work/user/sys" >user.json 2>user.log &
  within 10 json .attr_fs user.json
  local parameter=$work/user/sys/module/nvme_core/parameters/iopolicy
  "${as[@]}" sh -euc "echo numa >$parameter; test \$(cat $parameter) = numa"
  if ls "$work/user/sys"; then return 1; fi # root is somebody else
  kill $!
  wait $!
  equals "$(ls -A "$work/user/sys")" '' "the directory after the end"
}
# As a service with NoNewPrivileges=yes, where fusermount3 is of no use: the reason is told.
no_new_privileges() {
  local as=(setpriv --no-new-privs --reuid 65534 --regid 65534 --clear-groups)
  if ! "${as[@]}" test -w /dev/fuse || ! "${as[@]}" test -x "$ANABRANCH"; then
    echo "not run: another user may not open /dev/fuse, or not run $ANABRANCH"
    return
  fi
  local status=0
  "${as[@]}" env "HOME=$work/user" "$ANABRANCH" serve --socket "$work/user/host.sock" \
    --attr-fs "$work/user/sys" 2>user.log || status=$?
  cat user.log
  equals "$status" 1 "exit status"
  grep -q "cannot mount the attribute tree on $work/user/sys: .*NoNewPrivileges=" user.log
}
ends() {
  terminate serve
  equals "$(ls -A "$work/sys")" '' "the directory after the end"
}

must "two paths and the tree" setup
step "list-subsys shows subsystem, controllers and states" list_subsys
step "list-subsys as JSON" list_subsys_json
step "ANA states, and their changes" ana
step "list: from /sys alone where this version does so" list_devices
step "LIBNVME_SYSFS_PATH where this version has it" by_environment
step "a script over /sys reads and sets attributes" script_over_sys
step "a lost controller, and one that goes" loss_and_return
step "another user's tree" another_user
step "another user's, who gains no rights" no_new_privileges
must "the tree goes with the daemon" ends
