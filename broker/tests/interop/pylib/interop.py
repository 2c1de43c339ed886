"""What the Python suites share: the test runner, the fixtures, the comparison of records.

Holds: nothing that depends on a client library. Never touches: the network.
"""
import base64
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

BOOTSTRAP = os.environ["INTEROP_BOOTSTRAP"]
BASE_MS = int(os.environ["INTEROP_BASE_MS"])
EVENTUALLY_S_MAX = 10
READ_S_MAX = 20
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@dataclass(frozen=True)
class Record:
    """A record as it was meant, or as it was read; equality is the test."""

    key: bytes | None
    value: bytes | None
    headers: tuple
    timestamp: int
    traits: frozenset = field(default=frozenset(), compare=False)

    def __repr__(self):
        def short(data):
            return data if data is None or len(data) <= 40 else data[:40] + b"... %d bytes" % len(data)

        return f"Record(key={short(self.key)}, value={short(self.value)}, headers={self.headers}, timestamp={self.timestamp})"


def load_fixtures() -> list[Record]:
    """The records of fixtures/records.json with their absolute times."""

    def decoded(text):
        return None if text is None else base64.b64decode(text)

    path = Path(os.environ["INTEROP_FIXTURES"]) / "records.json"
    records = []
    for entry in json.loads(path.read_text(encoding="utf-8"))["records"]:
        value = decoded(entry["value"])
        records.append(Record(
            key=decoded(entry["key"]),
            value=value if value is None else value * entry.get("repeat", 1),
            headers=tuple((name, decoded(data)) for name, data in entry["headers"]),
            timestamp=BASE_MS + entry["at"],
            traits=frozenset(entry.get("traits", ())),
        ))
    return records


def without_traits(records: list[Record], traits: list[str]) -> list[Record]:
    return [record for record in records if record.traits.isdisjoint(traits)]


def expected_in(topic: str) -> list[Record]:
    """What a cross topic must hold: its name says what its writer had to leave out."""
    return without_traits(load_fixtures(), topic.partition(".without.")[2].split("."))


def first_not_older(records: list[Record], timestamp: int) -> int:
    """What a broker must answer for a time: the first offset whose record is not older, or -1."""
    return next((i for i, record in enumerate(records) if record.timestamp >= timestamp), -1)


def equal(expected, actual, what: str):
    if expected != actual:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def same_records(expected: list[Record], actual: list[Record], what: str):
    """Record by record, so that a failure names the first that differs."""
    for position, (wanted, found) in enumerate(zip(expected, actual)):
        equal(wanted, found, f"{what}, record {position}")
    equal(len(expected), len(actual), f"{what}, number of records")


def fails(code_of, expected, body):
    """Runs a body that must raise; `code_of` turns the exception into what is compared."""
    try:
        body()
    except Exception as raised:  # whatever a client raises
        equal(expected, code_of(raised), f"error ({raised!r})")
        return
    raise AssertionError(f"expected {expected}, but it succeeded")


def eventually(body):
    """Runs a body until it no longer fails: a Kafka controller answers before its brokers have replayed the change."""
    deadline = time.monotonic() + EVENTUALLY_S_MAX
    while True:
        try:
            return body()
        except Exception:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


class Cases:
    """Runs named cases one after the other and prints one TAP line for each."""

    def __init__(self):
        self.failed = False

    def run(self, name: str, body):
        try:
            body()
            print(f"ok - {name}", flush=True)
        except Exception as failure:
            self.failed = True
            print(f"not ok - {name}")
            for line in f"{type(failure).__name__}: {failure}".splitlines():
                print(f"# {line}", flush=True)
            traceback.print_exc()

    def finish(self):
        sys.exit(1 if self.failed else 0)
