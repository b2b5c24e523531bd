//go:build plumbing

package emulator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/hang"
)

// session is a server on an emulator whose TAPs are socket pairs, and a process that plays the host.
type session struct {
	t        testing.TB
	requests io.WriteCloser
	lines    chan string
	served   chan error
	host     *exec.Cmd
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a session; change, if there is one, changes its emulator's options.
func start(t testing.TB, change func(*Options)) *session {
	t.Helper()
	s := &session{t: t, lines: make(chan string, 100), served: make(chan error, 1), host: exec.Command("sleep", "1000")}
	must(t, s.host.Start())
	input, requests := io.Pipe()
	replies, output := io.Pipe()
	s.requests = requests
	options := fakes(func(far io.Closer) { t.Cleanup(func() { far.Close() }) })
	options.Failed = func(err error) { t.Errorf("the data path failed: %v", err) }
	if change != nil {
		change(&options)
	}
	e, err := Start(options)
	must(t, err)
	go func() { s.served <- e.Serve(input, output) }()
	go func() {
		scanner := bufio.NewScanner(replies)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			s.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		requests.Close()
		replies.Close()
		e.Stop()
		_ = s.host.Process.Kill() // it may have ended in the test
		_ = s.host.Wait()
	})
	return s
}

// fakes are options for TAPs that are socket pairs; keep receives each far end.
func fakes(keep func(far io.Closer)) Options {
	taken := map[string]bool{}
	return Options{
		Version:     "dev",
		CheckStamps: func() error { return nil },
		OpenTap: func(spec device.TapSpec) (device.Device, error) {
			if taken[spec.IfName] {
				return nil, fmt.Errorf("interface %q exists already", spec.IfName)
			}
			near, far, err := device.NewFakePair(spec.Stamps)
			if err != nil {
				return nil, err
			}
			taken[spec.IfName] = spec.IfName == "taken"
			keep(far)
			return near, nil
		},
		OpenTest: func(stamps bool) (ends [2]device.TestEnd, err error) {
			for i := range ends {
				near, far, err := device.NewFakePair(stamps)
				if err != nil {
					return ends, err
				}
				ends[i] = device.TestEnd{Near: near, Far: far}
			}
			return ends, nil
		},
	}
}

// localize puts the pid of the session's host where an example has its own.
func (s *session) localize(line string) string {
	return strings.ReplaceAll(line, "4242", strconv.Itoa(s.host.Process.Pid))
}

func (s *session) send(line string) {
	s.t.Helper()
	_, err := io.WriteString(s.requests, s.localize(line)+"\n")
	must(s.t, err)
}

func (s *session) receive() string {
	s.t.Helper()
	select {
	case line := <-s.lines:
		return line
	case err := <-s.served:
		s.t.Fatalf("the server ended: %v", err)
	case <-hang.After():
		s.t.Fatal("no line came within the deadline")
	}
	return ""
}

func (s *session) ask(line string) string {
	s.t.Helper()
	s.send(line)
	return s.receive()
}

// expect sends requests, each of which is carried out, or refused if its answer is to have an error in it.
func (s *session) expect(request string, said ...string) {
	s.t.Helper()
	answer := s.ask(request)
	for _, text := range said {
		if !strings.Contains(answer, text) {
			s.t.Errorf("%s\n got %s\nwant something with %s", request, answer, text)
		}
	}
}

const ok = `"ok":true`

