package load

import (
	"sync"
	"sync/atomic"
	"time"
)

// streak counts the failures of one kind of requests since its last success. Only failures, and the success that ends
// them, take its lock.
type streak struct {
	begun    atomic.Bool
	mu       sync.Mutex
	failures int
	first    time.Duration // start of the first one
}

func (s *streak) fail(start time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures++; s.failures == 1 {
		s.first = start
		s.begun.Store(true)
	}
}

func (s *streak) end() {
	if !s.begun.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = 0
	s.begun.Store(false)
}

// since is the start of the first request of a streak. A single failure is no streak: where requests of a kind are
// rare, the next one comes much later.
func (s *streak) since() (start time.Duration, long bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first, s.failures > 1
}
