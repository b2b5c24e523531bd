package api

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// TestFilesAreOfTheServersFolder carries a load with the files of the server's own folder and its own password.
func TestFilesAreOfTheServersFolder(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	users := &etcdtest.Users{Name: "root", Password: "sesame"}
	cluster := etcdtest.Start(t, 1, etcdtest.Secured(authority.Server(tls.VersionTLS13)), users.Option())
	ca, _, _ := authority.Files()
	t.Setenv(spec.PasswordVariable, "sesame")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "client")
	for path, with := range map[string]string{program: "none", program + "-tls": "with TLS"} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+asClient+"='"+with+"' exec "+self+" \"$@\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	url, h := startWith(t, program)
	var logged strings.Builder
	h.Log, h.Credentials = log.New(&logged, "", 0), filepath.Dir(ca)
	body := func(ca, user string) string {
		return fmt.Sprintf(`{"endpoints":%q,"total":50,"caFile":%q,"certFile":"cert.pem","keyFile":"key.pem","user":%q}`,
			cluster.Members[0].Endpoint, ca, user)
	}
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{body("ca.pem", "root"), 200, `"ok":50`},
		{body("other.pem", "root"), 500, "no such file"},
		{body("../ca.pem", "root"), 400, `"field":"caFile"`},
		{body("ca.pem", "nobody"), 500, "authentication failed, invalid user ID or password"},
	} {
		status, _, answer := send(t, "POST", url+"/benchmark/write", c.body)
		if status != c.status || !strings.Contains(string(answer),
			c.want) || strings.Contains(string(answer)+logged.String(), "sesame") {
			t.Errorf("%s: %d %s, want %d with %s; the log: %s", c.body, status, answer, c.status, c.want, logged.String())
		}
	}
	_, _, answer := send(t, "POST", url+"/benchmark/write", body("ca.pem", "root"))
	var result report.Result
	err = json.Unmarshal(answer, &result)
	status, _, again := send(t, "POST", url+"/benchmark/write", string(result.Configured))
	if err != nil || status != 200 || len(cluster.Keys()) != 50 {
		t.Errorf("what was configured, %s, is refused when it is sent again: %s; %d keys",
			result.Configured, again, len(cluster.Keys()))
	}
}
