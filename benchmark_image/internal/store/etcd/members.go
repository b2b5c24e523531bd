package etcd

import (
	"fmt"
	"net/url"

	"containernet-env/benchmark_image/internal/store/etcd/wire"
)

// advertised is the host:port at which the member with that id says that clients reach it.
func advertised(list []wire.Member, id uint64) (string, error) {
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
	return "", fmt.Errorf("the leader (member id %x) is not in the member list", id)
}
