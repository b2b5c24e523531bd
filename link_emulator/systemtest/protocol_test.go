//go:build plumbing

package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/assert"
	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/emulator"
	"containernet-env/link_emulator/hang"
	"containernet-env/link_emulator/stamp"
)

const maxLineBytes = 1 << 20 // of a request

func init() { roles["emulator"] = serveFakes }

// unstampedVariable is why the emulator of serveFakes has no stamps; empty: it has.
const unstampedVariable = "LINK_EMULATOR_TEST_UNSTAMPED"

// serveFakes is an emulator whose TAPs are socket pairs, in a process of its own: a fuzzer stops all goroutines at
// times, which waits for the data thread for ever.
func serveFakes() int {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	options := emulator.Options{Version: "dev", CheckStamps: func() error { return nil }, Failed: fail}
	switch reason := os.Getenv(unstampedVariable); reason {
	case unix.EPERM.Error():
		options.CheckStamps = func() error { return unix.EPERM }
	default:
		options.Unstamped = reason
	}
	taken := map[string]bool{}
	options.OpenTap = func(spec device.TapSpec) (device.Device, error) {
		if taken[spec.IfName] {
			return nil, fmt.Errorf("interface %q exists already", spec.IfName)
		}
		taken[spec.IfName] = spec.IfName == "taken"
		near, far, err := newFakePair(spec.Stamps)
		return &pair{near, far}, err
	}
	options.OpenTest = func(stamps bool) (ends [2]device.TestEnd, err error) {
		for i := range ends {
			if ends[i].Near, ends[i].Far, err = newFakePair(stamps); err != nil {
				break
			}
		}
		return ends, err
	}
	e, err := emulator.Start(options)
	if err == nil {
		control := os.NewFile(3, "control")
		err = e.Serve(control, control)
	}
	if err != nil {
		fail(err)
	}
	return 0
}

// fake is one end of a socket pair that keeps frame boundaries. It has real file descriptors, so that the event loop
// can be tested without root, and satisfies the contract of device.Device.
type fake struct {
	device.FrameFD
	stamps   *stamp.Ring // of what is read here
	stamping *stamp.Ring // of what is written here
}

// newFakePair makes both ends: the emulator's and the host's. stamps: the frames of the host are stamped.
func newFakePair(stamps bool) (near, far *fake, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	near, far = &fake{FrameFD: device.FrameFD(fds[0])}, &fake{FrameFD: device.FrameFD(fds[1])}
	if stamps {
		near.stamps = stamp.NewInMemory(device.StampedFrames)
		far.stamping = near.stamps
	}
	return near, far, nil
}

// Stamps implements device.Device.
func (f *fake) Stamps() *stamp.Ring { return f.stamps }

// Write stamps the frame as a TAP's program does, and drops it where the program would.
func (f *fake) Write(frame []byte) unix.Errno {
	if f.stamping != nil && !f.stamping.Put(frame, hang.StampNS()) {
		return 0
	}
	return f.FrameFD.Write(frame)
}

// Read is a frame or EAGAIN; after the other end was closed it is EBADFD, as of a TAP that was deleted.
func (f *fake) Read(buffer []byte) (int, unix.Errno) {
	n, errno := f.FrameFD.Read(buffer)
	if n == 0 && errno == 0 {
		return 0, unix.EBADFD
	}
	return n, errno
}

// pair is a device whose far end ends with it.
type pair struct {
	device.Device
	far io.Closer
}

func (p *pair) Close() error {
	p.far.Close()
	return p.Device.Close()
}

// session is an emulator on socket pairs, and the process of a host.
type session struct {
	*client
	host *exec.Cmd
}

func startFakes(t testing.TB, unstamped string) session {
	t.Helper()
	command := inRole("emulator")
	command.Env = append(command.Env, unstampedVariable+"="+unstamped)
	return session{start(t, command), startProcess(t, func(*exec.Cmd) {})}
}

// localize puts the pid of the session's host where an example has its own.
func (s session) localize(line string) string {
	return strings.ReplaceAll(line, "4242", strconv.Itoa(s.host.Process.Pid))
}

// carry sends a request and returns the reply.
func (s session) carry(request string) string {
	s.t.Helper()
	s.send(s.localize(request))
	return s.next()
}

// expect sends a request whose reply must have some texts in it.
func (s session) expect(request string, said ...string) {
	s.t.Helper()
	reply := s.carry(request)
	for _, text := range said {
		assert.That(s.t, strings.Contains(reply, text), "%s\n got %s\nwant something with %s", request, reply, text)
	}
}

