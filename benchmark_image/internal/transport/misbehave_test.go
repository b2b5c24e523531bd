package transport

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/store/keyvalue"
	"containernet-env/benchmark_image/internal/store/zookeeper"
	"containernet-env/benchmark_image/internal/store/zookeeper/zookeepertest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// service is any key-value service.
var service = &keyvalue.Protocol{Put: "/v0/entity?id={key}&ack=2", Get: "/v0/entity?id={key}&from=2",
	Written: []int{200, 201, 204}, Found: []int{200}, Absent: []int{404}}

// httpRequests answers each request of a connection, counted from 1, as answer writes; false ends the connection.
func httpRequests(answer func(to net.Conn, number int) bool) func(net.Conn) {
	return func(c net.Conn) {
		from := bufio.NewReader(c)
		for number := 1; ; number++ {
			request, err := http.ReadRequest(from)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, request.Body); err != nil || !answer(c, number) {
				return
			}
		}
	}
}

// says answers every request with the same text.
func says(text string) func(net.Conn) {
	return httpRequests(func(to net.Conn, _ int) bool {
		_, err := io.WriteString(to, text)
		return err == nil
	})
}

// created is a good answer to a put.
const created = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"

// reset makes the connection end with a reset when it is closed.
func reset(c net.Conn) error { return c.(*worldtest.Conn).SetLinger(0) }

// misbehaviour is what a member does to each connection, and what a load sees of it.
type misbehaviour struct {
	serve   func(net.Conn)
	want    load.Outcome // of all requests but the first ok; NotSent: any
	code    string
	text    string
	atLeast int // outcomes of that kind
	ok      int // at least
	valSize int
	clients int // 0: 8
}

// answersLate is what a request may take less time than.
const answersLate = 300 * time.Millisecond

