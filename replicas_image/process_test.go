//go:build plumbing

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// asReplica makes this test's program a replica.
const asReplica = "TEST_AS_REPLICA"

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) != "" {
		if err := run(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestAProcess keeps what it has acknowledged when it is killed, and ends well at SIGTERM.
func TestAProcess(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address, folder := listener.Addr().String(), t.TempDir()
	listener.Close()
	call := func(method, path, value string) (status int, body string, err error) {
		q, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(value))
		must(t, err)
		answer, err := http.DefaultClient.Do(q)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(b), err
	}
	expect := func(method, path, value string, status int, body string) {
		t.Helper()
		gotStatus, got, err := call(method, path, value)
		check(t, gotStatus == status && got == body, "%s %s: %d %q, %v", method, path, gotStatus, got, err)
	}
	start := func() *exec.Cmd {
		p := exec.Command(os.Args[0], "--listen", address, "--peers", address, "--data", folder)
		p.Env, p.Stderr = append(os.Environ(), asReplica+"=1"), os.Stderr
		must(t, p.Start())
		t.Cleanup(func() { _ = p.Process.Kill() }) // it has ended, unless the test failed
		for err := error(syscall.ECONNREFUSED); err != nil; {
			_, _, err = call("GET", statusPath, "") // until go test's own deadline
		}
		return p
	}
	first := start()
	expect("PUT", entityPath+"?id=k", "value", 201, "")
	must(t, first.Process.Kill())
	check(t, first.Wait() != nil, "it was killed, and ended well")
	second := start()
	expect("GET", entityPath+"?id=k", "", 200, "value")
	expect("GET", statusPath, "", 200, "{\"id\":0,\"keys\":1,\"replicas\":1}\n")
	http.DefaultClient.CloseIdleConnections()
	must(t, second.Process.Signal(syscall.SIGTERM))
	must(t, second.Wait())
}
