package etcd

import (
	"fmt"
	"net/url"

	"containernet-env/benchmark_image/internal/store/etcd/wire"
)

// advertised is the host:port at which the member with that id says that clients reach it, with TLS (secure) or
// without.
func advertised(list []wire.Member, id uint64, secure bool) (string, error) {
	scheme, with := "http", "without"
	if secure {
		scheme, with = "https", "with"
	}
	for _, member := range list {
		if member.ID != id {
			continue
		}
		for _, address := range member.ClientURLs {
			if parsed, err := url.Parse(address); err == nil && parsed.Scheme == scheme && parsed.Host != "" {
				return parsed.Host, nil
			}
		}
		return "", fmt.Errorf("the leader %s advertises no address for clients %s TLS: %v", member.Name, with,
			member.ClientURLs)
	}
	return "", fmt.Errorf("the leader (member id %x) is not in the member list", id)
}
