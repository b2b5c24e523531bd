package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/inputtest"
	"containernet-env/benchmark_image/internal/spec"
)

// names stands for the DNS of a container that Docker Compose started as the service load: an attacker's name may have
// any address, also the server's own.
func names(_ context.Context, _, name string) ([]netip.Addr, error) {
	switch name {
	case "load.", "evil.example.":
		return []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("127.0.0.1")}, nil
	case "etcd.":
		return []netip.Addr{netip.MustParseAddr("203.0.113.9")}, nil
	}
	return nil, errors.New("no such host")
}

// guarded serves without a client: what is not refused fails with 500.
func guarded(t *testing.T) *server {
	t.Helper()
	s := simulate(t, nil)
	s.Runner.Start, s.Hosts = absent, Hosts{Names: []string{"bench.example"}, resolve: names}
	return s
}

// routesOf has a request to each route, and the status of its answer where it is taken.
var routesOf = []struct {
	method, path, body string
	status             int
}{
	{"GET", "/progress", "", 200},
	{"GET", "/progress/stream", "", 200},
	{"GET", "/healthz", "", 200},
	{"GET", "/nothing", "", 404},
	{"POST", "/benchmark/cancel", "", 200},
	{"POST", "/benchmark/read", `{"endpoints":"127.0.0.1:1","key":"k"}`, 500},
	{"POST", "/benchmark/write", `{"endpoints":"127.0.0.1:1"}`, 500},
	{"POST", "/benchmark/mixed", `{"endpoints":"127.0.0.1:1"}`, 500},
	{"POST", "/benchmark/txn", `{"endpoints":"127.0.0.1:1"}`, 500},
}

func TestTheHostHeaderNamesTheServer(t *testing.T) {
	s := guarded(t)
	own := assert.Got(os.Hostname())(t)
	for host, taken := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LocalHost:1": true, "localhost.:8080": true, "x.localhost:8080": true,
		"127.0.0.1:8080": true, "192.0.2.7": true, "[::1]:8080": true, "[2001:db8::7]": true,
		own: true, own + ":8080": true, "bench.example:8080": true, "Bench.Example.": true, "load": true, "LOAD:8080": true,
		"evil.example": false, "evil.example:8080": false, "etcd:8080": false, "unknown": false, "evil-localhost": false,
		"localhost.evil.example": false, "127.0.0.1.evil.example:8080": false, "load.evil.example": false,
		"x.bench.example": false, "localhost:evil.example": false, "evil.example:80:localhost": false, "": false,
	} {
		for _, r := range routesOf {
			status, _, answer := s.call(t.Context(), r.method, r.path, r.body, map[string]string{"Host": host})
			explained := strings.Contains(string(answer), "--host=NAME") &&
				strings.Contains(string(answer), `"got":"`+host+`"`)
			assert.That(t, taken && status == r.status || !taken && status == 403 && explained, "%s: %s %s: %d %s", host,
				r.method, r.path, status, answer)
		}
	}
}

func TestAWebPageStartsNothing(t *testing.T) {
	s := guarded(t)
	for name, c := range map[string]struct {
		taken              bool
		host, origin, site string
	}{
		"another site":                     {false, "localhost", "https://evil.example", "cross-site"},
		"another site, an older browser":   {false, "localhost", "https://evil.example", ""},
		"another site, without its origin": {false, "localhost", "", "cross-site"},
		"another port":                     {false, "localhost", "http://localhost:3000", "same-site"},
		"another port, an older browser":   {false, "localhost", "http://localhost:3000", ""},
		"a file or a sandbox":              {false, "localhost", "null", ""},
		"a name that was rebound":          {false, "evil.example", "http://evil.example:8080", "same-origin"},
		"the server's own page":            {true, "localhost", "http://localhost:8080", "same-origin"},
		"its own page, an older browser":   {true, "localhost", "http://localhost:8080", ""},
		"the person at the browser":        {true, "localhost", "", "none"},
	} {
		// Pages need no permission to send this type of content.
		fields := map[string]string{"Host": c.host + ":8080", "Content-Type": "text/plain"}
		for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if value != "" {
				fields[name] = value
			}
		}
		for _, r := range routesOf {
			status, _, answer := s.call(t.Context(), r.method, r.path, r.body, fields)
			assert.That(t, c.taken == (status == r.status) && (c.taken || status == 403), "%s: %s: %d %s", name, r.path,
				status, answer)
		}
	}
}

func TestMembersThatAreNotAllowed(t *testing.T) {
	const allowed, other = "127.0.0.1:1", "127.0.0.1:2"
	for _, c := range []struct{ allow, endpoints, refused string }{
		{"127.0.0.0/8", allowed + "," + other, ""},
		{"", allowed, allowed},
		{allowed, allowed, ""},
		{allowed, allowed + "," + other, other},
		{"10.0.0.0/8", allowed, allowed},
	} {
		s := simulate(t, decodeOnly)
		s.Runner.Allow = c.allow
		status, _, answer := s.send("POST", "/benchmark/write", `{"endpoints":"`+c.endpoints+`","total":10}`)
		var problem spec.Problem
		assert.That(t, status == 200 && c.refused == "" || status == 403 && json.Unmarshal(answer, &problem) == nil &&
			problem.Field == "endpoints" && problem.Got == c.refused && strings.Contains(problem.Message, "--allow="),
			"%q: %s: %d %s", c.allow, c.endpoints, status, answer)
	}
}

// FuzzHost holds that a request that is taken names the server also as a browser reads the Host header, and that no
// page of another origin starts or reads anything.
func FuzzHost(native *testing.F) {
	f := inputtest.F{F: native}
	for _, host := range []string{
		"localhost:8080", "evil.example", "[::1]:80", "127.0.0.1", "load", "localhost:evil", "[localhost]:1", "::1",
		"a@localhost", "127.1",
	} {
		f.Add(host, "", "")
		f.Add(host, "http://"+host, "same-origin")
		f.Add(host, "http://evil.example", "cross-site")
	}
	f.Fuzz(func(t *testing.T, host, origin, site string) {
		hosts := Hosts{resolve: names}
		header := http.Header{"Origin": {origin}, "Sec-Fetch-Site": {site}}
		r := &http.Request{Method: http.MethodGet, Host: host, Header: header}
		if hosts.refuse(r.WithContext(t.Context())) != nil {
			return
		}
		assert.That(t, site == "same-origin" || site == "none" || site == "", "Sec-Fetch-Site %q is taken", site)
		own := strings.HasSuffix(origin, "//"+host) || strings.Contains(origin, "//"+host+"/") || strings.Contains(origin,
			"@")
		assert.That(t, site != "" || origin == "" || own, "origin %q is taken for host %q", origin, host)
		page, err := url.Parse("http://" + host + "/")
		if err != nil {
			return // no browser sends it
		}
		name := strings.ToLower(strings.TrimSuffix(page.Hostname(), "."))
		_, notNumber := netip.ParseAddr(name)
		machine, err := os.Hostname()
		known := name == "localhost" || strings.HasSuffix(name, ".localhost") || name == "load" ||
			err == nil && strings.EqualFold(name, machine)
		assert.That(t, notNumber == nil || known, "host %q is taken, it is %q to browsers", host, name)
	})
}
