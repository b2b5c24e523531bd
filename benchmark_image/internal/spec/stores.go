package spec

import (
	"fmt"

	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/zookeeper"
)

// The stores that a load can be for.
const (
	Etcd      = "etcd"
	ZooKeeper = "zookeeper"
)

// storeNames are all of them, the default first.
var storeNames = []string{Etcd, ZooKeeper}

// defaultEndpoints are where a member on this machine serves clients unless it was told otherwise.
var defaultEndpoints = map[string]string{Etcd: etcd.DefaultEndpoint, ZooKeeper: zookeeper.DefaultEndpoint}

// lack is something that a load may ask for and a store does not have.
type lack struct {
	parameter *Parameter // with which it is asked for
	asked     func(s *Spec) bool
	allowed   string // with the reason
}

// lacks is the table of what stores cannot do.
var lacks = map[string][]lack{
	ZooKeeper: {
		{paramEndRange, func(s *Spec) bool { return s.End != "" }, noRanges},
		{paramPrefix, func(s *Spec) bool { return s.KeyIsPrefix }, noRanges},
		{paramSpanKeys, func(s *Spec) bool { return s.SpanKeys != 0 }, noRanges},
		{paramLimit, func(s *Spec) bool { return s.Limit != 0 }, noRanges},
		{paramCountOnly, func(s *Spec) bool { return s.CountOnly }, "false with zookeeper: it reads one key with its value"},
		{paramKeysOnly, func(s *Spec) bool { return s.KeysOnly }, "false with zookeeper: it reads one key with its value"},
		{paramValSize, func(s *Spec) bool { return s.ValSize > zookeeper.MaxValue },
			fmt.Sprintf("at most %d bytes with zookeeper, which takes packets of less than 1 MiB (jute.maxbuffer)",
				zookeeper.MaxValue)},
		{paramUser, func(s *Spec) bool { return s.User != "" },
			"no user with zookeeper: its client here has no authentication"},
		{paramCAFile, (*Spec).Secured, "no TLS with zookeeper: its client here has plain connections only"},
	},
}

const noRanges = "not with zookeeper, which has no ranges of keys: a read is of one key"

// validateStore refuses what the store cannot do.
func (s *Spec) validateStore() *Problem {
	for _, missing := range lacks[s.Store] {
		if missing.asked(s) {
			return s.problem(missing.parameter, missing.allowed)
		}
	}
	return nil
}
