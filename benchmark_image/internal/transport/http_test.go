package transport

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/store/keyvalue"
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

const created = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"

// TestServicesThatMisbehave holds that a run ends in time, with the right outcomes.
func TestServicesThatMisbehave(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	over := make(chan struct{}) // the test of a service that does not read
	for name, c := range map[string]struct {
		serve   func(net.Conn)
		want    load.Outcome // of all requests but the first ok
		code    string
		text    string
		atLeast int // outcomes of that kind
		ok      int // at least
		valSize int
	}{
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
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			httpRequests(func(to net.Conn, number int) bool {
				_, _ = io.WriteString(to, created)
				return number < 20
			})(c)
		}, want: load.Unknown, code: "Unavailable", ok: 20},
		"resets the connection": {serve: httpRequests(func(to net.Conn, _ int) bool {
			_ = to.(*net.TCPConn).SetLinger(0)
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
			time.Sleep(timeout + 100*time.Millisecond)
			says(created)(c)
		}, want: load.Unknown, code: "DeadlineExceeded", text: "no answer within", atLeast: 1},
		"says that there are too many requests": {serve: says("HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\n\r\nslow"),
			want: load.Failed, code: "ResourceExhausted", text: "HTTP status 429: slow", atLeast: 200},
		"says that not enough replicas answered": {serve: says("HTTP/1.1 504 Timeout\r\nContent-Length: 0\r\n\r\n"),
			want: load.Unknown, code: "DeadlineExceeded", text: "HTTP status 504", atLeast: 200},
		"redirects": {serve: says("HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
			want: load.Failed, code: "Unknown", text: "HTTP status 301", atLeast: 200},
		"does not read": {serve: func(c net.Conn) {
			<-over
		}, want: load.Failed, code: "DeadlineExceeded", text: "no answer within", atLeast: 2, valSize: 8 << 20},
		"refuses while it reads": {serve: func(c net.Conn) {
			some := make([]byte, 1000)
			if _, err := io.ReadFull(c, some); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 413 Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
				_, _ = io.Copy(io.Discard, c)
			}
		}, want: load.Failed, code: "InvalidArgument", text: "HTTP status 413", atLeast: 5, valSize: 8 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			endpoint := etcdtest.RawMember(t, c.serve)
			transport, err := Open(ctx, service, Options{Endpoints: []string{endpoint}, Conns: 2,
				DialTimeout: 600 * time.Millisecond, RequestTimeout: timeout, LostTimeout: 600 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer transport.Close()
			if name == "does not read" {
				t.Cleanup(func() { close(over) })
			}
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
				case record.Done() && record.Outcome() == c.want && record.Code().String() == c.code:
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
		})
	}
}

// TestConsulsAnswersThatMeanNoSuccess tells what of them may have happened all the same.
func TestConsulsAnswersThatMeanNoSuccess(t *testing.T) {
	answer := func(status, body string) string {
		return "HTTP/1.1 " + status + "\r\nContent-Type: text/plain\r\n\r\n" + body
	}
	for text, want := range map[string]struct {
		code    store.Code
		unknown bool
	}{
		answer("500 Oh", "No cluster leader"):                                                {store.Unavailable, false},
		answer("500 Oh", "rpc error making call: No cluster leader"):                         {store.Unavailable, false},
		answer("500 Oh", "rpc error getting client: failed to get conn: connection refused"): {store.Unavailable, false},
		answer("500 Oh", "rpc error making call: node is not the leader"):                    {store.Unavailable, false},
		answer("500 Oh", "rpc error making call: EOF"):                                       {store.Unavailable, true},
		answer("500 Oh", "rpc error making call: leadership lost while committing log"):      {store.Unavailable, true},
		answer("500 Oh", "raft apply failed: timed out enqueuing operation"):                 {store.Unavailable, true},
		answer("429 Slow", "Your IP is issuing too many concurrent "+
			"connections"): {store.ResourceExhausted, false},
		answer("403 No", "Permission denied: token with AccessorID lacks permission"): {store.PermissionDenied, false},
		answer("413 Large", "Request body(600000 bytes) too large"):                   {store.InvalidArgument, false},
		answer("200 OK", "false"): {store.Internal, true},
		answer("200 OK", ""):      {store.Internal, true},
		answer("503 Later", "rate limit exceeded, try again later or against a different server"): {store.Unavailable, true},
	} {
		endpoint := etcdtest.RawMember(t, httpRequests(func(to net.Conn, _ int) bool {
			_, _ = io.WriteString(to, text)
			return false
		}))
		transport, err := Open(t.Context(), consul.Protocol{}, Options{Endpoints: []string{endpoint}, Conns: 1,
			DialTimeout: 5 * time.Second, RequestTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		result := load.NewRun(puts(3, 1)).Attack(t.Context(), transport)
		outcome := load.Failed
		if want.unknown {
			outcome = load.Unknown
		}
		for _, record := range result.Records {
			if record.Outcome() != outcome || record.Code() != want.code {
				t.Errorf("%q: %v %v, expected %v %v: %v", text, record.Outcome(), record.Code(), outcome, want.code, result.Errors)
			}
		}
		transport.Close()
	}
}

// TestHTTPRequestsDoNotAllocate counts what the whole process allocates while a member answers from memory.
func TestHTTPRequestsDoNotAllocate(t *testing.T) {
	value := keys.NewValues(8, 0)
	endpoint := etcdtest.RawMember(t, func(c net.Conn) {
		in, answer := make([]byte, 1<<16), []byte("HTTP/1.1 200 OK\r\nX-Consul-Index: 7\r\nContent-Length: 4\r\n\r\ntrue")
		read := []byte("HTTP/1.1 200 OK\r\nX-Consul-Index: 7\r\nContent-Length: 8\r\n\r\n" + string(value.At(0)))
		for {
			n, err := c.Read(in) // one request at a time, in one piece
			if err != nil {
				return
			}
			out := answer
			if bytes.HasPrefix(in[:n], []byte("GET")) {
				out = read
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	})
	for name, protocol := range map[string]store.Protocol{"consul": consul.Protocol{}, "http": service} {
		transport, err := Open(t.Context(), protocol, Options{Endpoints: []string{endpoint}, Conns: 4,
			DialTimeout: 5 * time.Second, RequestTimeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		const total = 50_000
		reads := puts(total, 40)
		reads.Targeter = &load.Reads{KeySize: 1, Order: keys.NewOrder(1, true, 0), Verify: value}
		for i, o := range []load.Options{puts(total, 40), puts(total, 40), reads} {
			if n, result := countMallocs(t, transport, o); result.Failed != 0 || n > total/50 {
				t.Errorf("%s, load %d: %d allocations for %d requests, %v", name, i, n, total, result.Errors)
			}
		}
		transport.Close()
	}
}