// TestREADME runs every example of the protocol in README.md, in order. Lines that begin with two spaces go on with the
// one before; `...` stands for fields that an example does not show.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	assert.OK(t, err)
	s := startFakes(t, "")
	used := map[string]bool{}
	for example := range strings.SplitSeq(strings.ReplaceAll(string(text), "\n  ", ""), "\n") {
		switch kind, line, _ := strings.Cut(example, " "); {
		case kind == ">" && line[0] == '{':
			used[parse(t, line)["op"].(string)] = true
			s.send(s.localize(line))
		case kind == "<" && line[0] == '{':
			compare(t, line+" ", parse(t, strings.ReplaceAll(s.localize(line), "...", `"...":0`)), parse(t, s.next()))
		case example == "! the process 4242 ends":
			assert.OK(t, s.host.Process.Kill())
		case kind == "!":
			t.Fatalf("the test does not know how to do %q", line)
		}
	}
	refusal := parse(t, s.carry(`{"id":1,"op":""}`))["error"].(string)
	_, all, _ := strings.Cut(refusal, "allowed: ")
	for op := range strings.SplitSeq(all, ", ") {
		assert.That(t, used[op], "README.md has no example of %q", op)
	}
}

// varies are the fields whose values differ from run to run; their types do not differ.
const varies = " at_ns pid realtime realtime_reason memory_locked memory_locked_reason kept_awake kept_awake_reason " +
	"turns yields timer_ns passed echoes min_ns median_ns "

func compare(t *testing.T, path string, want, got any) {
	t.Helper()
	wantMap, isMap := want.(fields)
	gotMap, _ := got.(fields)
	field := path[strings.LastIndex(path, " "):]
	free := strings.Contains(varies, field+" ") || strings.HasSuffix(path, "self_test max_ns") ||
		strings.HasSuffix(path, "self_test reason")
	assert.That(t, reflect.TypeOf(want) == reflect.TypeOf(got) && (isMap || free || reflect.DeepEqual(want, got)),
		"%s: got %v, the example has %v", path, got, want)
	for name := range gotMap {
		_, shown := wantMap[name]
		assert.That(t, shown || wantMap["..."] != nil, "%s: the example lacks %q", path, name)
	}
	for name, value := range wantMap {
		if name != "..." {
			compare(t, path+" "+name, value, gotMap[name])
		}
	}
}

const ok = `"ok":true`

