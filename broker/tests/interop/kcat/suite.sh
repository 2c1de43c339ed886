#!/usr/bin/env bash
# The suite of kcat, as Debian ships it (with an older librdkafka).
# Holds: the cases. Never touches: groups. kcat has no admin calls: its topics come from automatic creation.
set -uo pipefail
source "$INTEROP_ROOT/lib/tap.sh"

ACKS_ALL=(-X acks=all -X message.timeout.ms=30000)

produce() { kcat -b "$INTEROP_BOOTSTRAP" -P "${ACKS_ALL[@]}" "$@"; }

# Reads partition 0 to its end and stops: consume TOPIC FORMAT [OPTION...]
consume() {
  local topic=$1 format=$2; shift 2
  kcat -b "$INTEROP_BOOTSTRAP" -C -q -t "$topic" -p 0 -e -X check.crcs=true -X fetch.wait.max.ms=10 -f "$format" "$@"
}

# Lines "key|value"; a line without the bar has no key; with -Z an empty one is null.
lines() { printf '%s\n' 'a|apple' 'b|banana' 'a|another' 'no key at all' 'c|日本語' "big|$(printf 'x%.0s' $(seq 5000))"; }

round_trip() {
  local topic=kcat.$1; shift
  lines | produce -t "$topic" -K '|' -p 0 "$@"
  equal "$(lines | sed 's/^no key/|no key/')" "$(consume "$topic" '%k|%s\n' -o beginning)" "records of $topic"
}

acks() {
  lines | kcat -b "$INTEROP_BOOTSTRAP" -P -t "kcat.acks.$1" -K '|' -p 0 -X "acks=$1"
  eventually same_count "kcat.acks.$1" 6
}

same_count() { equal "$2" "$(consume "$1" '.\n' -o beginning | wc -l)" "records of $1"; }

nulls() {
  printf 'k|\n|v\n|\n' | produce -t kcat.nulls -K '|' -p 0 -Z
  equal $'1 -1\n-1 1\n-1 -1' "$(consume kcat.nulls '%K %S\n' -o beginning)" "key and value lengths with -Z"
  printf 'k|\n|v\n' | produce -t kcat.empties -K '|' -p 0
  equal $'1 0\n0 1' "$(consume kcat.empties '%K %S\n' -o beginning)" "key and value lengths without"
}

headers() {
  echo value | produce -t kcat.headers -p 0 -H one=1 -H empty= -H one=again -H alone
  equal 'one=1,empty=,one=again,alone=NULL' "$(consume kcat.headers '%h' -o beginning)" "headers"
}

partitioned() {
  local listed
  lines | produce -t kcat.partitioned -K '|'
  listed=$(kcat -b "$INTEROP_BOOTSTRAP" -L -t kcat.partitioned)
  contains "$listed" 'topic "kcat.partitioned" with 1 partitions' "metadata"
  contains "$listed" 'partition 0, leader 1, replicas: 1, isrs: 1' "metadata"
  contains "$listed" '1 brokers' "metadata"
}

by_time() {
  local between
  echo early | produce -t kcat.by-time -p 0
  sleep 0.05
  between=$(date +%s%3N)
  sleep 0.05
  printf 'late\nlater\n' | produce -t kcat.by-time -p 0
  equal $'late\nlater' "$(consume kcat.by-time '%s\n' -o "s@$between")" "records from a time on"
  equal 'early' "$(consume kcat.by-time '%s\n' -o beginning -o "e@$between")" "records up to a time"
  contains "$(query kcat.by-time "$between")" 'offset 1' "offset for a time"
  contains "$(query kcat.by-time -2)" 'offset 0' "earliest offset"
  contains "$(query kcat.by-time -1)" 'offset 3' "latest offset"
}

query() { kcat -b "$INTEROP_BOOTSTRAP" -Q -t "$1:0:$2"; }

from_the_end() {
  equal $'5\n6' "$(seq 6 | produce -t kcat.tail -p 0 && consume kcat.tail '%s\n' -o -2)" "the last two"
  equal 3 "$(consume kcat.tail '%s' -o 2 -c 1)" "from offset 2"
}

idempotent() {
  seq 2000 | produce -t kcat.idempotent -p 0 -X enable.idempotence=true -X batch.num.messages=50
  equal "$(seq 2000 | md5sum)" "$(consume kcat.idempotent '%s\n' -o beginning | md5sum)" "records in order"
}

cross() {
  local topic topics
  topics=$(kcat -b "$INTEROP_BOOTSTRAP" -L -J | jq -r '.topics[].topic | select(startswith("cross."))')
  for topic in $topics; do
    equal "$(python3 "$INTEROP_ROOT/lib/expected.py" "$topic" | md5sum)" "$(consume "$topic" '%T %K %S %k%s\n' -o beginning | md5sum)" "$topic"
  done
}

refused() {
  local said=$1; shift
  local output
  output=$("$@" 2>&1) && fail "expected it to be refused, but it succeeded: $output"
  contains "$output" "$said" "message"
}

unknown_partition() { echo x | kcat -b "$INTEROP_BOOTSTRAP" -P -t kcat.tail -p 9 -X message.timeout.ms=3000; }
illegal_topic() { echo x | kcat -b "$INTEROP_BOOTSTRAP" -P -t 'no spaces!' -p 0 -X message.timeout.ms=3000; }
too_large() { head -c 1500000 /dev/zero | tr '\0' x | produce -t kcat.large -p 0 -X message.max.bytes=3000000 -D '\n'; }
unknown_topic() { kcat -b "$INTEROP_BOOTSTRAP" -C -t kcat.unknown -p 0 -e -X allow.auto.create.topics=false; }

for codec in none gzip snappy lz4 zstd; do
  case_of "records come back identical, compression $codec" round_trip "codec.$codec" -z "$codec"
done
for level in 0 1 all; do case_of "records come back identical, acks $level" acks "$level"; done
case_of "null and empty keys and values stay apart" nulls
case_of "headers come back in order" headers
case_of "a topic is created by being written to, and listed" partitioned
case_of "offsets by time, and reading from there" by_time
case_of "reading from an offset and from the end" from_the_end
case_of "an idempotent producer's batches arrive once and in order" idempotent
case_of "records that other clients wrote are identical" cross
case_of "produce: a partition that is not there" refused 'Unknown partition' unknown_partition
case_of "produce: an illegal topic name" refused 'Invalid topic' illegal_topic
case_of "produce: a record too large for the broker" refused 'Message size too large' too_large
case_of "consume: an unknown topic" refused 'Unknown topic or partition' unknown_topic
finish
