package transport

import (
	"io"
	"net"
	"testing"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

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
		inWorld(t, func(t *testing.T, w *worldtest.World) {
			endpoint := w.Serve(httpRequests(func(to net.Conn, _ int) bool {
				_, _ = io.WriteString(to, text)
				return false
			}))
			transport, err := openWith(t, w, consul.Protocol{}, Options{Endpoints: []string{endpoint}, Conns: 1})
			if err != nil {
				t.Fatal(err)
			}
			result := load.NewRun(puts(w, 3, 1)).Attack(t.Context(), transport)
			outcome := load.Failed
			if want.unknown {
				outcome = load.Unknown
			}
			for _, record := range result.Records {
				if record.Outcome() != outcome || record.Code() != want.code {
					t.Errorf("%q: %v %v, expected %v %v: %v", text, record.Outcome(), record.Code(), outcome, want.code, result.Errors)
				}
			}
		})
	}
}
