//go:build plumbing

package emulator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"containernet-env/link_emulator/device"
	"containernet-env/link_emulator/hang"
)

// asEmulator makes the test program an emulator on fake devices that is controlled by its standard input. In the
// process of the tests it would not do: there the fuzzer stops all goroutines at times, which waits for the data thread
// for ever.
const asEmulator = "TEST_AS_EMULATOR"

func TestMain(m *testing.M) {
	if os.Getenv(asEmulator) != "" {
		os.Exit(serveFakes())
	}
	os.Exit(m.Run())
}

func serveFakes() int {
	var far io.Closer
	options := fakes(func(opened io.Closer) { far = opened })
	open := options.OpenTap
	options.OpenTap = func(spec device.TapSpec) (device.Device, error) {
		near, err := open(spec)
		if err != nil {
			return nil, err
		}
		return &pair{near, far}, nil
	}
	options.Failed = func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	e, err := Start(options)
	if err == nil {
		err = e.Serve(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
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
	self, err := os.Executable()
	must(f, err)
	c := child{command: exec.Command(self)}
	c.command.Env = append(os.Environ(), asEmulator+"=1")
	c.command.Stderr = os.Stderr
	if c.requests, err = c.command.StdinPipe(); err != nil {
		f.Fatal(err)
	}
	replies, err := c.command.StdoutPipe()
	must(f, err)
	c.output, c.lines = replies.(*os.File), bufio.NewReader(replies)
	must(f, c.command.Start())
	f.Cleanup(func() {
		c.requests.Close()
		if err := c.command.Wait(); err != nil {
			f.Errorf("the emulator ended with %v", err)
		}
	})
	f.Fuzz(func(t *testing.T, input []byte) {
		wanted := 0
		for line := range bytes.Lines(input) {
			if len(bytes.TrimSpace(line)) > 0 || len(line) > maxLineBytes {
				wanted++
			}
		}
		if got := c.ask(t, input); len(got) != wanted {
			t.Errorf("%q: %d replies to %d lines", input, len(got), wanted)
		}
		c.clear(t)
		var pages, resident int64
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.command.Process.Pid))
		must(t, err)
		if _, err := fmt.Sscan(string(statm), &pages, &resident); err != nil {
			t.Fatal(err)
		}
		if held := resident * int64(os.Getpagesize()); held > maxBytes {
			t.Errorf("%q: %d bytes are held", input, held)
		}
	})
}

// child is an emulator in a process of its own.
type child struct {
	command  *exec.Cmd
	requests io.WriteCloser
	output   *os.File
	lines    *bufio.Reader
	asked    int64
}

type answered struct {
	ID     *int64
	OK     bool
	Result json.RawMessage
	Error  string
	Event  string
}

// ask sends lines and a last one of its own, and returns the replies to those before it.
func (c *child) ask(t *testing.T, input []byte) (replies []answered) {
	t.Helper()
	c.asked++
	last := 7_000_000_000_000_000 + c.asked
	go func() {
		// When this fails, no reply comes.
		_, _ = c.requests.Write(fmt.Appendf(input[:len(input):len(input)], "\n{\"id\":%d,\"op\":\"heal\"}\n", last))
	}()
	must(t, c.output.SetReadDeadline(hang.Until()))
	for {
		line, err := c.lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%q: after %d replies: %v", input, len(replies), err)
		}
		var reply answered
		if err := json.Unmarshal(line, &reply); err != nil {
			t.Fatalf("%q: reply %q: %v", input, line, err)
		}
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

// clear removes everything from the emulator.
func (c *child) clear(t *testing.T) {
	t.Helper()
	var held struct{ Links, Ports, Switches map[string]json.RawMessage }
	stats := c.ask(t, []byte(`{"id":1,"op":"stats"}`))
	if len(stats) != 1 || json.Unmarshal(stats[0].Result, &held) != nil {
		t.Fatalf("stats: %+v", stats)
	}
	var requests []byte
	for _, kind := range []struct {
		op    string
		names map[string]json.RawMessage
	}{{"remove_link", held.Links}, {"remove_port", held.Ports}, {"remove_switch", held.Switches}} {
		for name := range kind.names {
			line, err := json.Marshal(map[string]any{"id": 1, "op": kind.op, "name": name})
			must(t, err)
			requests = append(append(requests, line...), '\n')
		}
	}
	for _, reply := range c.ask(t, requests) {
		if !reply.OK {
			t.Errorf("it cannot be removed: %s", reply.Error)
		}
	}
}
