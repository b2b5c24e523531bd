package transport

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/store/zookeeper"
	"containernet-env/benchmark_image/internal/store/zookeeper/zookeepertest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

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

// says answers every request with the same text, and ends the connection if it is the last one.
func says(text string, last bool) func(net.Conn) {
	return httpRequests(func(to net.Conn, _ int) bool {
		_, err := io.WriteString(to, text)
		return err == nil && !last
	})
}

func status(line, body string) func(net.Conn) {
	return says(fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", line, len(body), body), false)
}

// created is a good answer to a put.
const created = "HTTP/1.1 201 ?\r\nContent-Length: 0\r\n\r\n"

// answers has a member of etcd answer the requests of a connection, until it is false.
type answers = func(m *etcdtest.Raw, stream uint32) bool

func never(*etcdtest.Raw, uint32) bool { return true }

func streamReset(code http2.ErrCode) answers {
	return func(m *etcdtest.Raw, stream uint32) bool { return m.Framer.WriteRSTStream(stream, code) == nil }
}

func refuses(code, text string) answers {
	return func(m *etcdtest.Raw, stream uint32) bool { return m.Refuse(stream, code, text) == nil }
}

// session answers requests of ZooKeeper.
func session(answer func(r *zookeepertest.Request) []byte) func(net.Conn) {
	return zookeepertest.RawRequests(func(c net.Conn, r *zookeepertest.Request) bool {
		_, err := c.Write(answer(r))
		return err == nil
	})
}

func errorCode(code int32) func(net.Conn) {
	return session(func(r *zookeepertest.Request) []byte { return zookeepertest.Answer(r.Xid, 1, code, nil) })
}

// misbehaviour is what a member does to each connection, and what 200 puts see of it.
type misbehaviour struct {
	serve   func(net.Conn)
	outcome load.Outcome // of those that are not ok; NotSent: any
	failure string       // its code, and the text in it
	atLeast int          // outcomes of that kind
	least   int          // of those that are ok
	valSize int          // 0: 8
	clients int          // 0: 8
}

func sees(serve func(net.Conn), outcome load.Outcome, failure string, atLeast int) misbehaviour {
	return misbehaviour{serve: serve, outcome: outcome, failure: failure, atLeast: atLeast}
}

func (m misbehaviour) ok(least int) misbehaviour   { m.least = least; return m }
func (m misbehaviour) of(valSize int) misbehaviour { m.valSize = valSize; return m }
func (m misbehaviour) by(clients int) misbehaviour { m.clients = clients; return m }

// answersLate is what a request may take less time than.
const answersLate = 300 * time.Millisecond

// misbehaviours are those of members of each store, in a world. Packages h2, http1 and zookeeper test what breaks
// their protocols.
func misbehaviours(w *worldtest.World) map[string]map[string]misbehaviour {
	const failed, unknown, all = load.Failed, load.Unknown, load.NotSent
	const late, denied, lost = "DeadlineExceeded: no answer within 300ms", "PermissionDenied: ", "Unavailable: "
	raw, tooMuch := etcdtest.RawRequests, "ResourceExhausted: "
	setting := func(id http2.SettingID, value uint32) http2.Setting { return http2.Setting{ID: id, Val: value} }
	return map[string]map[string]misbehaviour{
		"etcd": {
			"never answers": sees(raw(never), unknown, late, 8),
			"GOAWAY at once": sees(func(c net.Conn) {
				if m, err := etcdtest.Greet(c); err == nil && m.Framer.WriteGoAway(0, http2.ErrCodeNo, nil) == nil {
					_, _ = io.Copy(io.Discard, c)
				}
			}, failed, "Unavailable: closes", 8),
			"GOAWAY instead of answers": sees(raw(func(m *etcdtest.Raw, _ uint32) bool {
				return m.Framer.WriteGoAway(0, http2.ErrCodeNo, nil) == nil
			}), failed, "Unavailable: closes the connection: NO_ERROR", 8),
			"closes within a frame": sees(raw(func(m *etcdtest.Raw, stream uint32) bool {
				if stream < 40 {
					return m.Answer(stream) == nil
				}
				_, _ = m.Write([]byte{0, 0, 20, 0, 0, 0, 0, 0, 1, 'x'})
				return false
			}), unknown, lost, 1).ok(19),
			"resets the connection": sees(raw(func(m *etcdtest.Raw, _ uint32) bool {
				return m.Conn.(*worldtest.Conn).SetLinger(0) != nil
			}), unknown, lost, 1),
			"allows no request": sees(raw(never, setting(http2.SettingMaxConcurrentStreams, 0)), failed, late, 8),
			"opens no window":   sees(raw(never, setting(http2.SettingInitialWindowSize, 0)), failed, late, 8),
			"answers late": sees(raw(func(m *etcdtest.Raw, stream uint32) bool {
				if stream == 1 {
					w.Sleep(answersLate + 200*time.Millisecond)
				}
				return m.Answer(stream) == nil
			}), unknown, late, 1).ok(150),
			"does not read": sees(func(c net.Conn) {
				m, err := etcdtest.Greet(c, setting(http2.SettingInitialWindowSize, math.MaxInt32))
				if err == nil && m.Framer.WriteWindowUpdate(0, math.MaxInt32-65535) == nil {
					for m.Framer.WritePing(false, [8]byte{}) == nil { // until the test closes the connection
						w.Sleep(10 * time.Millisecond)
					}
				}
			}, load.NotSent, late, 4).of(1 << 20),
			"refuses a stream":   sees(raw(streamReset(http2.ErrCodeRefusedStream)), failed, lost+"REFUSED", 200),
			"resets as too much": sees(raw(streamReset(http2.ErrCodeEnhanceYourCalm)), unknown, tooMuch, 200),
			"resets as insecure": sees(raw(streamReset(http2.ErrCodeInadequateSecurity)), unknown, denied, 200),
		},
		"service": {
			"never answers": sees(says("", false), unknown, late, 2),
			"ends within an answer": sees(httpRequests(func(to net.Conn, number int) bool {
				_, _ = io.WriteString(to, created[:len(created)-number/10*9])
				return number < 10
			}), unknown, "Unavailable: within an answer", 1),
			"is done after each answer": sees(says("HTTP/1.1 201 ?\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", true),
				all, "", 0).ok(200),
			"ends bodies with the connection": sees(says("HTTP/1.1 200 OK\r\n\r\nwell", true), all, "", 0).ok(200),
			"ends them while the process is stopped": sees(httpRequests(func(to net.Conn, _ int) bool {
				w.StopProcess(5 * time.Millisecond) // it finds the answer and the end of the connection at once
				_, _ = io.WriteString(to, "HTTP/1.1 200 OK\r\n\r\nwell")
				return false
			}), all, "", 0).ok(200),
			"closes connections that are idle": sees(func(c net.Conn) {
				_ = c.SetReadDeadline(w.Wall().Add(20 * time.Millisecond))
				httpRequests(func(to net.Conn, number int) bool {
					_, _ = io.WriteString(to, created)
					return number < 20
				})(c)
			}, unknown, lost, 0).ok(20),
			"resets the connection": sees(httpRequests(func(to net.Conn, _ int) bool {
				return to.(*worldtest.Conn).SetLinger(0) != nil
			}), unknown, lost, 1),
			"never ends a body": sees(httpRequests(func(to net.Conn, _ int) bool {
				_, err := io.WriteString(to, "HTTP/1.1 200 OK\r\n\r\n")
				for some := make([]byte, 1<<16); err == nil; {
					_, err = to.Write(some)
				}
				return false
			}), unknown, "Unavailable: an answer of more than", 1),
			"speaks something else": sees(says("-ERR\r\n", false), unknown, "Unavailable: does not speak HTTP/1.1", 1),
			"answers late": sees(func(c net.Conn) {
				w.Sleep(answersLate + 100*time.Millisecond)
				says(created, false)(c)
			}, unknown, late, 1),
			"does not read": sees(func(c net.Conn) { c.(*worldtest.Conn).Hold() }, failed, late, 2).of(8 << 20),
			"refuses while it reads": sees(func(c net.Conn) {
				if _, err := io.ReadFull(c, make([]byte, 1000)); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 413 ?\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					_, _ = io.Copy(io.Discard, c)
				}
			}, failed, "InvalidArgument: HTTP status 413", 5).of(8 << 20),
		},
		"consul": {
			"no leader":            sees(status("500 ?", "No cluster leader"), failed, lost, 200),
			"no leader, forwarded": sees(status("500 ?", "call: No cluster leader"), failed, lost, 200),
			"no connection to it":  sees(status("500 ?", "rpc error getting client: refused"), failed, lost, 200),
			"another leader":       sees(status("500 ?", "call: node is not the leader"), failed, lost, 200),
			"a lost leader":        sees(status("500 ?", "call: EOF"), unknown, lost, 200),
			"a lost leadership":    sees(status("500 ?", "leadership lost"), unknown, lost, 200),
			"a timeout of Raft":    sees(status("500 ?", "raft apply failed: timed out"), unknown, lost, 200),
			"too many connections": sees(status("429 ?", "Your IP is issuing too many"), failed, tooMuch, 200),
			"refuses a permission": sees(status("403 ?", "Permission denied"), failed, denied, 200),
			"too large a value":    sees(status("413 ?", "too large"), failed, "InvalidArgument: ", 200),
			"nothing was written":  sees(status("200 ?", "false"), unknown, "Internal: ", 200),
			"an answer of nothing": sees(status("200 ?", ""), unknown, "Internal: ", 200),
			"a limit of its rate":  sees(status("503 ?", "rate limit exceeded, try again later"), unknown, lost, 200),
		},
		"zookeeper": {
			"never answers": sees(session(func(*zookeepertest.Request) []byte { return nil }), unknown, late, 8),
			"half an answer": sees(session(func(r *zookeepertest.Request) []byte {
				return r.Written(1)[:9]
			}), unknown, late, 8),
			"does not read": sees(func(c net.Conn) {
				if zookeepertest.Greet(c) == nil {
					c.(*worldtest.Conn).Hold()
				}
			}, unknown, late, 6).of(1_000_000),
			"closes": sees(zookeepertest.RawRequests(func(c net.Conn, r *zookeepertest.Request) bool {
				if r.Xid > 3 {
					return false
				}
				_, err := c.Write(r.Written(1))
				return err == nil
			}), unknown, "Unavailable: closed the connection, and with it the session", 1).ok(3),
			"closes within an answer": sees(zookeepertest.RawRequests(func(c net.Conn, r *zookeepertest.Request) bool {
				_, _ = c.Write(r.Written(1)[:9])
				return false
			}), unknown, "Unavailable: within an answer", 1).by(1),
			"oversize": sees(session(func(*zookeepertest.Request) []byte { return []byte{0x7f, 0, 0, 0} }), unknown,
				"Unavailable: a packet of 2130706432 bytes", 1),
			"refuses a permission": sees(errorCode(zookeepertest.NoAuth), failed, "PermissionDenied: not authorized", 8),
			"throttles":            sees(errorCode(zookeepertest.Throttled), failed, "ResourceExhausted: throttled", 8),
			"system error":         sees(errorCode(-1), unknown, "Internal: system error", 8),
			"session expired":      sees(errorCode(zookeepertest.SessionExpired), failed, "Unavailable: session expired", 1),
		},
	}
}

