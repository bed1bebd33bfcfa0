#!/usr/bin/env python3
"""Sends one command to a running qemu and prints what it returns, as JSON.

    qmp.py SOCKET COMMAND [ARGUMENTS]

ARGUMENTS is a JSON object. Exit status: 1 with qemu's words when it refuses.
"""
import json
import socket
import sys


def main(path, command, arguments="{}"):
    """Returns the exit status."""
    channel = socket.socket(socket.AF_UNIX)
    channel.settimeout(60)
    channel.connect(path)
    lines = channel.makefile("r")
    lines.readline()  # the greeting
    asked = [("qmp_capabilities", {}), (command, json.loads(arguments))]
    for name, values in asked:
        channel.sendall(json.dumps({"execute": name, "arguments": values}).encode())
        answer = {}
        while not {"return", "error"} & answer.keys():
            answer = json.loads(lines.readline())  # or an event
        if "error" in answer:
            print("%s: %s" % (name, answer["error"]["desc"]), file=sys.stderr)
            return 1
    print(json.dumps(answer["return"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
