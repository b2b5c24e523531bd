package direct

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"containernet-env/benchmark_image/internal/etcd"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
)

// rawMember serves each connection with a function, until the test ends.
func rawMember(t *testing.T, serve func(net.Conn)) (endpoint string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, connection)
			mu.Unlock()
			serving.Go(func() {
				serve(connection)
				_ = connection.Close() // the client may have gone already
			})
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		for _, connection := range open {
			_ = connection.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return listener.Addr().String()
}

// member is a connection of a raw member.
type member struct {
	net.Conn
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
}

// greet takes the preface and answers it.
func greet(c net.Conn, settings ...http2.Setting) (*member, error) {
	if _, err := io.CopyN(io.Discard, c, int64(len(http2.ClientPreface))); err != nil {
		return nil, err
	}
	m := &member{Conn: c, framer: http2.NewFramer(c, c)}
	m.encoder = hpack.NewEncoder(&m.block)
	return m, m.framer.WriteSettings(settings...)
}

// request gives the stream of the next request that is complete.
func (m *member) request() (stream uint32, err error) {
	for {
		f, err := m.framer.ReadFrame()
		if err != nil {
			return 0, err
		}
		if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
			return d.StreamID, nil
		}
	}
}

func (m *member) fields(stream uint32, ends bool, fields ...string) error {
	m.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := m.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	return m.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: m.block.Bytes(), EndHeaders: true, EndStream: ends})
}

func (m *member) answer(stream uint32) error {
	return errors.Join(
		m.fields(stream, false, ":status", "200", "content-type", "application/grpc"),
		m.framer.WriteData(stream, false, []byte{0, 0, 0, 0, 4, 0x0a, 2, 0x18, 7}),
		m.fields(stream, true, "grpc-status", "0"),
	)
}

// requests serves each request of a connection with a function, until it says that this was enough.
func requests(serve func(m *member, stream uint32) bool, settings ...http2.Setting) func(net.Conn) {
	return func(c net.Conn) {
		m, err := greet(c, settings...)
		for err == nil {
			var stream uint32
			if stream, err = m.request(); err == nil && !serve(m, stream) {
				return
			}
		}
	}
}

// TestMembersThatMisbehave holds that a run ends in time, with the right outcomes.
func TestMembersThatMisbehave(t *testing.T) {
	const timeout = 300 * time.Millisecond
	var over chan struct{} // closed at the end of each case
	for name, c := range map[string]struct {
		serve   func(net.Conn)
		want    load.Outcome // of all requests but the first ok
		code    string
		text    string
		atLeast int // outcomes of that kind
		ok      int // at least
		valSize int
	}{
		"never answers": {serve: requests(func(*member, uint32) bool { return true }), want: load.Unknown, code: "DeadlineExceeded", text: "no answer within 300ms", atLeast: 8},
		"GOAWAY at once": {serve: func(c net.Conn) {
			if m, err := greet(c); err == nil && m.framer.WriteGoAway(0, http2.ErrCodeNo, nil) == nil {
				_, _ = io.Copy(io.Discard, c)
			}
		}, want: load.Failed, code: "Unavailable", text: "closes", atLeast: 8},
		"GOAWAY instead of answers": {serve: requests(func(m *member, _ uint32) bool {
			_ = m.framer.WriteGoAway(0, http2.ErrCodeNo, nil)
			return true
		}), want: load.Failed, code: "Unavailable", text: "closes the connection: NO_ERROR", atLeast: 8},
		"closes within a frame": {serve: requests(func(m *member, stream uint32) bool {
			if stream < 40 {
				return m.answer(stream) == nil
			}
			_, _ = m.Write([]byte{0, 0, 20, 0, 0, 0, 0, 0, 1, 'x'})
			return false
		}), want: load.Unknown, code: "Unavailable", text: "", atLeast: 1, ok: 19},
		"resets the connection": {serve: requests(func(m *member, stream uint32) bool {
			_ = m.Conn.(*net.TCPConn).SetLinger(0)
			return false
		}), want: load.Unknown, code: "Unavailable", text: "", atLeast: 1},
		"breaks the protocol": {serve: requests(func(m *member, stream uint32) bool {
			_ = m.framer.WritePing(false, [8]byte{})
			_ = m.framer.WriteRawFrame(http2.FrameSettings, 0, 7, nil)
			return true
		}), want: load.Unknown, code: "Unavailable", text: "breaks HTTP/2: SETTINGS on a stream", atLeast: 1},
		"refuses": {serve: requests(func(m *member, stream uint32) bool {
			return m.framer.WriteRSTStream(stream, http2.ErrCodeRefusedStream) == nil
		}), want: load.Failed, code: "Unavailable", text: "REFUSED_STREAM", atLeast: 200},
		"allows no request": {serve: requests(func(*member, uint32) bool { return true }, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}),
			want: load.Failed, code: "DeadlineExceeded", text: "no answer within", atLeast: 8},
		"opens no window": {serve: requests(func(*member, uint32) bool { return true }, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}),
			want: load.Failed, code: "DeadlineExceeded", text: "no answer within", atLeast: 8},
		"answers late": {serve: requests(func(m *member, stream uint32) bool {
			if stream == 1 {
				time.Sleep(timeout + 200*time.Millisecond)
			}
			return m.answer(stream) == nil
		}), want: load.Unknown, code: "DeadlineExceeded", text: "no answer within", atLeast: 1, ok: 150},
		"does not read": {serve: func(c net.Conn) {
			m, err := greet(c, http2.Setting{ID: http2.SettingInitialWindowSize, Val: math.MaxInt32})
			if err == nil && m.framer.WriteWindowUpdate(0, math.MaxInt32-65535) == nil {
				<-over
			}
		}, code: "DeadlineExceeded", text: "no answer within", atLeast: 4, valSize: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			over = make(chan struct{})
			endpoint := rawMember(t, c.serve)
			t.Cleanup(func() { close(over) })
			transport, err := Open(ctx, etcd.Options{Endpoints: []string{endpoint}, Conns: 2, DialTimeout: 600 * time.Millisecond, RequestTimeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			defer transport.Close()
			const total = 200
			o := load.Options{
				Total: total, Clients: 8, Pacer: load.ClosedLoop{Total: total}, Stall: 3 * timeout,
				Targeter: &load.Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0), Values: keys.NewValues(max(c.valSize, 8), 0)},
			}
			start := time.Now()
			result := load.NewRun(o).Attack(ctx, transport)
			if took := time.Since(start); took > 8*time.Second || ctx.Err() != nil {
				t.Errorf("the run took %v", took)
			}
			ok, wanted, others := 0, 0, 0
			for _, record := range result.Records {
				switch {
				case record.OK():
					ok++
				case record.Done() && (record.Outcome() == c.want || c.want == load.NotSent) && record.Code().String() == c.code:
					wanted++
				case record.Done():
					others++
				}
			}
			matching := 0
			for text, n := range result.Errors {
				if strings.HasPrefix(text, endpoint+": "+c.code+": ") && strings.Contains(text, c.text) {
					matching += n
				}
			}
			// While a connection is lost, requests for it fail.
			lost := c.want == load.Unknown && c.code == "Unavailable"
			if wanted < c.atLeast || ok < c.ok || others > 0 && !lost || matching < c.atLeast {
				t.Errorf("%d ok, %d as wanted, %d others: %v, reason %q", ok, wanted, others, result.Errors, result.Reason)
			}
		})
	}
}

