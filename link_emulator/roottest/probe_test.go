//go:build root

package roottest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
	"time"

	"containernet-env/link_emulator/probe"
)

// send runs `link-emulator probe` over hosts.
func send(t testing.TB, hosts []*host, duration time.Duration, streams ...fields) probe.Result {
	t.Helper()
	var list []fields
	for _, h := range hosts {
		list = append(list, fields{"name": h.name, "pid": h.pid(), "ip": h.ip.String()})
	}
	input, err := json.Marshal(fields{
		"hosts": list, "streams": streams, "warmup_ms": 2000, "duration_ms": duration.Milliseconds(), "bypass_qdisc": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(binary, "probe")
	command.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("probe: %v: %s", err, stderr.String())
	}
	var result probe.Result
	if err := json.Unmarshal(output, &result); err != nil {
		t.Fatal(err)
	}
	for _, h := range result.Hosts {
		if !h.Warm || h.RingLost > 0 || h.Refused > 0 || h.Error != "" {
			t.Errorf("%+v", h)
		}
	}
	return result
}

// Each way is measured by itself, and no frame is early.
func TestOneWayDelays(t *testing.T) {
	delays := []time.Duration{0, 3 * time.Millisecond, 7 * time.Millisecond}
	_, hosts := star(t, nil, delays...)
	paths := [][2]int{{0, 1}, {1, 0}, {1, 2}, {2, 1}}
	var streams []fields
	for _, path := range paths {
		streams = append(streams, fields{
			"from": path[0], "to": path[1], "until_us": 250_000, "interval_ns": 1_000_000, "count": 200, "frame_bytes": 98,
		})
	}
	result := send(t, hosts, 2*time.Second, streams...)
	for i, path := range paths {
		got, want := result.Streams[i], delays[path[0]]+delays[path[1]]
		if got.Received == 0 || got.Received > got.Sent || len(got.DelayNS) != got.Sent || len(got.SentNS) != got.Sent {
			t.Fatalf("%v: %d sent, %d received, %d delays", path, got.Sent, got.Received, len(got.DelayNS))
		}
		arrived := slices.DeleteFunc(slices.Clone(got.DelayNS), func(ns int64) bool { return ns < 0 })
		if least := time.Duration(slices.Min(arrived)); least < want || len(arrived) != got.Received {
			t.Errorf("%v: least %v, want %v; %d received, %d delays", path, least, want, got.Received, len(arrived))
		}
	}
	for i, sent := range result.Streams[0].SentNS { // a frame may be sent late, never early
		if sent < int64(i)*1_000_000 {
			t.Errorf("frame %d was sent at %d ns", i, sent)
		}
	}
}

// A stream that is only counted, and the end of one that is too long for its time.
func TestStreamsThatAreCountedAndCut(t *testing.T) {
	_, hosts := star(t, nil, 0, time.Millisecond)
	result := send(t, hosts, 2*time.Second,
		fields{"from": 0, "to": 1, "until_us": 50_000, "interval_ns": 1_000_000, "count": 1000, "frame_bytes": 60,
			"count_only": true},
		fields{"from": 1, "to": 0, "start_us": 60_000, "until_us": 90_000, "count": 100, "frame_bytes": 1514},
	)
	if cut := result.Streams[0]; cut.Sent == 0 || cut.Sent > 52 || cut.Received > cut.Sent || cut.SentNS != nil ||
		cut.DelayNS != nil {
		t.Errorf("got %d sent, %d received, %d times", cut.Sent, cut.Received, len(cut.SentNS))
	}
	if train := result.Streams[1]; train.Received > train.Sent || train.Sent > 0 && train.SentNS[0] < 60_000_000 {
		t.Errorf("got %d sent, %d received, times %v", train.Sent, train.Received, train.SentNS)
	}
}
