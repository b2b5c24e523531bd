package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// TestMembersThatMisbehave holds that a run ends in time, with the right outcomes.
func TestMembersThatMisbehave(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	for name, c := range map[string]struct {
		serve   func(net.Conn)
		want    load.Outcome // of all requests but the first ok
		code    string
		text    string
		atLeast int // outcomes of that kind
		ok      int // at least
		valSize int
	}{
		"never answers": {serve: etcdtest.RawRequests(func(*etcdtest.Raw, uint32) bool { return true }), want: load.Unknown,
			code: "DeadlineExceeded", text: "no answer within 300ms", atLeast: 8},
		"GOAWAY at once": {serve: func(c net.Conn) {
			if m, err := etcdtest.Greet(c); err == nil && m.Framer.WriteGoAway(0, http2.ErrCodeNo, nil) == nil {
				_, _ = io.Copy(io.Discard, c)
			}
		}, want: load.Failed, code: "Unavailable", text: "closes", atLeast: 8},
		"GOAWAY instead of answers": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, _ uint32) bool {
			_ = m.Framer.WriteGoAway(0, http2.ErrCodeNo, nil)
			return true
		}), want: load.Failed, code: "Unavailable", text: "closes the connection: NO_ERROR", atLeast: 8},
		"closes within a frame": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			if stream < 40 {
				return m.Answer(stream) == nil
			}
			_, _ = m.Write([]byte{0, 0, 20, 0, 0, 0, 0, 0, 1, 'x'})
			return false
		}), want: load.Unknown, code: "Unavailable", text: "", atLeast: 1, ok: 19},
		"resets the connection": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			_ = m.Conn.(*net.TCPConn).SetLinger(0)
			return false
		}), want: load.Unknown, code: "Unavailable", text: "", atLeast: 1},
		"breaks the protocol": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			_ = m.Framer.WritePing(false, [8]byte{})
			_ = m.Framer.WriteRawFrame(http2.FrameSettings, 0, 7, nil)
			return true
		}), want: load.Unknown, code: "Unavailable", text: "breaks HTTP/2: SETTINGS on a stream", atLeast: 1},
		"sends a million empty CONTINUATION frames": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			const some = 1000
			frame := []byte{0, 0, 0, byte(http2.FrameContinuation), 0}
			empty := bytes.Repeat(binary.BigEndian.AppendUint32(frame, stream), some)
			err := m.Framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream})
			for range 1_000_000 / some {
				if err == nil {
					_, err = m.Write(empty)
				}
			}
			return err == nil
		}), want: load.Unknown, code: "Unavailable", atLeast: 1,
			text: "breaks HTTP/2: a header block of more than 1024 CONTINUATION frames"},
		"refuses": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			return m.Framer.WriteRSTStream(stream, http2.ErrCodeRefusedStream) == nil
		}), want: load.Failed, code: "Unavailable", text: "REFUSED_STREAM", atLeast: 200},
		"allows no request": {serve: etcdtest.RawRequests(func(*etcdtest.Raw, uint32) bool { return true },
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}),
			want: load.Failed, code: "DeadlineExceeded", text: "no answer within", atLeast: 8},
		"opens no window": {serve: etcdtest.RawRequests(func(*etcdtest.Raw, uint32) bool { return true },
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}),
			want: load.Failed, code: "DeadlineExceeded", text: "no answer within", atLeast: 8},
		"answers late": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			if stream == 1 {
				time.Sleep(timeout + 200*time.Millisecond)
			}
			return m.Answer(stream) == nil
		}), want: load.Unknown, code: "DeadlineExceeded", text: "no answer within", atLeast: 1, ok: 150},
		"resets as too much": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			return m.Framer.WriteRSTStream(stream, http2.ErrCodeEnhanceYourCalm) == nil
		}), want: load.Unknown, code: "ResourceExhausted", text: "ENHANCE_YOUR_CALM", atLeast: 200},
		"resets as not secure": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			return m.Framer.WriteRSTStream(stream, http2.ErrCodeInadequateSecurity) == nil
		}), want: load.Unknown, code: "PermissionDenied", text: "INADEQUATE_SECURITY", atLeast: 200},
		"long trailers after an answer": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			fields := []string{"grpc-status", "0"}
			for range 25 {
				fields = append(fields, "x", strings.Repeat("z", 3000))
			}
			return m.Begin(stream) == nil && m.Fields(stream, true, fields...) == nil
		}), want: load.Unknown, code: "ResourceExhausted", text: "header fields of more than", atLeast: 200},
		"says that there are too many requests": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			return m.Refuse(stream, "8", "etcdserver: too many requests") == nil
		}), want: load.Failed, code: "ResourceExhausted", text: "too many", atLeast: 200},
		"says that its space is used up": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			return m.Refuse(stream, "8", "etcdserver: mvcc: database space exceeded") == nil
		}), want: load.Unknown, code: "ResourceExhausted", text: "space exceeded", atLeast: 200},
		"refuses the permission": {serve: etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			return m.Refuse(stream, "7", "etcdserver: permission denied") == nil
		}), want: load.Failed, code: "PermissionDenied", text: "permission denied", atLeast: 200},
		"does not read": {serve: func(c net.Conn) {
			m, err := etcdtest.Greet(c, http2.Setting{ID: http2.SettingInitialWindowSize, Val: math.MaxInt32})
			if err == nil && m.Framer.WriteWindowUpdate(0, math.MaxInt32-65535) == nil {
				for m.Framer.WritePing(false, [8]byte{}) == nil { // until the test closes the connection
					time.Sleep(10 * time.Millisecond)
				}
			}
		}, code: "DeadlineExceeded", text: "no answer within", atLeast: 4, valSize: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			endpoint := etcdtest.RawMember(t, c.serve)
			transport, err := Open(ctx, etcd.Protocol{},
				Options{Endpoints: []string{endpoint}, Conns: 2, DialTimeout: 600 * time.Millisecond, RequestTimeout: timeout,
					LostTimeout: 600 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer transport.Close()
			const total = 200
			o := load.Options{
				Total: total, Clients: 8, Pacer: load.ClosedLoop{Total: total}, Stall: 3 * timeout,
				Targeter: &load.Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0),
					Values: keys.NewValues(max(c.valSize, 8), 0)},
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
	endpoint := cannedMember(t)
	transport := openFor(t, Options{Endpoints: []string{endpoint}, Conns: 4})
	const total = 50_000
	order, values := keys.NewOrder(1, true, 0), keys.NewValues(len(cannedValue), 0)
	reads := puts(total, 40)
	reads.Targeter = &load.Reads{KeySize: 1, Order: order}
	verified := reads
	verified.Targeter = &load.Reads{KeySize: 1, Order: order, Verify: values}
	open := puts(total, 40)
	open.Pacer = load.NewOpenLoop(load.Constant(100_000), total, 0, total)
	for i, o := range []load.Options{puts(total, 40), puts(total, 40), reads, verified, open} {
		n, result := countMallocs(t, transport, o)
		if result.Failed != 0 {
			t.Fatal(result.Errors)
		}
		t.Logf("load %d: %d allocations for %d requests", i, n, total)
		if n > total/50 {
			t.Errorf("load %d: %d allocations for %d requests", i, n, total)
		}
	}
}

// countMallocs runs a load and counts what the process allocates meanwhile.
func countMallocs(t *testing.T, transport *Transport, o load.Options) (n uint64, result load.Result) {
	run := load.NewRun(o)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	result = run.Attack(t.Context(), transport)
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, result
}

// BenchmarkSerializableRanges drives one client process's loop as fast as it goes: the member, in the same process,
// does no more than to answer.
func BenchmarkSerializableRanges(b *testing.B) {
	const least, settled = 100_000, 500_000
	for _, c := range []struct{ conns, clients int }{{10, 100}, {100, 1000}, {3000, 3000}} {
		b.Run(fmt.Sprintf("%d/%d", c.conns, c.clients), func(b *testing.B) {
			transport := openFor(b, Options{Endpoints: []string{cannedMember(b)}, Conns: c.conns})
			reads := puts(b.N, c.clients)
			reads.Targeter = &load.Reads{KeySize: 1, Order: keys.NewOrder(1, true, 0),
				Span: load.Request{Serializable: true}}
			b.ResetTimer()
			result := load.NewRun(reads).Attack(b.Context(), transport)
			if rate := float64(b.N) / result.Took.Seconds(); result.Failed != 0 {
				b.Error(result.Errors)
			} else if b.ReportMetric(rate, "ranges/s"); rate < least && b.N > settled && c.conns < c.clients {
				b.Errorf("%.0f ranges/s", rate)
			}
		})
	}
}

// cannedMember answers every request with the same bytes, and never makes a client wait for a window.
func cannedMember(t testing.TB) (endpoint string) {
	return etcdtest.RawMember(t, func(c net.Conn) {
		m, err := etcdtest.Greet(c, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		if err != nil || m.Framer.WriteWindowUpdate(0, 1<<30) != nil || m.Framer.WriteWindowUpdate(0, 1<<29) != nil {
			return
		}
		canned(c)
	})
}

// cannedValue is what canned answers hold. A put's answer has no such field.
var cannedValue = keys.NewValues(8, 0).At(0)

// canned answers every complete request with the same bytes, but for the stream.
func canned(c net.Conn) {
	const data, ends = 0, 1
	in, out := make([]byte, 0, 1<<16), make([]byte, 0, 1<<16)
	answer := append([]byte{0x0a, 2, 0x18, 7, 0x12, byte(5 + len(cannedValue)), 0x0a, 1, '0', 0x2a,
		byte(len(cannedValue))}, cannedValue...)
	answer = append(answer, 0x20, 1)
	answer = append([]byte{0, 0, 0, 0, byte(len(answer))}, answer...)
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
				out = etcdtest.AppendAnswer(out, stream, first, answer, len(answer))
				first = false
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
	endpoint := etcdtest.RawMember(t, etcdtest.RawRequests(func(m *etcdtest.Raw,
		stream uint32) bool {
		return m.Answer(stream) == nil
	}))
	count := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(files)
	}
	warm := openFor(t, Options{Endpoints: []string{endpoint}, Conns: 1})
	warm.Close()
	files, routines := count(), runtime.NumGoroutine()
	for range 5 {
		transport := openFor(t, Options{Endpoints: []string{endpoint}, Conns: 20})
		if result := load.NewRun(puts(100, 20)).Attack(t.Context(), transport); result.Failed != 0 {
			t.Error(result.Errors)
		}
		transport.Close()
	}
	waitFor(t, "files and goroutines to go", func() bool {
		return count() <= files+2 &&
			runtime.NumGoroutine() <= routines+2
	})
}

// TestRequestsThatWaitedForTheirTurnAreNotSent ends runs early while the member takes no request, or not as a whole.
func TestRequestsThatWaitedForTheirTurnAreNotSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setting http2.Setting
		want    load.Outcome
	}{
		"no request is allowed": {http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 0}, load.NotSent},
		"no window is open":     {http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}, load.NotSent},
		"all of it is taken":    {http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}, load.Abandoned},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait
			endpoint := etcdtest.RawMember(t, etcdtest.RawRequests(func(*etcdtest.Raw, uint32) bool { return true }, c.setting))
			transport, err := Open(t.Context(), etcd.Protocol{}, Options{
				Endpoints: []string{endpoint}, Conns: 1, DialTimeout: 300 * time.Millisecond, RequestTimeout: time.Minute,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer transport.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			for i, record := range load.NewRun(puts(5, 5)).Attack(ctx, transport).Records {
				if record.Outcome() != c.want {
					t.Errorf("request %d has the outcome %d, want %d", i, record.Outcome(), c.want)
				}
			}
		})
	}
}