// TestMembersThatMisbehave holds that a run ends, with the right outcomes.
func TestMembersThatMisbehave(t *testing.T) {
	for protocol, cases := range misbehaviours(nil) {
		for name := range cases {
			t.Run(protocol+" "+name, func(t *testing.T) {
				worldtest.Run(t, 1, func(t *testing.T, w *worldtest.World) {
					protocols := map[string]store.Protocol{"etcd": etcd.Protocol{}, "service": service,
						"consul": consul.Protocol{}, "zookeeper": zookeeper.New("")}
					misbehaviours(w)[protocol][name].check(t, w, protocols[protocol])
				})
			})
		}
	}
}

func (c misbehaviour) check(t *testing.T, w *worldtest.World, protocol store.Protocol) {
	endpoint := w.Serve(c.serve)
	transport, err := openWith(t, w, protocol, Options{Spec: &spec.Spec{Endpoints: []string{endpoint}, Conns: 2,
		DialTimeout: 600 * time.Millisecond, RequestTimeout: answersLate}, LostTimeout: 600 * time.Millisecond})
	assert.OK(t, err)
	const total = 200
	o := puts(w, total, cmp.Or(c.clients, 8))
	o.StallTimeout = 3 * answersLate
	o.Targeter.(*load.Puts).Values = keys.NewValues(max(c.valSize, 8), 0)
	result := load.NewRun(o).Attack(t.Context(), transport)
	code, text, _ := strings.Cut(c.failure, ": ")
	ok, wanted, others, matching := 0, 0, 0, 0
	for _, record := range records(o) {
		switch {
		case record.Outcome == load.OK:
			ok++
		case !record.Done():
		case (record.Outcome == c.outcome || c.outcome == load.NotSent) && record.Code.String() == code:
			wanted++
		default:
			others++
		}
	}
	for message, n := range result.Errors {
		if strings.HasPrefix(message, endpoint+": "+code+": ") && strings.Contains(message, text) {
			matching += n
		}
	}
	// While a connection is lost, requests for it fail; those that wait for one fail at their deadlines.
	lost := code == "Unavailable" && c.atLeast < total || code == "DeadlineExceeded"
	assert.That(t, wanted >= c.atLeast && ok >= c.least && (others == 0 || lost) && matching >= c.atLeast,
		"%d ok, %d as wanted, %d others: %v, reason %q", ok, wanted, others, result.Errors, result.Reason)
}
