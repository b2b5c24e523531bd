// Package membership says how a load is to reach the members of an etcd cluster, whichever transport carries it.
package membership

import (
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Options says which connections to open.
type Options struct {
	Endpoints      []string // the members, in member order
	Conns          int
	TargetLeader   bool          // only connections to the member that leads; they follow it when it moves
	DialTimeout    time.Duration // until all connections are ready and the leader is known
	RequestTimeout time.Duration // deadline of each request
}

// LeaderChange is a move of the load to another member, because that one leads now.
type LeaderChange struct {
	At     time.Time
	Leader string
}

// Member is one of a cluster's own list of members.
type Member struct {
	ID         uint64
	Name       string
	ClientURLs []string
}

// ErrNotListed says that the leader is not in the list.
var ErrNotListed = errors.New("not in the member list")

// Advertised is the host:port at which the member with that id says that clients reach it.
func Advertised(list []Member, id uint64) (string, error) {
	for _, member := range list {
		if member.ID != id {
			continue
		}
		for _, address := range member.ClientURLs {
			if parsed, err := url.Parse(address); err == nil && parsed.Scheme == "http" && parsed.Host != "" {
				return parsed.Host, nil
			}
		}
		return "", fmt.Errorf("the leader %s advertises no address for clients without TLS: %v", member.Name, member.ClientURLs)
	}
	return "", fmt.Errorf("the leader (member id %x) is %w", id, ErrNotListed)
}