// TestRequestsDoNotAllocate counts what the whole process allocates while a member answers from memory.
func TestRequestsDoNotAllocate(t *testing.T) {
	endpoint := rawMember(t, func(c net.Conn) {
		m, err := greet(c, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		if err != nil || m.framer.WriteWindowUpdate(0, 1<<30) != nil || m.framer.WriteWindowUpdate(0, 1<<29) != nil {
			return
		}
		canned(c)
	})
	transport := openFor(t, etcd.Options{Endpoints: []string{endpoint}, Conns: 4})
	for _, o := range []load.Options{puts(100_000, 40), puts(100_000, 40)} {
		run := load.NewRun(o)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		result := run.Attack(t.Context(), transport)
		runtime.ReadMemStats(&after)
		if result.Failed != 0 {
			t.Fatal(result.Errors)
		}
		if n := after.Mallocs - before.Mallocs; n > 2000 {
			t.Errorf("%d allocations for 100000 requests", n)
		}
	}
}

// canned answers every complete request with the same bytes, but for the stream.
func canned(c net.Conn) {
	const headers, data, ends = 1, 0, 1
	in, out := make([]byte, 0, 1<<16), make([]byte, 0, 1<<16)
	frame := func(kind, flags byte, stream uint32, payload ...byte) {
		out = append(out, 0, 0, byte(len(payload)), kind, flags)
		out = append(binary.BigEndian.AppendUint32(out, stream), payload...)
	}
	first := true
	for {
		n, err := c.Read(in[len(in):cap(in)])
		if err != nil {
			return
		}
		in, out = in[:len(in)+n], out[:0]
		rest := in
		for len(rest) >= 9 {
			length := 9 + (int(rest[0])<<16 | int(rest[1])<<8 | int(rest[2]))
			if len(rest) < length {
				break
			}
			if stream := binary.BigEndian.Uint32(rest[5:]); rest[3] == data && rest[4]&ends != 0 {
				if first { // puts the fields into the table
					first = false
					block := append([]byte{0x88, 0x40 | 31, 16}, "application/grpc"...)
					frame(headers, 4, stream, block...)
					frame(data, 0, stream, 0, 0, 0, 0, 4, 0x0a, 2, 0x18, 7)
					block = append(append([]byte{0x40, 11}, "grpc-status"...), 1, '0')
					frame(headers, 5, stream, block...)
				} else {
					frame(headers, 4, stream, 0x88, 0x80|63)
					frame(data, 0, stream, 0, 0, 0, 0, 4, 0x0a, 2, 0x18, 7)
					frame(headers, 5, stream, 0x80|62)
				}
			}
			rest = rest[length:]
		}
		in = in[:copy(in[:cap(in)], rest)]
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

func TestCloseLeavesNothingOpen(t *testing.T) {
	endpoint := rawMember(t, requests(func(m *member, stream uint32) bool { return m.answer(stream) == nil }))
	count := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(files)
	}
	warm := openFor(t, etcd.Options{Endpoints: []string{endpoint}, Conns: 1})
	warm.Close()
	files, routines := count(), runtime.NumGoroutine()
	for range 5 {
		transport := openFor(t, etcd.Options{Endpoints: []string{endpoint}, Conns: 20})
		if result := load.NewRun(puts(100, 20)).Attack(t.Context(), transport); result.Failed != 0 {
			t.Error(result.Errors)
		}
		transport.Close()
	}
	waitFor(t, "files and goroutines to go", func() bool { return count() <= files+2 && runtime.NumGoroutine() <= routines+2 })
}
