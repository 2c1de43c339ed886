"""Reads leader-epoch checkpoints as Kafka does: epochs.py FILE...; a version, a count, as many lines of epoch and start offset,
both rising. Fails with a line that says which file is none."""
import sys


def check(path):
    with open(path, encoding="utf-8") as file:
        version, count, *entries = file.read().splitlines()
    pairs = [tuple(map(int, entry.split(" "))) for entry in entries]
    if version != "0" or int(count) != len(pairs) or not pairs:
        return f"version {version}, {count} entries promised, {len(pairs)} there"
    rises = all(a[0] < b[0] and a[1] <= b[1] for a, b in zip(pairs, pairs[1:]))
    return None if rises and all(len(pair) == 2 and pair[0] >= 0 and pair[1] >= 0 for pair in pairs) else f"entries {pairs}"


for name in sys.argv[1:]:
    fault = check(name)
    if fault:
        sys.exit(f"{name}: {fault}")