func TestRefusals(t *testing.T) {
	s := startFakes(t, "")
	const delays = `,"a_to_b":{"delay_ns":0},"b_to_a":{"delay_ns":0}`
	s.expect(`{"id":1,"op":"add_switch","name":"s1"}`, ok)
	s.expect(`{"id":2,"op":"add_switch","name":"s2"}`, ok)
	s.expect(`{"id":3,"op":"add_port","name":"p","pid":4242,"ifname":"e1","mac":"02:00:00:00:00:01"}`, ok)
	s.expect(`{"id":3,"op":"add_port","name":"other","pid":4242,"ifname":"taken"}`, ok)
	s.expect(`{"id":4,"op":"add_link","name":"l","a":{"port":"p"},"b":{"switch":"s1"}`+delays+`}`, ok)
	s.expect(`{"id":5,"op":"add_link","name":"s1-s2","a":{"switch":"s1"},"b":{"switch":"s2"}`+delays+`}`, ok)
	s.expect(`{"id":6,"op":"add_switch","name":"s3"}`, ok)
	s.expect(`{"id":7,"op":"add_link","name":"s2-s3","a":{"switch":"s2"},"b":{"switch":"s3"}`+delays+`}`, ok)
	s.expect(`{"id":8,"op":"partition","sets":[["p"],["other"]]}`, ok)
	refused := func(request, id, said string) {
		t.Helper()
		var reply struct{ Error string }
		answer := s.carry(request)
		assert.OK(t, json.Unmarshal([]byte(answer), &reply))
		assert.That(t, strings.HasPrefix(answer, `{"id":`+id+`,"ok":false,"error":`) &&
			strings.Contains(reply.Error, said) && !strings.Contains(reply.Error, "\n"),
			"%s\n got %s\nwant a refusal with id %s that says %q", request, answer, id, said)
	}
	for request, said := range map[string]string{
		`not JSON`:                           `invalid character`,
		`[]`:                                 `cannot unmarshal array`,
		`{"op":"hello"}`:                     "id",
		`{"id":1.5,"op":"hello"}`:            "id",
		`{"id":9,"op":7}`:                    "op",
		`{"id":9,"op":"hello"} {}`:           `after top-level value`,
		strings.Repeat("x", maxLineBytes+10): "longer than",
	} {
		refused(request, "null", said)
	}
	for _, c := range []struct{ op, fields, said string }{
		{"", ``, `op: got "", allowed: add_link, add_port, `},
		{"nonsense", ``, "op"},
		{"hello", `"x":1`, "x: unknown field"},
		{"stats", `"reset":1`, "reset"},

		{"add_switch", ``, "name"},
		{"add_switch", `"name":""`, "name"},
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
		{"add_link", `"name":"x","a":{"port":"other"},"b":{"switch":"none"}` + delays, `there is no switch "none"`},
		{"add_link", `"name":"x","a":{"port":"p"},"b":{"switch":"s2"}` + delays, `port "p" carries link "l"`},
		{"add_link", `"name":"l","a":{"port":"other"},"b":{"switch":"s2"}` + delays, `a link "l" exists`},
		{"add_link", `"name":"x","a":{"switch":"s1"},"b":{"switch":"s1"}` + delays, `switch "s1" is at both ends`},

		{"set_link", `"name":"l"`, "a_to_b"},
		{"set_link", `"name":"none","a_to_b":{"delay_ns":1}`, `there is no link "none"`},
		{"set_link", `"name":"l","a_to_b":[]`, "a_to_b"},
		{"read_link", `"name":"none"`, `there is no link "none"`},
		{"link_state", `"name":"l"`, "up"},
		{"link_state", `"name":"none","up":true`, `there is no link "none"`},
		{"link_state", `"name":"l","up":false,"switches":{"s9":{}}`, `there is no switch "s9"`},
		{"remove_link", `"name":"none"`, `there is no link "none"`},
		{"remove_port", `"name":"none"`, `there is no port "none"`},
		{"remove_port", `"name":"p"`, `carries link "l"`},
		{"remove_switch", `"name":"s1"`, `carries link "l"`},
		{"remove_switch", `"name":"none"`, `there is no switch "none"`},

		{"routes", `"switches":{"s9":{}}`, `there is no switch "s9"`},
		{"routes", `"switches":{"s1":{"s2":"l"}}`, `switches.s1.s2: got "l"`},

		{"partition", ``, "sets"},
		{"partition", `"sets":[["p"]]`, "sets"},
		{"partition", `"sets":[["p"],[null]]`, "sets"},
		{"partition", `"sets":[["p"],["none"]]`, "sets"},
		{"partition", `"sets":[["p"],[]]`, "sets"},
		{"partition", `"sets":[["p"],["p"]]`, "sets"},
		{"partition", `"sets":[["p","p"],["other"]]`, "sets"},
		{"heal", `"sets":[]`, "sets"},
	} {
		refused(strings.TrimSuffix(`{"id":9,"op":"`+c.op+`",`+c.fields, ",")+"}", "9", c.said)
	}
	// Of a direction; the model's own test has all bounds.
	for _, c := range []struct{ fields, said string }{
		{``, "delay_ns"},
		{`"delay_ns":-1`, `delay_ns: got -1, allowed: 0 to 3600000000000`},
		{`"delay_ns":null`, "delay_ns: got null"},
		{`"delay_ns":3e6`, "delay_ns"},
		{`"delay_ns":0,"rate_bps":0`, "rate_bps: got 0, allowed: a positive integer, or null"},
		{`"delay_ns":0,"queue_frames":0`, "queue_frames"},
		{`"delay_ns":0,"queue_bytes":0`, "queue_bytes"},
		{`"delay_ns":0,"seed":-1`, `seed: got -1, allowed: 0 to 9007199254740991`},
		{`"delay_ns":0,"overhead_bytes":1001`, `overhead_bytes: got 1001, allowed: 0 to 1000`},

		{`"delay_ns":9,"jitter":1`, "jitter"},
		{`"delay_ns":9,"jitter":{"distribution":"pareto","ns":1}`, "jitter.distribution"},
		{`"delay_ns":9,"jitter":{"distribution":"uniform"}`, "jitter.ns"},
		{`"delay_ns":9,"jitter":{"distribution":"normal","ns":2,"reorder":1}`, "jitter.reorder"},
		{`"delay_ns":9,"jitter":{"distribution":"normal","ns":2,"correlation_ns":15}`,
			"jitter.correlation_ns: got 15, allowed: 16 to"},
		{`"delay_ns":9,"jitter":{"distribution":"normal","ns":2,"correlation_ns":99,"reorder":true}`,
			"jitter.correlation_ns"},

		{`"delay_ns":0,"loss":1`, "loss"},
		{`"delay_ns":0,"loss":{"ratio":0.5}`, "loss.model"},
		{`"delay_ns":0,"loss":{"model":"random","ratio":0.5}`, "loss.model"},
		{`"delay_ns":0,"loss":{"model":"independent"}`, `loss.ratio: the field is missing`},
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
	// What was refused has changed nothing: the same ends can be joined another way.
	s.expect(`{"id":2,"op":"stats"}`, `"id":2,"ok":true`, `"partition":{"other":1,"p":0}`)
	s.expect(`{"id":3,"op":"add_link","name":"x","a":{"port":"other"},"b":{"switch":"s3"}`+delays+`}`, ok)
}

func TestFramesWithoutStamps(t *testing.T) {
	for _, reason := range []string{"operation not permitted", "--stamps read"} {
		s := startFakes(t, reason)
		s.expect(`{"id":1,"op":"add_switch","name":"s1"}`, ok)
		s.expect(`{"id":2,"op":"add_port","name":"p","pid":4242,"ifname":"e1"}`, ok)
		s.expect(`{"id":3,"op":"add_link","name":"l","a":{"port":"p"},"b":{"switch":"s1"},"a_to_b":{"delay_ns":0},`+
			`"b_to_a":{"delay_ns":0}}`, `"stamps":"read"`)
		s.expect(`{"id":4,"op":"hello"}`, `"stamps":"read","stamps_reason":"`+reason+`"`)
		s.expect(`{"id":5,"op":"stats"}`, `"stamps":"read","unmatched":0`)
	}
}

func TestSetLinkKeepsWhatIsNotGiven(t *testing.T) {
	s := startFakes(t, "")
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
		`"jitter":{"distribution":"uniform","ns":900},"loss":{"model":"independent","ratio":0.5},"seed":9,`+
		`"corruption_ratio":0.5,"aqm":{"kind":"codel"}}`,
		`"overhead_bytes":24,"queue_frames":null,"queue_bytes":5000,"jitter":{"distribution":"uniform","ns":900,`+
			`"reorder":false,"correlation_ns":9000},"loss":{"model":"independent","ratio":0.5},`,
		`"corruption_ratio":0.5,"aqm":{"kind":"codel","target_ns":5000000,`, `"seed":9,`)
	// What is held must stay possible: with a delay of 800 ns the jitter of 900 ns would be negative at times.
	change(`"a_to_b":{"delay_ns":800}`, `"error":"a_to_b.jitter.ns: got 900, allowed: 1 to 800`)
	// The direction that is right does not change either.
	change(`"a_to_b":{"delay_ns":1},"b_to_a":{"delay_ns":-1}`, `"ok":false`)
	change(`"a_to_b":{"seed":4},"b_to_a":{"delay_us":1}`, `"ok":false`)
	s.expect(`{"id":7,"op":"read_link","name":"l"}`, `"a_to_b":{"delay_ns":1000,`, `"seed":9,`)
	change(`"a_to_b":{"delay_ns":800,"overhead_bytes":null,"jitter":null,"loss":null,"queue_bytes":null,`+
		`"corruption_ratio":null,"aqm":null}`,
		`"a_to_b":{"delay_ns":800,"rate_bps":null,"overhead_bytes":0,"queue_frames":2000,`+
			`"queue_bytes":null,"jitter":null,"loss":null,"duplication_ratio":0,"corruption_ratio":0,"aqm":null,`+
			`"seed":9`)
}

