package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"containernet-env/benchmark_image/internal/spec"
)

// ownNameTimeout bounds how long a name is looked up that may be the server's own.
const ownNameTimeout = time.Second

// Hosts decides which requests the server takes, so that no web page in the browser of a user who can reach the
// server starts or cancels a benchmark, or fetches a result, which removes it. The browser tells the page's origin,
// which is refused where it is not the server itself. A page can also have its own name point to the server's address
// after it was loaded (DNS rebinding), and is of the same origin then; but the Host header has its name, which is none
// of the server's.
type Hosts struct {
	Names []string // of the server, beside those that it knows itself

	resolve func(ctx context.Context, network, name string) ([]netip.Addr, error) // for tests
}

// crossOrigin lets requests without an Origin pass, as programs send them.
var crossOrigin = http.NewCrossOriginProtection()

// refuse gives the problem of a request that is not for this server or that a page of another origin sent; nil if it is
// taken.
func (h *Hosts) refuse(r *http.Request) *spec.Problem {
	// Hostname takes off the port, which is another one where it is published or relayed, and the brackets of IPv6.
	host := strings.ToLower(strings.TrimSuffix((&url.URL{Host: r.Host}).Hostname(), "."))
	if !h.own(r.Context(), host) {
		return &spec.Problem{
			Message: fmt.Sprintf("the Host header %.200q does not name this server: "+
				"call it by localhost or an IP address, or start benchmark-server with --host=NAME to add a name", r.Host),
			Field: "Host", Got: spec.Clip(r.Host),
			Allowed: "localhost, an IP address, the server's own host name and container names, or a name given by --host",
		}
	}
	// A GET of another origin would pass: it is judged as a POST.
	posted := *r
	posted.Method = http.MethodPost
	if err := crossOrigin.Check(&posted); err != nil {
		return &spec.Problem{
			Message: fmt.Sprintf("a web page of another origin sent this request (%v): "+
				"call the server from a program, such as curl", err),
			Field: "Origin", Got: spec.Clip(r.Header.Get("Origin")),
			Allowed: "no Origin and no Sec-Fetch-Site, as programs call, or the server's own origin",
		}
	}
	return nil
}

// own tells whether a host in lower case names this server. Addresses always do: only names can be made to point
// elsewhere.
func (h *Hosts) own(ctx context.Context, host string) bool {
	if host == "" {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if slices.ContainsFunc(h.Names, func(name string) bool { return strings.EqualFold(name, host) }) {
		return true
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(name, host) {
		return true
	}
	return !strings.Contains(host, ".") && h.leadsHere(ctx, host)
}

// leadsHere tells whether a name without a dot has one of this machine's addresses. So do the names of a container in
// networks of Docker, such as its service's in Docker Compose. No one can own such a name on the Internet. The dot at
// the end keeps the resolver from adding a domain to it, in which others might.
func (h *Hosts) leadsHere(ctx context.Context, name string) bool {
	resolve := h.resolve
	if resolve == nil {
		resolve = net.DefaultResolver.LookupNetIP
	}
	ctx, cancel := context.WithTimeout(ctx, ownNameTimeout)
	defer cancel()
	found, err := resolve(ctx, "ip", name+".")
	if err != nil {
		return false
	}
	ours, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(ours, func(own net.Addr) bool {
		prefix, err := netip.ParsePrefix(own.String())
		return err == nil && slices.ContainsFunc(found, func(a netip.Addr) bool { return a.Unmap() == prefix.Addr() })
	})
}