// TestAConnectionThatFellSilentIsGivenUp has a link that drops everything after a while.
func TestAConnectionThatFellSilentIsGivenUp(t *testing.T) {
	t.Parallel()
	var opened, answered atomic.Int64
	endpoint := etcdtest.RawMember(t, func(c net.Conn) {
		cut := opened.Add(1) < 2
		etcdtest.RawRequests(func(m *etcdtest.Raw, stream uint32) bool {
			if cut && stream > 100 {
				etcdtest.Cut(t, m.Conn)
				return true
			}
			answered.Add(1)
			return m.Answer(stream) == nil
		})(c)
	})
	transport := openFor(t, Options{Endpoints: []string{endpoint}, Conns: 1, RequestTimeout: 200 * time.Millisecond})
	run := load.NewRun(puts(1_000_000, 2))
	ended := make(chan load.Result)
	start := time.Now()
	go func() { ended <- run.Attack(t.Context(), transport) }()
	waitFor(t, "answers on another connection", func() bool { return opened.Load() > 1 && answered.Load() > 200 })
	took := time.Since(start)
	run.Stop("enough")
	// TCP itself would try for a quarter of an hour.
	if result := <-ended; result.Failed < 2 || took < 200*time.Millisecond || took > 5*time.Second {
		t.Errorf("%d requests failed; after %v there was another connection", result.Failed, took)
	}
}
