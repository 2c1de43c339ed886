// What the Go suite runs on: the test runner, the fixtures, waiting.
// Holds: nothing that depends on a client library. Never touches: the network.
package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const eventuallyMax = 10 * time.Second

// Cases runs named cases one after the other and prints one TAP line for each.
type Cases struct {
	failed bool
}

func (c *Cases) run(name string, body func() error) {
	err := body()
	if err == nil {
		fmt.Println("ok - " + name)
		return
	}
	c.failed = true
	fmt.Println("not ok - " + name)
	fmt.Println("# " + strings.ReplaceAll(err.Error(), "\n", "\n# "))
}

// Fixture is one record of fixtures/records.json with its absolute time.
type Fixture struct {
	name      string
	traits    []string
	key       []byte
	value     []byte
	headers   []header
	timestamp int64
}

type header struct {
	key   string
	value []byte
}

type fixtureFile struct {
	Records []struct {
		Name    string
		Traits  []string
		At      int64
		Key     *string
		Value   *string
		Repeat  int
		Headers [][2]*string
	}
}

func loadFixtures() ([]Fixture, error) {
	raw, err := os.ReadFile(filepath.Join(os.Getenv("INTEROP_FIXTURES"), "records.json"))
	if err != nil {
		return nil, err
	}
	var file fixtureFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	base, err := strconv.ParseInt(os.Getenv("INTEROP_BASE_MS"), 10, 64)
	if err != nil {
		return nil, err
	}
	var fixtures []Fixture
	for _, r := range file.Records {
		f := Fixture{name: r.Name, traits: r.Traits, key: decoded(r.Key), value: decoded(r.Value), timestamp: base + r.At}
		if r.Repeat > 1 {
			f.value = []byte(strings.Repeat(string(f.value), r.Repeat))
		}
		for _, pair := range r.Headers {
			f.headers = append(f.headers, header{*pair[0], decoded(pair[1])})
		}
		fixtures = append(fixtures, f)
	}
	return fixtures, nil
}

// decoded keeps null (nil) apart from empty.
func decoded(text *string) []byte {
	if text == nil {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		panic("the fixtures are broken: " + err.Error())
	}
	return data
}

// expectedIn is what a cross topic must hold: its name says what its writer had to leave out.
func expectedIn(topic string, fixtures []Fixture) []Fixture {
	_, without, found := strings.Cut(topic, ".without.")
	if !found {
		return fixtures
	}
	var rest []Fixture
	for _, f := range fixtures {
		if !sharesAny(f.traits, strings.Split(without, ".")) {
			rest = append(rest, f)
		}
	}
	return rest
}

func sharesAny(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if x == y {
				return true
			}
		}
	}
	return false
}

// firstNotOlder is what a broker must answer for a time: the first offset whose record is not older, or -1.
func firstNotOlder(fixtures []Fixture, time int64) int64 {
	for i, f := range fixtures {
		if f.timestamp >= time {
			return int64(i)
		}
	}
	return -1
}

// eventually runs a body until it no longer fails: a Kafka controller answers before its brokers have replayed the change.
func eventually(body func() error) error {
	deadline := time.Now().Add(eventuallyMax)
	for {
		err := body()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func equal[T comparable](expected, actual T, what string) error {
	if expected != actual {
		return fmt.Errorf("%s: expected %v, got %v", what, expected, actual)
	}
	return nil
}

// fails checks that a body ends with this error.
func fails(expected error, body func() error) error {
	err := body()
	if !errors.Is(err, expected) {
		return fmt.Errorf("expected %v, got %v", expected, err)
	}
	return nil
}