// maxBytes is far more than any input makes the emulator hold.
const maxBytes = 1 << 30

// FuzzServe feeds the control connection with any bytes. Every line that is not blank has one reply, in order, a line
// of JSON, whatever the lines before it made of the emulator; then it answers as before, and its memory stays bounded.
func FuzzServe(f *testing.F) {
	f.Add([]byte("{\"id\":1,\"op\":\"hello\"}\n\n\r\n  \nnot JSON\n"))
	f.Add([]byte("{\"id\":1,\"op\":\"add_switch\",\"name\":\"s\"}\n" +
		"{\"id\":2,\"op\":\"add_port\",\"name\":\"p\",\"pid\":1,\"ifname\":\"e\"}\n" +
		"{\"id\":7,\"op\":\"set_port\",\"name\":\"p\",\"mtu\":9000}\n" +
		"{\"id\":3,\"op\":\"add_link\",\"name\":\"l\",\"a\":{\"port\":\"p\"},\"b\":{\"switch\":\"s\"}," +
		"\"a_to_b\":{\"delay_ns\":1},\"b_to_a\":{\"delay_ns\":1}}\n" +
		"{\"id\":4,\"op\":\"set_link\",\"name\":\"l\",\"a_to_b\":{\"rate_bps\":1000,\"queue_bytes\":1,\"seed\":9}}\n" +
		"{\"id\":5,\"op\":\"link_state\",\"name\":\"l\",\"up\":false}\n{\"id\":6,\"op\":\"read_link\",\"name\":\"l\"}"))
	f.Add([]byte("{\"id\":1,\"op\":\"partition\",\"sets\":[[],[\"x\"]]}\n{\"id\":1,\"op\":\"heal\"}\n" +
		"{\"id\":1,\"op\":\"stats\",\"buckets\":true}\n"))
	f.Add([]byte("{\"id\":1,\"op\":\"remove_link\",\"name\":\"l\"}\n" +
		"{\"id\":1,\"op\":\"remove_port\",\"name\":\"p\"}\n{\"id\":1,\"op\":\"remove_switch\",\"name\":\"s\"}\n"))
	f.Add(append(bytes.Repeat([]byte("x"), maxLineBytes+1), "\n{\"id\":9223372036854775808,\"op\":\"hello\"}\n"...))
	f.Add(append([]byte("\xef\xbb\xbf{\"id\":1}\x00\n"), bytes.Repeat([]byte("["), 20_000)...))
	f.Add([]byte("{\"id\":1,\"op\":\"add_switch\",\"name\":\"\\u0000\xff\"}"))
	s := startFakes(f, "")
	f.Cleanup(func() { s.t = f })
	f.Fuzz(func(t *testing.T, input []byte) {
		s.t = t
		wanted := 0
		for line := range bytes.Lines(input) {
			if len(bytes.TrimSpace(line)) > 0 || len(line) > maxLineBytes {
				wanted++
			}
		}
		got := s.answers(t, input)
		assert.That(t, len(got) == wanted, "%q: %d replies to %d lines", input, len(got), wanted)
		s.clear(t)
		var pages, resident int64
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.process.Process.Pid))
		assert.OK(t, err)
		_, problem := fmt.Sscan(string(statm), &pages, &resident)
		assert.OK(t, problem)
		held := resident * int64(os.Getpagesize())
		assert.That(t, held <= maxBytes, "%q: %d bytes are held", input, held)
	})
}