func TestRefusals(t *testing.T) {
	s := start(t, nil)
	const delays = `,"a_to_b":{"delay_ns":0},"b_to_a":{"delay_ns":0}`
	s.expect(`{"id":1,"op":"add_switch","name":"s1"}`, ok)
	s.expect(`{"id":2,"op":"add_switch","name":"s2"}`, ok)
	s.expect(`{"id":3,"op":"add_port","name":"p","pid":4242,"ifname":"e1","mac":"02:00:00:00:00:01"}`, ok)
	s.expect(`{"id":3,"op":"add_port","name":"other","pid":4242,"ifname":"taken"}`, ok)
	s.expect(`{"id":4,"op":"add_link","name":"l","a":{"port":"p"},"b":{"switch":"s1"}`+delays+`}`, ok)
	s.expect(`{"id":5,"op":"add_link","name":"s1-s2","a":{"switch":"s1"},"b":{"switch":"s2"}`+delays+`}`, ok)
	refused := func(request, id, said string) {
		t.Helper()
		var reply struct{ Error string }
		answer := s.ask(request)
		must(t, json.Unmarshal([]byte(answer), &reply))
		if !strings.HasPrefix(answer, `{"id":`+id+`,"ok":false,"error":`) || !strings.Contains(reply.Error, said) ||
			strings.Contains(reply.Error, "\n") {
			t.Errorf("%s\n got %s\nwant a refusal with id %s that says %q", request, answer, id, said)
		}
	}
	for request, said := range map[string]string{
		`not JSON`:                           `invalid character`,
		`[]`:                                 `cannot unmarshal array`,
		`{"op":"hello"}`:                     "id",
		`{"id":1.5,"op":"hello"}`:            "id",
		`{"id":"1","op":"hello"}`:            "id",
		`{"id":9,"op":7}`:                    "header.op",
		`{"id":9,"op":"hello"} {}`:           `after top-level value`,
		strings.Repeat("x", maxLineBytes+10): "longer than",
	} {
		refused(request, "null", said)
	}
	for _, c := range []struct{ op, fields, said string }{
		{"", ``, `op: there is no operation ""`},
		{"nonsense", ``, "op"},
		{"hello", `"x":1`, "x: unknown field"},
		{"stats", `"reset":1`, "reset"},

		{"add_switch", ``, "name"},
		{"add_switch", `"name":""`, "name"},
		{"add_switch", `"name":null`, "name"},
		{"add_switch", `"name":"s1"`, `a switch "s1" exists`},

		{"add_port", `"name":"p","pid":4242,"ifname":"e9"`, `a port "p" exists`},
		{"add_port", `"name":"q","pid":0,"ifname":"e9"`, "pid"},
		{"add_port", `"name":"q","pid":4194303,"ifname":"e9"`, "process 4194303"},
		{"add_port", `"name":"q","pid":4242,"ifname":"sixteen-bytes-xx"`, "ifname"},
		{"add_port", `"name":"q","pid":4242,"ifname":"taken"`, `interface "taken" exists`},
		{"add_port", `"name":"q","pid":4242,"ifname":"e9","mac":"02:00:00:00:00:01"`, "mac"},
		{"add_port", `"name":"q","pid":4242,"ifname":"e9","mac":"03:00:00:00:00:01"`, "mac"},
		{"add_port", `"name":"q","pid":4242,"ifname":"e9","mac":"zz"`, "mac"},
		{"add_port", `"name":"q","pid":4242,"ifname":"e9","mtu":67`, "mtu"},
		{"add_port", `"name":"q","pid":4242,"ifname":"e9","mtu":65522`, "mtu"},

		{"add_link", `"name":"x","a":{"port":"other"},"b":{"switch":"s1"},"a_to_b":{"delay_ns":0}`, "b_to_a"},
		{"add_link", `"name":"x","a":{},"b":{"switch":"s1"}` + delays, "a"},
		{"add_link", `"name":"x","a":{"port":"other","switch":"s1"},"b":{"switch":"s1"}` + delays, "a"},
		{"add_link", `"name":"x","a":{"port":"none"},"b":{"switch":"s1"}` + delays, `there is no port "none"`},
		{"add_link", `"name":"x","a":{"switch":"s2"},"b":{"switch":"s1"}` + delays, `would close a loop`},

		{"set_link", `"name":"l"`, "a_to_b"},
		{"set_link", `"name":"none","a_to_b":{"delay_ns":1}`, `there is no link "none"`},
		{"set_link", `"name":"l","a_to_b":[]`, "a_to_b"},
		{"read_link", `"name":"none"`, `there is no link "none"`},
		{"link_state", `"name":"l"`, "up"},
		{"link_state", `"name":"l","up":1`, "up"},
		{"link_state", `"name":"none","up":true`, `there is no link "none"`},
		{"remove_link", `"name":"none"`, `there is no link "none"`},
		{"remove_port", `"name":"none"`, `there is no port "none"`},
		{"remove_port", `"name":"p"`, `carries link "l"`},
		{"remove_switch", `"name":"s1"`, `carries link "l"`},

		{"partition", ``, "sets"},
		{"partition", `"sets":"p"`, "sets"},
		{"partition", `"sets":[["p"]]`, "sets"},
		{"partition", `"sets":[["p"],[null]]`, "sets"},
		{"partition", `"sets":[["p"],["none"]]`, "sets"},
		{"heal", `"sets":[]`, "sets"},
	} {
		refused(strings.TrimSuffix(`{"id":9,"op":"`+c.op+`",`+c.fields, ",")+"}", "9", c.said)
	}
	// Of a direction; the model's own test has all bounds.
	for _, c := range []struct{ fields, said string }{
		{``, "delay_ns"},
		{`"delay_ns":-1`, `delay_ns: got -1, allowed: 0 to 3600000000000`},
		{`"delay_ns":null`, "delay_ns: got null"},
		{`"delay_ns":"3ms"`, "delay_ns"},
		{`"delay_ns":3e6`, "delay_ns"},
		{`"delay_ns":0,"rate_bps":0`, "rate_bps: got 0, allowed: a positive integer, or null"},
		{`"delay_ns":0,"queue_frames":0`, "queue_frames"},
		{`"delay_ns":0,"queue_bytes":0`, "queue_bytes"},
		{`"delay_ns":0,"seed":-1`, `seed: got -1, allowed: 0 to 9007199254740991`},
		{`"delay_ns":0,"overhead_bytes":1001`, `overhead_bytes: got 1001, allowed: 0 to 1000`},

		{`"delay_ns":9,"jitter":1`, "jitter"},
		{`"delay_ns":9,"jitter":{"distribution":"pareto","ns":1}`, "jitter.distribution"},
		{`"delay_ns":9,"jitter":{"distribution":"uniform"}`, "jitter.ns"},
		{`"delay_ns":9,"jitter":{"distribution":"uniform","ns":0}`, "jitter.ns"},
		{`"delay_ns":9,"jitter":{"distribution":"normal","ns":3}`, "jitter.ns"},
		{`"delay_ns":9,"jitter":{"distribution":"normal","ns":2,"reorder":1}`, "jitter.reorder"},
		{`"delay_ns":9,"jitter":{"distribution":"normal","ns":2,"correlation_ns":0}`, "jitter.correlation_ns"},
		{`"delay_ns":9,"jitter":{"distribution":"normal","ns":2,"correlation_ns":15}`,
			"jitter.correlation_ns: got 15, allowed: 16 to"},
		{`"delay_ns":9,"jitter":{"distribution":"normal","ns":2,"correlation_ns":99,"reorder":true}`,
			"jitter.correlation_ns"},

		{`"delay_ns":0,"loss":1`, "loss"},
		{`"delay_ns":0,"loss":{"ratio":0.5}`, "loss.model"},
		{`"delay_ns":0,"loss":{"model":"random","ratio":0.5}`, "loss.model"},
		{`"delay_ns":0,"loss":{"model":"independent"}`, `loss.ratio: the field is missing`},
		{`"delay_ns":0,"loss":{"model":"independent","ratio":1.01}`, "loss.ratio"},
		{`"delay_ns":0,"loss":{"model":"independent","ratio":0.5,"bad_loss_ratio":1}`, "loss.bad_loss_ratio"},
		{`"delay_ns":0,"loss":{"model":"gilbert_elliott","good_to_bad_ratio":0.1}`,
			"loss.bad_to_good_ratio: the field is missing"},
		{`"delay_ns":0,"loss":{"model":"gilbert_elliott","ratio":0.5}`,
			`loss.ratio: the model gilbert_elliott has no such field`},
	} {
		const link = `{"id":9,"op":"add_link","name":"x","a":{"port":"other"},"b":{"switch":"s1"},`
		refused(link+`"a_to_b":{`+c.fields+`},"b_to_a":{"delay_ns":0}}`, "9", "a_to_b."+c.said)
		refused(link+`"a_to_b":{"delay_ns":0},"b_to_a":{`+c.fields+`}}`, "9", "b_to_a."+c.said)
	}
	s.expect(`{"id":2,"op":"hello"}`, `"id":2,"ok":true`)
}

