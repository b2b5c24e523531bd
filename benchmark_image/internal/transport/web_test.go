package transport

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"containernet-env/benchmark_image/internal/store/keyvalue"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// service is any key-value service.
var service = &keyvalue.Protocol{Put: "/v1/kv/{key}?ack=2", Get: "/v1/kv/{key}?from=2", Written: []int{200, 201, 204},
	Found: []int{200}, Absent: []int{404}}

// web is a store behind HTTP in a world, with as much of Consul's API as a load needs.
type web struct {
	members []*worldtest.Member
	leader  int // from 1

	mu     sync.Mutex
	index  int // of the last write
	values map[string][]byte
	mods   map[string]int // the index of the last write of each key
}

func startWeb(w *worldtest.World, members int) *web {
	s := &web{leader: 1, values: make(map[string][]byte), mods: make(map[string]int)}
	for i := range members {
		m := new(worldtest.Member)
		m.Start(w, func(c *worldtest.Session) { s.serve(c, i) })
		s.members = append(s.members, m)
	}
	return s
}

func (s *web) serve(c *worldtest.Session, member int) {
	from := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(from)
		if err != nil {
			return
		}
		value, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		key, ofKey := strings.CutPrefix(r.URL.Path, "/v1/kv/")
		request := worldtest.Request{Key: key, CarryOut: func() ([]byte, error) { return s.carryOut(key, value), nil }}
		if !ofKey {
			request.CarryOut = func() ([]byte, error) { return s.status(r.URL.Path, member), nil }
		} else if r.Method == http.MethodPut {
			request.Value = value
		}
		if c.Exchange(request) != nil {
			return
		}
	}
}

func (s *web) carryOut(key string, value []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	status, body := 200, []byte("true")
	if len(value) > 0 {
		s.index++
		s.values[key], s.mods[key] = value, s.index
	} else if body = s.values[key]; body == nil {
		status = 404
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d ?\r\nX-Consul-Index: %d\r\nContent-Length: %d\r\n\r\n%s", status,
		s.mods[key], len(body), body)
}

// status says who a member is, or who leads, by the ports of their RPC.
func (s *web) status(path string, member int) []byte {
	body := fmt.Sprintf(`"10.0.0.%d:8300"`, s.leader)
	if path == "/v1/agent/self" {
		body = fmt.Sprintf(`{"Member":{"Addr":"10.0.0.%d","Tags":{"port":"8300"}}}`, member+1)
	}
	return fmt.Appendf(nil, "HTTP/1.1 200 ?\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}
