"""Waits until a broker on a loopback port answers ApiVersions v0: ready.py PORT PID SECONDS_MAX.

Exits 1 when the process with that pid is gone or the time is up.
"""
import os
import socket
import struct
import sys
import time

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 1, -1)


def answers(port: int, timeout_s: float) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as conn:
            conn.settimeout(timeout_s)
            conn.sendall(struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0)
            return len(conn.recv(4)) == 4
    except OSError:
        return False


def main() -> int:
    port, pid, seconds_max = (int(argument) for argument in sys.argv[1:])
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        if answers(port, timeout_s=5):
            return 0
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return 1
        time.sleep(0.1)
    return 1


if __name__ == "__main__":
    sys.exit(main())
