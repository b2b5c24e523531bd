// Package allow decides which members a load may be sent to, so that callers of benchmark-server cannot make it connect
// to whatever it can reach.
package allow

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"containernet-env/benchmark_image/internal/spec"
)

// Local is the entry that stands for the networks that this machine is connected to directly. Where nothing is
// configured, it is the whole list.
const Local = "local"

// lookupTimeout bounds how long Check waits for the addresses of a name.
const lookupTimeout = 2 * time.Second

// List is what a load may be sent to.
type List struct {
	text     string
	names    map[string]bool // host:port in lower case
	networks []network
	lookup   func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// network is a range of addresses; port 0 means all ports.
type network struct {
	prefix netip.Prefix
	port   uint16
}

// Parse reads a comma-separated list whose entries are host:port, a subnet (all its addresses and ports), or Local,
// which is also what the empty text means. The networks of this machine are those of the moment.
func Parse(text string) (*List, error) {
	if text == "" {
		text = Local
	}
	l := &List{text: text, names: make(map[string]bool), lookup: net.DefaultResolver.LookupNetIP}
	for entry := range strings.SplitSeq(text, ",") {
		if err := l.add(entry); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *List) add(entry string) error {
	if entry == Local {
		connected, err := connectedNetworks()
		l.networks = append(l.networks, connected...)
		return err
	}
	if strings.Contains(entry, "/") && !strings.Contains(entry, "://") {
		prefix, err := netip.ParsePrefix(entry)
		if err != nil {
			return fmt.Errorf("%.100q is not a subnet, as 10.0.0.0/24 is", entry)
		}
		l.networks = append(l.networks, network{prefix: prefix.Masked()})
		return nil
	}
	if _, err := spec.ParseEndpoints(entry); err != nil {
		return fmt.Errorf("%w; allowed: host:port, a subnet, or %s", err, Local)
	}
	if address, err := netip.ParseAddrPort(entry); err == nil {
		single := plain(address.Addr())
		l.networks = append(l.networks, network{netip.PrefixFrom(single, single.BitLen()), address.Port()})
		return nil
	}
	l.names[strings.ToLower(entry)] = true
	return nil
}

// connectedNetworks leaves out loopback, where services listen that callers from elsewhere must not reach, and
// link-local addresses: what answers there, such as a cloud's metadata service, is no store.
func connectedNetworks() ([]network, error) {
	var found []network
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the networks of this machine: %w", err)
	}
	for _, address := range addresses {
		prefix, err := netip.ParsePrefix(address.String())
		if err == nil && !prefix.Addr().IsLoopback() && !prefix.Addr().IsLinkLocalUnicast() {
			found = append(found, network{prefix: prefix.Masked()})
		}
	}
	return found, nil
}

// Permit returns why a connection to the address must not be opened for the endpoint, nil if it may. An entry with a
// name permits all addresses of that name.
func (l *List) Permit(endpoint string, address netip.AddrPort) error {
	host := plain(address.Addr())
	if l.names[strings.ToLower(endpoint)] || slices.ContainsFunc(l.networks, func(n network) bool {
		return n.prefix.Contains(host) && (n.port == 0 || n.port == address.Port())
	}) {
		return nil
	}
	shown := endpoint
	if address.String() != endpoint {
		shown = fmt.Sprintf("%s (%v)", endpoint, address)
	}
	return fmt.Errorf("%s may get no load: allowed is %s; start benchmark-server with --allow=%s to add it", shown,
		spec.Clip(l.text), spec.Clip(l.text+","+endpoint))
}

// Check returns why the endpoint, a valid host:port, must not be contacted; nil if it may. A name that is not in the
// list is looked up, unless every address is allowed. One that cannot be looked up passes: Permit decides when the
// connection is opened.
func (l *List) Check(ctx context.Context, endpoint string) error {
	everything := func(n network) bool { return n.prefix.Bits() == 0 && n.port == 0 }
	if l.names[strings.ToLower(endpoint)] || slices.ContainsFunc(l.networks, everything) {
		return nil
	}
	if address, err := netip.ParseAddrPort(endpoint); err == nil {
		return l.Permit(endpoint, address)
	}
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := l.lookup(ctx, "ip", host)
	if err != nil || len(addresses) == 0 {
		return nil
	}
	var problem error
	for _, address := range addresses {
		number, err := netip.ParseAddrPort(net.JoinHostPort(address.String(), port))
		if err != nil {
			return err
		}
		if problem = l.Permit(endpoint, number); problem == nil {
			return nil
		}
	}
	return problem
}

// String gives the text that was parsed.
func (l *List) String() string { return l.text }

// plain is an address as prefixes contain it.
func plain(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }
