"""Judges what kafka-dump-log printed: dump.py RECORDS TOPICS < the dump of all segments, in order.

RECORDS is what a client read (corelog.interop.files.Reader), of which the topics count whose names start with TOPICS. The printed records must be the same, and no batch invalid. Fails with
a line that says what is not. All keys and values of the load are text without spaces, so the printed form says all of it.
"""
import itertools
import re
import sys

RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) (?P<type>\w+): (?P<time>\d+) keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r"(?: sequence: (?P<sequence>-?\d+))? headerKeys: \[(?P<headers>[^\]]*)\](?: key: (?P<key>\S*))?(?: payload: (?P<value>\S*))?"
)
COMPLAINTS = ("isvalid: false", "Found invalid", "Mismatches in", "Misses in", "Could not find", "Exception", "unreadable")


def of_clients(path, topics):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            kind, where, offset, time_type, time, key, value, headers = (line.split() + [""] * 8)[:8]
            if kind == "record" and where.startswith(topics):
                names = [pair.split("=")[0] for pair in headers.strip("[]").split(",") if pair]
                yield where, int(offset), time_type, int(time), text(key), text(value), names


def text(hexed):
    return None if hexed == "null" else bytes.fromhex(hexed[1:]).decode()


def of_dump(lines):
    where = None
    for line in lines:
        if line.startswith("Dumping "):
            where = line.split("/")[-2]
        if any(complaint in line for complaint in COMPLAINTS):
            sys.exit(f"the dump complains: {line.strip()[:300]}")
        found = RECORD.match(line)
        if found:
            key = None if found["key_size"] == "-1" else found["key"]
            value = None if found["value_size"] == "-1" else found["value"] or ""
            names = [name for name in found["headers"].split(",") if name]
            yield where, int(found["offset"]), found["type"], int(found["time"]), key, value, names


def main():
    count = 0
    for ours, theirs in itertools.zip_longest(of_clients(sys.argv[1], sys.argv[2]), of_dump(sys.stdin)):
        count += 1
        if ours != theirs:
            sys.exit(f"clients read {str(ours)[:200]}, the dump has {str(theirs)[:200]}")
    if count == 0:
        sys.exit("clients read nothing")


main()
