package etcd

import (
	"strings"
	"sync/atomic"

	"containernet-env/benchmark_image/internal/store"
)

// User is who all connections of a protocol log in as.
type User struct {
	Name, Password string

	token atomic.Pointer[string] // of the latest login; nil: there was none
}

// expired tells whether a member that answers a request with this code and text wants another token: the one it was
// sent has ended (etcd: --auth-token-ttl; also when the member was started again), or users and roles have changed
// since.
func expired(code store.Code, text string) bool {
	return code == store.Unauthenticated && strings.Contains(text, "invalid auth token") ||
		code == store.InvalidArgument && strings.Contains(text, "revision of auth store is old")
}