// misbehaviours are those of members of etcd, of ZooKeeper and of a service, in a world.
func misbehaviours(w *worldtest.World) map[string]map[string]misbehaviour {
	const timeout = answersLate
	say := func(answer func(r *zookeepertest.Request) []byte) func(net.Conn) {
		return zookeepertest.RawRequests(func(c net.Conn, r *zookeepertest.Request) bool {
			_, err := c.Write(answer(r))
			return err == nil
		})
	}
	refuse := func(code int32) func(net.Conn) {
		return say(func(r *zookeepertest.Request) []byte { return zookeepertest.Answer(r.Xid, 1, code, nil) })
	}
	return map[string]map[string]misbehaviour{
		"etcd": {
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
				_ = reset(m.Conn)
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
					w.Sleep(timeout + 200*time.Millisecond)
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
						w.Sleep(10 * time.Millisecond)
					}
				}
			}, code: "DeadlineExceeded", text: "no answer within", atLeast: 4, valSize: 1 << 20},
		},
		"service": {
			"never answers": {serve: says(""), want: load.Unknown, code: "DeadlineExceeded",
				text: "no answer within 300ms", atLeast: 2},
			"answers half": {serve: says(created[:30]), want: load.Unknown, code: "DeadlineExceeded", text: "no answer within",
				atLeast: 2},
			"ends within an answer": {serve: httpRequests(func(to net.Conn, number int) bool {
				if number < 10 {
					_, _ = io.WriteString(to, created)
					return true
				}
				_, _ = io.WriteString(to, created[:30])
				return false
			}), want: load.Unknown, code: "Unavailable", text: "within an answer", atLeast: 1, ok: 50},
			"says a body is longer": {serve: httpRequests(func(to net.Conn, number int) bool {
				_, _ = io.WriteString(to, "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhell")
				return false
			}), want: load.Unknown, code: "Unavailable", text: "within an answer", atLeast: 1},
			"sends too much": {serve: says(created + "more"), want: load.NotSent, ok: 200},
			"is done after each answer": {serve: httpRequests(func(to net.Conn, _ int) bool {
				_, _ = io.WriteString(to, "HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
				return false
			}), want: load.NotSent, ok: 200},
			"ends bodies with the connection": {serve: httpRequests(func(to net.Conn, _ int) bool {
				_, _ = io.WriteString(to, "HTTP/1.1 200 OK\r\n\r\nwell")
				return false
			}), want: load.NotSent, ok: 200},
			"closes connections that rest": {serve: func(c net.Conn) {
				_ = c.SetReadDeadline(w.Wall().Add(20 * time.Millisecond))
				httpRequests(func(to net.Conn, number int) bool {
					_, _ = io.WriteString(to, created)
					return number < 20
				})(c)
			}, want: load.Unknown, code: "Unavailable", ok: 20},
			"resets the connection": {serve: httpRequests(func(to net.Conn, _ int) bool {
				_ = reset(to)
				return false
			}), want: load.Unknown, code: "Unavailable", atLeast: 1},
			"sends a malformed chunk": {serve: says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
				want: load.Unknown, code: "Unavailable", text: "malformed chunk", atLeast: 1},
			"floods with headers": {serve: says("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 20_000)),
				want: load.Unknown, code: "Unavailable", text: "a header of more than", atLeast: 1},
			"never ends a body": {serve: httpRequests(func(to net.Conn, _ int) bool {
				_, err := io.WriteString(to, "HTTP/1.1 200 OK\r\n\r\n")
				for some := bytes.Repeat([]byte("x"), 1<<16); err == nil; {
					_, err = to.Write(some)
				}
				return false
			}), want: load.Unknown, code: "Unavailable", text: "an answer of more than", atLeast: 1},
			"speaks something else": {serve: says("-ERR unknown command\r\n"), want: load.Unknown, code: "Unavailable",
				text: "does not speak HTTP/1.1", atLeast: 1},
			"answers late": {serve: func(c net.Conn) {
				w.Sleep(timeout + 100*time.Millisecond)
				says(created)(c)
			}, want: load.Unknown, code: "DeadlineExceeded", text: "no answer within", atLeast: 1},
			"says that there are too many requests": {serve: says("HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nslow"),
				want: load.Failed, code: "ResourceExhausted", text: "HTTP status 429: slow", atLeast: 200},
			"says that not enough replicas answered": {serve: says("HTTP/1.1 504 Timeout\r\nContent-Length: 0\r\n\r\n"),
				want: load.Unknown, code: "DeadlineExceeded", text: "HTTP status 504", atLeast: 200},
			"redirects": {serve: says("HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
				want: load.Failed, code: "Unknown", text: "HTTP status 301", atLeast: 200},
			"does not read": {serve: func(c net.Conn) { c.(*worldtest.Conn).Hold() }, want: load.Failed, code: "DeadlineExceeded", text: "no answer within", atLeast: 2, valSize: 8 << 20},
			"refuses while it reads": {serve: func(c net.Conn) {
				some := make([]byte, 1000)
				if _, err := io.ReadFull(c, some); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 413 Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					_, _ = io.Copy(io.Discard, c)
				}
			}, want: load.Failed, code: "InvalidArgument", text: "HTTP status 413", atLeast: 5, valSize: 8 << 20},
		},
		"zookeeper": {
			"never answers": {serve: zookeepertest.RawRequests(func(net.Conn, *zookeepertest.Request) bool { return true }),
				want: load.Unknown, code: "DeadlineExceeded", text: "no answer within 300ms", atLeast: 8},
			"half an answer": {serve: say(func(r *zookeepertest.Request) []byte { return r.Written(1)[:9] }), want: load.Unknown,
				code: "DeadlineExceeded", text: "no answer within 300ms", atLeast: 8},
			"does not read": {serve: func(c net.Conn) {
				if zookeepertest.Greet(c) == nil {
					c.(*worldtest.Conn).Hold()
				}
			}, want: load.Unknown, code: "DeadlineExceeded", text: "no answer", atLeast: 6, valSize: 1_000_000},
			"closes": {serve: zookeepertest.RawRequests(func(c net.Conn, r *zookeepertest.Request) bool {
				if r.Xid > 3 {
					return false
				}
				_, err := c.Write(r.Written(1))
				return err == nil
			}), want: load.Unknown, code: "Unavailable", text: "closed the connection, and with it the session",
				atLeast: 1, ok: 3},
			"closes within an answer": {serve: zookeepertest.RawRequests(func(c net.Conn, r *zookeepertest.Request) bool {
				_, _ = c.Write(r.Written(1)[:9])
				return false
			}), want: load.Unknown, code: "Unavailable", text: "within an answer", atLeast: 1, clients: 1},
			"wrong xid": {serve: say(func(r *zookeepertest.Request) []byte {
				r.Xid++
				return r.Written(1)
			}), want: load.Unknown, code: "Unavailable", text: "an answer with xid", atLeast: 1},
			"oversize": {serve: say(func(r *zookeepertest.Request) []byte { return []byte{0x7f, 0, 0, 0} }), want: load.Unknown,
				code: "Unavailable", text: "a packet of 2130706432 bytes", atLeast: 1},
			"no authorization": {serve: refuse(zookeepertest.NoAuth), want: load.Failed, code: "PermissionDenied",
				text: "not authorized", atLeast: 8},
			"throttles": {serve: refuse(zookeepertest.Throttled), want: load.Failed, code: "ResourceExhausted",
				text: "throttled", atLeast: 8},
			"system error": {serve: refuse(-1), want: load.Unknown, code: "Internal", text: "system error", atLeast: 8},
			"session expired": {serve: refuse(zookeepertest.SessionExpired), want: load.Failed, code: "Unavailable",
				text: "session expired", atLeast: 1},
		},
	}
}

// TestMembersThatMisbehave holds that a run ends, with the right outcomes.
func TestMembersThatMisbehave(t *testing.T) {
	for protocol, cases := range misbehaviours(nil) {
		for name := range cases {
			t.Run(protocol+" "+name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *worldtest.World) { misbehave(t, w, protocol, name) })
			})
		}
	}
}

func misbehave(t *testing.T, w *worldtest.World, protocol, name string) {
	c := misbehaviours(w)[protocol][name]
	endpoint := w.Serve(c.serve)
	protocols := map[string]store.Protocol{"etcd": etcd.Protocol{}, "service": service, "zookeeper": zookeeper.New("")}
	transport, err := openWith(t, w, protocols[protocol], Options{Endpoints: []string{endpoint}, Conns: 2,
		DialTimeout: 600 * time.Millisecond, RequestTimeout: answersLate, LostTimeout: 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	const total = 200
	o := puts(w, total, cmp.Or(c.clients, 8))
	o.Stall = 3 * answersLate
	o.Targeter = &load.Puts{KeySize: 4, Order: keys.NewOrder(total, true, 0), Values: keys.NewValues(max(c.valSize, 8), 0)}
	result := load.NewRun(o).Attack(t.Context(), transport)
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
	// While a connection is lost, requests for it fail; those that wait for one fail at their deadlines.
	lost := c.code == "Unavailable" || c.code == "DeadlineExceeded"
	if wanted < c.atLeast || ok < c.ok || others > 0 && !lost || matching < c.atLeast {
		t.Errorf("%d ok, %d as wanted, %d others: %v, reason %q", ok, wanted, others, result.Errors, result.Reason)
	}
}
