"""What a cross topic must hold, in the form in which kcat prints it: expected.py TOPIC meta|bytes.

meta: a line a record: timestamp, key length, value length; -1 is null.
bytes: all keys and values, one behind the other.
Never touches: a broker.
"""
import os
import sys

os.environ.setdefault("INTEROP_BOOTSTRAP", "")
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "pylib"))
from interop import expected_in  # noqa: E402


def size(data):
    return -1 if data is None else len(data)


def main():
    topic, form = sys.argv[1:]
    for record in expected_in(topic):
        if form == "bytes":
            sys.stdout.buffer.write((record.key or b"") + (record.value or b""))
        else:
            print(record.timestamp, size(record.key), size(record.value))


main()
