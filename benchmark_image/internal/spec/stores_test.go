package spec

import (
	"slices"
	"strings"
	"testing"
)

// TestWhatStoresLack asks each store for something that it does not have.
func TestWhatStoresLack(t *testing.T) {
	for _, c := range []struct {
		store     string
		operation Operation
		body      string // without endpoints and store
		field     string // empty: it has that
		reason    string
	}{
		{ZooKeeper, Range, `"key":"k"`, "", ""},
		{ZooKeeper, Range, `"key":"k","consistency":"s","requireFound":true`, "", ""},
		{ZooKeeper, Mixed, `"keySpace":9,"valSize":20,"verify":true,"history":true`, "", ""},
		{ZooKeeper, Txn, `"valSize":1000000,"targetLeader":true`, "", ""},
		{ZooKeeper, Range, `"key":"k","endRange":"l"`, "endRange", "no ranges of keys"},
		{ZooKeeper, Range, `"key":"k","endRange":"\u0000"`, "endRange", "no ranges of keys"},
		{ZooKeeper, Range, `"key":"k","prefix":true`, "prefix", "no ranges of keys"},
		{ZooKeeper, Range, `"keySize":8,"spanKeys":2`, "spanKeys", "no ranges of keys"},
		{ZooKeeper, Mixed, `"keySpace":9,"spanKeys":2`, "spanKeys", "no ranges of keys"},
		{ZooKeeper, Range, `"key":"k","limit":1`, "limit", "no ranges of keys"},
		{ZooKeeper, Range, `"key":"k","countOnly":true`, "countOnly", "one key with its value"},
		{ZooKeeper, Range, `"key":"k","keysOnly":true`, "keysOnly", "one key with its value"},
		{ZooKeeper, Put, `"valSize":1000001`, "valSize", "at most 1000000 bytes"},
		{ZooKeeper, Put, `"user":"me"`, "user", "no authentication"},
		{ZooKeeper, Put, `"caFile":"f"`, "caFile", "plain connections only"},
		{"cassandra", Put, `"total":1`, "store", `"etcd" or "zookeeper"`},
	} {
		_, problem := ParseBody(c.operation, []byte(`{"endpoints":"a:1","store":"`+c.store+`",`+c.body+`}`))
		switch {
		case c.field == "" && problem != nil:
			t.Errorf("%s %v %s: %v", c.store, c.operation, c.body, problem)
		case c.field == "":
		case problem == nil || problem.Field != c.field || !strings.Contains(problem.Message, c.reason):
			t.Errorf("%s %v %s: %v, want %s: %s", c.store, c.operation, c.body, problem, c.field, c.reason)
		}
	}
}

func TestEachStoreHasItsEndpoint(t *testing.T) {
	for _, name := range storeNames {
		s := Default(Put)
		s.Store = name
		s.Complete(func(string) bool { return false })
		if s.Endpoints[0] != defaultEndpoints[name] || s.Validate() != nil {
			t.Errorf("%s: endpoints %v, %v", name, s.Endpoints, s.Validate())
		}
		s.Endpoints = []string{"a:1"}
		s.Complete(func(name string) bool { return name == paramEndpoints.Name })
		if !slices.Equal(s.Endpoints, []string{"a:1"}) {
			t.Errorf("%s: endpoints %v in place of those that were given", name, s.Endpoints)
		}
	}
}
