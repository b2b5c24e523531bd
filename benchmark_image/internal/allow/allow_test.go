package allow

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/inputtest"
)

// parsed is a list that looks names up in a table: every test has them, with and without the entry Local.
func parsed(t testing.TB, text string) *List {
	t.Helper()
	l := assert.Got(Parse(text))(t)
	local, far := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("203.0.113.9")
	known := map[string][]netip.Addr{
		"here": {local}, "far": {far, netip.MustParseAddr("2001:db8::9")}, "both": {far, local},
	}
	l.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
		if known[host] == nil {
			return nil, errors.New("no such host")
		}
		return known[host], nil
	}
	return l
}

func TestEndpointsThatMayBeAsked(t *testing.T) {
	for _, c := range []struct {
		list          string
		allowed, not_ string
	}{
		{"", "nowhere:5",
			"127.0.0.1:1 [::1]:2 [::ffff:127.0.0.1]:2 here:5 both:5 169.254.169.254:80 0.0.0.0:80 [::]:80 far:5"},
		{"local", "nowhere:5", "127.0.0.1:1 here:5 203.0.113.9:2379 far:5"},
		{"local,127.0.0.0/8", "127.0.0.1:1 127.9.9.9:2379 [::ffff:127.0.0.1]:2 here:5 both:5", "[::1]:2 0.0.0.0:80"},
		{"127.0.0.1:2379,here:5", "127.0.0.1:2379 here:2379 here:5", "127.0.0.1:1 here:6"},
		{
			"10.0.0.1:2379,[2001:DB8::1]:7", "10.0.0.1:2379 [::ffff:10.0.0.1]:2379 [2001:db8:0::1]:7 nowhere:5",
			"10.0.0.1:2380 10.0.0.2:2379 127.0.0.1:2379 here:2379",
		},
		{
			"10.0.0.0/24,2001:db8::/64", "10.0.0.0:1 10.0.0.255:65535 [2001:db8::9]:5 far:5",
			"10.0.1.0:1 [2001:db8:0:1::]:5 127.0.0.1:5",
		},
		{"10.0.0.77/24", "10.0.0.1:1", "10.0.1.1:1"},
		{"etcd1:2379", "etcd1:2379 ETCD1:2379", "127.0.0.1:2379 here:2379"},
		{"Far:5,local", "far:5", "far:6 here:1"},
		{"0.0.0.0/0,::/0", "203.0.113.9:2379 far:5 169.254.169.254:80 [fe80::1%lo]:80", ""},
		{"0.0.0.0:5,[::]:5", "0.0.0.0:5", "203.0.113.9:5 far:5"},
	} {
		l := parsed(t, c.list)
		for _, endpoint := range strings.Fields(c.allowed) {
			assert.Equal(t, l.Check(t.Context(), endpoint), nil, "%q: %s", c.list, endpoint)
		}
		for _, endpoint := range strings.Fields(c.not_) {
			err := l.Check(t.Context(), endpoint)
			remedy := "--allow=" + l.String() + "," + endpoint
			assert.That(t, err != nil && strings.Contains(err.Error(), endpoint) && strings.Contains(err.Error(), remedy),
				"%q: %s: %v", c.list, endpoint, err)
		}
	}
}

// TestConnectionsThatMayBeOpened is about names: what Check found for them need not be where they lead.
func TestConnectionsThatMayBeOpened(t *testing.T) {
	l := parsed(t, "here:2379,nowhere:2379,10.0.0.1:2379")
	for _, c := range []struct {
		endpoint, address string
		want              bool
	}{
		{"here:2379", "127.0.0.1:2379", true},
		{"HERE:2379", "203.0.113.9:2379", true}, // the name is in the list, wherever it leads
		{"here:2380", "127.0.0.1:2380", false},
		{"other:2379", "10.0.0.1:2379", true},
		{"other:2379", "10.0.0.2:2379", false},
		{"10.0.0.1:2379", "10.0.0.1:2379", true},
		{"10.0.0.1:2379", "10.0.0.1:2380", false},
	} {
		err := l.Permit(c.endpoint, netip.MustParseAddrPort(c.address))
		named := func(text string) bool { return err == nil || strings.Contains(err.Error(), text) }
		assert.That(t, (err == nil) == c.want && named(c.endpoint) && named(c.address), "%s at %s: %v", c.endpoint,
			c.address, err)
	}
}

func TestListsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		",":                      "host:port",
		"local,":                 "host:port",
		"10.0.0.1":               "host:port",
		"10.0.0.0/33":            "10.0.0.0/24",
		"etcd1/24":               "10.0.0.0/24",
		"10.0.0.1:1, 10.0.0.2:1": "host name",
	} {
		_, err := Parse(text)
		assert.That(t, err != nil && strings.Contains(err.Error(), want), "%q: %v, want %q", text, err, want)
	}
}

// TestNetworksOfThisMachine holds what needs no particular machine: neither loopback nor link-local networks are there.
func TestNetworksOfThisMachine(t *testing.T) {
	networks := assert.Got(connectedNetworks())(t)
	for _, n := range networks {
		address := n.prefix.Addr()
		assert.That(t, !address.IsLoopback() && !address.IsLinkLocalUnicast() && n.prefix.Bits() != 0 &&
			n.prefix == n.prefix.Masked(), "%v", n.prefix)
	}
}

// FuzzParse holds that a list permits no address that none of its entries names.
func FuzzParse(native *testing.F) {
	f := inputtest.F{F: native}
	for _, text := range []string{
		"local", "10.0.0.1:2379,etcd1:1", "10.0.0.0/8", "::/0", "[::1]:1", "0.0.0.0/0,x:1", "[fe80::1%lo]:3",
	} {
		f.Add(text, "10.0.0.1:2379")
	}
	f.Fuzz(func(t *testing.T, text, endpoint string) {
		l, err := Parse(text)
		if err != nil {
			return
		}
		address, err := netip.ParseAddrPort(endpoint)
		if err != nil || l.Permit(endpoint, address) != nil {
			return
		}
		plain := address.Addr().Unmap().WithZone("")
		for entry := range strings.SplitSeq(l.String(), ",") {
			prefix, err := netip.ParsePrefix(entry)
			single, singleErr := netip.ParseAddrPort(entry)
			switch {
			case entry == Local, err == nil && prefix.Contains(plain), strings.EqualFold(entry, endpoint):
				return
			case singleErr == nil && single.Addr().Unmap().WithZone("") == plain && single.Port() == address.Port():
				return
			}
		}
		t.Errorf("%q permits %s", text, endpoint)
	})
}