// Where the kernel refuses to stamp frames, or the caller wants none, every reply that depends on it says so.
func TestFramesWithoutStamps(t *testing.T) {
	for reason, change := range map[string]func(*Options){
		"operation not permitted": func(o *Options) { o.CheckStamps = func() error { return unix.EPERM } },
		"--stamps read":           func(o *Options) { o.Unstamped = "--stamps read" },
	} {
		s := start(t, change)
		s.expect(`{"id":1,"op":"add_switch","name":"s1"}`, ok)
		s.expect(`{"id":2,"op":"add_port","name":"p","pid":4242,"ifname":"e1"}`, ok)
		s.expect(`{"id":3,"op":"add_link","name":"l","a":{"port":"p"},"b":{"switch":"s1"},"a_to_b":{"delay_ns":0},`+
			`"b_to_a":{"delay_ns":0}}`, `"stamps":"read"`)
		s.expect(`{"id":4,"op":"hello"}`, `"stamps":"read","stamps_reason":"`+reason+`"`)
		s.expect(`{"id":5,"op":"stats"}`, `"stamps":"read","unmatched":0`)
	}
}

func TestServeEndsWithItsInput(t *testing.T) {
	s := start(t, nil)
	s.requests.Close()
	select {
	case err := <-s.served:
		must(t, err)
	case <-hang.After():
		t.Fatal("it keeps running")
	}
}

func TestSetLinkKeepsWhatIsNotGiven(t *testing.T) {
	s := start(t, nil)
	s.expect(`{"id":1,"op":"add_switch","name":"s1"}`, ok)
	s.expect(`{"id":2,"op":"add_switch","name":"s2"}`, ok)
	s.expect(`{"id":3,"op":"add_link","name":"l","a":{"switch":"s1"},"b":{"switch":"s2"},"b_to_a":{"delay_ns":6},`+
		`"a_to_b":{"delay_ns":5,"rate_bps":1000000,"overhead_bytes":0,"queue_frames":7}}`, ok)
	change := func(directions string, said ...string) {
		t.Helper()
		s.expect(`{"id":4,"op":"set_link","name":"l",`+directions+`}`, said...)
	}
	change(`"a_to_b":{"delay_ns":9}`, `"a_to_b":{"delay_ns":9,"rate_bps":1000000,"overhead_bytes":0,"queue_frames":7`,
		`"b_to_a":{"delay_ns":6,"rate_bps":null`)
	change(`"a_to_b":{"rate_bps":null,"overhead_bytes":0,"queue_frames":null}`,
		`"a_to_b":{"delay_ns":9,"rate_bps":null,"overhead_bytes":0,"queue_frames":2000`)
	change(`"a_to_b":{"delay_ns":1000,"overhead_bytes":24,"queue_bytes":5000,`+
		`"jitter":{"distribution":"uniform","ns":900},"loss":{"model":"independent","ratio":0.5},"seed":9}`,
		`"overhead_bytes":24,"queue_frames":null,"queue_bytes":5000,"jitter":{"distribution":"uniform","ns":900,`+
			`"reorder":false,"correlation_ns":9000},"loss":{"model":"independent","ratio":0.5},"seed":9`)
	// What is held must stay possible: with a delay of 800 ns the jitter of 900 ns would be negative at times.
	change(`"a_to_b":{"delay_ns":800}`, `"error":"a_to_b.jitter.ns: got 900, allowed: 1 to 800`)
	// The direction that is right does not change either.
	change(`"a_to_b":{"delay_ns":1},"b_to_a":{"delay_ns":-1}`, `"ok":false`)
	change(`"a_to_b":{"seed":4},"b_to_a":{"delay_us":1}`, `"ok":false`)
	s.expect(`{"id":7,"op":"read_link","name":"l"}`, `"a_to_b":{"delay_ns":1000,`, `"seed":9,`)
	change(`"a_to_b":{"delay_ns":800,"overhead_bytes":null,"jitter":null,"loss":null,"queue_bytes":null}`,
		`"a_to_b":{"delay_ns":800,"rate_bps":null,"overhead_bytes":0,"queue_frames":2000,`+
			`"queue_bytes":null,"jitter":null,"loss":null,"seed":9`)
}
