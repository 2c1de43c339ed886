"""What a cross topic must hold, as kcat prints it with -f '%T %K %S %k%s\\n': expected.py TOPIC.

A record is its timestamp, the lengths of key and value (-1 is null), the bytes of both. Never touches: a broker.
"""
import os
import sys

os.environ.setdefault("INTEROP_BOOTSTRAP", "")
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "pylib"))
from interop import expected_in  # noqa: E402


def size(data):
    return -1 if data is None else len(data)


for record in expected_in(sys.argv[1]):
    sys.stdout.buffer.write(f"{record.timestamp} {size(record.key)} {size(record.value)} ".encode())
    sys.stdout.buffer.write((record.key or b"") + (record.value or b"") + b"\n")
