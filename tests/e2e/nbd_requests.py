#!/usr/bin/env python3
"""Sends NBD requests that ordinary clients do not send: the largest, and unaligned ones.

    nbd_requests.py SOCKET

Every answer must be the right data or a plain error, and the connection must live on.
"""
import os
import socket
import struct
import sys

IHAVEOPT, OPT_GO, OPT_REPLY = 0x49484156454F5054, 7, 0x3E889045565A9
REP_ACK, REP_INFO = 1, 3
REQUEST, SIMPLE_REPLY = 0x25609513, 0x67446698
READ, WRITE, FLUSH, TRIM = 0, 1, 3, 4
EINVAL, ENOSPC, EOVERFLOW = 22, 28, 75
MIB = 1 << 20


class Client:
    """A client that does not ask for structured replies, as the oldest do."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(path)
        magic, option_magic, flags = struct.unpack(">8sQH", self.get(18))
        assert magic == b"NBDMAGIC" and option_magic == IHAVEOPT and flags & 1, "fixed newstyle"
        self.socket.sendall(struct.pack(">I", 1 | (flags & 2)))
        self.socket.sendall(struct.pack(">QIIIH", IHAVEOPT, OPT_GO, 6, 0, 0))
        self.size = None
        while True:
            magic, option, kind, length = struct.unpack(">QIII", self.get(20))
            body = self.get(length)
            assert magic == OPT_REPLY and option == OPT_GO, "an answer to our option"
            assert kind in (REP_ACK, REP_INFO), "option refused: %#x %r" % (kind, body)
            if kind == REP_INFO and body[:2] == b"\0\0":
                self.size = struct.unpack(">Q", body[2:10])[0]
            if kind == REP_ACK:
                break
        self.cookie = 0

    def get(self, length):
        parts = []
        while length:
            part = self.socket.recv(min(length, MIB))
            assert part, "the server closed the connection"
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def ask(self, kind, offset, length, data=b""):
        """Sends one request; returns (error, data)."""
        self.cookie += 1
        head = struct.pack(">IHHQQI", REQUEST, 0, kind, self.cookie, offset, length)
        self.socket.sendall(head + data)
        magic, error, cookie = struct.unpack(">IIQ", self.get(16))
        assert magic == SIMPLE_REPLY and cookie == self.cookie, "the answer to our request"
        return error, self.get(length) if kind == READ and error == 0 else b""


def main(path):
    client = Client(path)
    big = os.urandom(32 * MIB)
    for offset in (0, 7 * MIB + 4096):
        assert client.ask(WRITE, offset, len(big), big) == (0, b""), "a write of 32 MiB"
        assert client.ask(READ, offset, len(big)) == (0, big), "a read of 32 MiB"
    print("32 MiB: written and read back at two offsets")

    for offset, length in ((1, 4096), (4096, 1), (511, 1), (4095, 2), (MIB - 1, MIB + 2)):
        error, data = client.ask(READ, offset, length)
        assert error == EINVAL or error == 0 and len(data) == length, "unaligned read"
        error_of_write, _ = client.ask(WRITE, offset, length, b"x" * length)
        assert error_of_write in (0, EINVAL), "unaligned write"
        print("offset %d length %d: read %d, write %d" % (offset, length, error, error_of_write))

    end = client.size
    for kind, offset, length, fits in (
        (READ, end, 4096, False), (READ, end - 4096, 8192, False), (READ, end - 4096, 4096, True),
        (READ, (1 << 64) - 4096, 4096, False), (WRITE, end, 4096, False),
        (WRITE, (1 << 64) - 4096, 8192, False), (TRIM, end, 4096, False), (READ, 0, 0, None),
    ):
        error, _ = client.ask(kind, offset, length, b"y" * length if kind == WRITE else b"")
        ok = fits is None or (error == 0) == fits
        assert ok and error in (0, EINVAL, ENOSPC, EOVERFLOW), "%d at %d: %d" % (kind, offset, error)
    error, _ = client.ask(77, 0, 4096)
    assert error == EINVAL, "an unknown command"
    assert client.ask(FLUSH, 0, 0) == (0, b""), "a flush after all that"
    assert client.ask(READ, end - 4096, 4096)[0] == 0, "and a read"
    print("beyond the end, unknown command: refused, the connection lives on")


if __name__ == "__main__":
    main(sys.argv[1])