// answers sends lines and a last one of its own, and returns the replies to those before it.
func (s session) answers(t *testing.T, input []byte) (replies []answered) {
	t.Helper()
	s.id++
	last := int64(7_000_000_000_000_000 + s.id)
	go func() {
		// When this fails, no reply comes.
		_, _ = s.control.Write(fmt.Appendf(input[:len(input):len(input)], "\n{\"id\":%d,\"op\":\"heal\"}\n", last))
	}()
	for {
		line := s.next()
		var reply answered
		err := json.Unmarshal([]byte(line), &reply)
		assert.Must(t, err == nil, "%q: reply %q: %v", input, line, err)
		switch {
		case reply.Event != "":
			continue // a process that the input names has ended
		case reply.OK == (reply.Error != ""):
			t.Errorf("%q: reply %q", input, line)
		case reply.ID != nil && *reply.ID == last:
			return replies
		}
		replies = append(replies, reply)
	}
}

type answered struct {
	ID     *int64
	OK     bool
	Result json.RawMessage
	Error  string
	Event  string
}

// clear removes everything from the emulator.
func (s session) clear(t *testing.T) {
	t.Helper()
	var held struct{ Links, Ports, Switches map[string]json.RawMessage }
	stats := s.answers(t, []byte(`{"id":1,"op":"stats"}`))
	assert.Must(t, len(stats) == 1 && json.Unmarshal(stats[0].Result, &held) == nil, "stats: %+v", stats)
	var requests []byte
	for _, kind := range []struct {
		op    string
		names map[string]json.RawMessage
	}{{"remove_link", held.Links}, {"remove_port", held.Ports}, {"remove_switch", held.Switches}} {
		for name := range kind.names {
			line, err := json.Marshal(map[string]any{"id": 1, "op": kind.op, "name": name})
			assert.OK(t, err)
			requests = append(append(requests, line...), '\n')
		}
	}
	for _, reply := range s.answers(t, requests) {
		assert.That(t, reply.OK, "it cannot be removed: %s", reply.Error)
	}
}
