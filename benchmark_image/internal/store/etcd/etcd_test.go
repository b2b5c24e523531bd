package etcd

import (
	"testing"

	"containernet-env/benchmark_image/internal/store"
)

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		code store.Code
		text string
		want bool
	}{
		{3, "etcdserver: key is not provided", true},
		{7, "etcdserver: permission denied", true},
		{8, "etcdserver: too many requests", true},
		{8, "etcdserver: mvcc: database space exceeded", false}, // also when the put was applied
		{11, "etcdserver: mvcc: required revision has been compacted", true},
		{4, "context deadline exceeded", false},
		{10, "", false},
		{14, "etcdserver: request timed out", false},
		{14, "etcdserver: leader changed", false},
		{2, "etcdserver: too many requests", false},
		{store.Check, "", false},
		{200, "", false},
	} {
		if got := refused(c.code, c.text); got != c.want {
			t.Errorf("%v: %s: %v, want %v", c.code, c.text, got, c.want)
		}
	}
}
