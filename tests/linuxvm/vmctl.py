#!/usr/bin/env python3
"""Runs one shell command inside a guest and streams its output.

    vmctl.py RUN_DIRECTORY [-t SECONDS] COMMAND...

The way in is one of four virtio serial channels, so it works while the guest's network is broken,
and four commands can run at once. The exit status is the command's, or 124 (time is up) or 125
(the guest cannot be reached).
"""
import base64
import fcntl
import os
import re
import socket
import sys
import time
import uuid

CHANNELS = 4


def claim_channel(run_dir, deadline):
    """Locks a free channel; returns the lock and the connected socket."""
    while time.monotonic() < deadline:
        for i in range(CHANNELS):
            lock = open(os.path.join(run_dir, "ctl%d.lock" % i), "w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            channel = socket.socket(socket.AF_UNIX)
            channel.connect(os.path.join(run_dir, "ctl%d.sock" % i))
            return lock, channel
        time.sleep(0.05)
    raise OSError("all channels are busy")


def fail(status, text):
    print("vmctl: " + text, file=sys.stderr)
    return status


def main(args):
    run_dir = args.pop(0)
    limit = 300.0
    if args and args[0] == "-t":
        limit = float(args[1])
        del args[:2]
    deadline = time.monotonic() + limit
    try:
        lock, channel = claim_channel(run_dir, deadline)
    except OSError as error:
        return fail(125, str(error))
    ident = uuid.uuid4().hex[:12].encode()
    channel.sendall(b"\n%s %s\n" % (ident, base64.b64encode(" ".join(args).encode())))
    begin = b"\n@@BEGIN %s@@\n" % ident
    end = re.compile(b"\n@@END %s (\\d+)@@\n" % ident)
    keep = 48  # no less than a marker: what may still become one is held back
    pending, started, out = b"", False, sys.stdout.buffer
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return fail(124, "the command did not end in %g s" % limit)
        channel.settimeout(left)
        try:
            data = channel.recv(65536)
        except socket.timeout:
            continue
        if not data:
            return fail(125, "the guest is gone")
        pending += data
        if not started:
            at = pending.find(begin)
            if at < 0:
                pending = pending[-keep:]
                continue
            pending, started = pending[at + len(begin):], True
        match = end.search(pending)
        if match:
            text = pending[:match.start()]
            out.write(text + (b"" if text.endswith(b"\n") or not text else b"\n"))
            out.flush()
            return int(match.group(1))
        if len(pending) > keep:
            out.write(pending[:-keep])
            out.flush()
            pending = pending[-keep:]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        os._exit(141)
