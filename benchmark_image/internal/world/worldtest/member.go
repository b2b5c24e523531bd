package worldtest

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// Stage is what a member does with a request.
type Stage int

// The stages.
const (
	Arrived Stage = iota
	CarriedOut
	Answered
)

// Member is what the members of stores have in common.
type Member struct {
	Listener *Listener
	// Think gives how long a request takes until it is carried out, and then until it is answered; nil: no time.
	Think func() (before, after time.Duration)
	// Watch is called with each write when it arrives, when it was carried out, and when it is answered; err is what it
	// was refused with. nil: it is not.
	Watch func(stage Stage, key string, value []byte, err error)

	w       *World // nil: the real world
	mu      sync.Mutex
	open    []*Session
	hangs   bool
	waiting []chan struct{} // of connections, while it hangs
}

// Session is one connection of a Member.
type Session struct {
	*Conn
	member        *Member
	busy, leaving bool
}

// Request is what a Member works on.
type Request struct {
	Key      string
	Value    []byte                            // of a write; nil: it is another request
	CarryOut func() (answer []byte, err error) // err is what it is refused with
}

// Start lets a member serve its connections with a function.
func (m *Member) Start(w *World, serve func(*Session)) {
	m.w = w
	m.Listener = w.Listen(func(c *Conn) {
		s := &Session{Conn: c, member: m}
		m.mu.Lock()
		m.open = append(m.open, s)
		m.mu.Unlock()
		serve(s)
		m.mu.Lock()
		m.open = slices.DeleteFunc(m.open, func(other *Session) bool { return other == s })
		m.mu.Unlock()
	})
	w.AtEnd(func() { m.release(func(over chan struct{}) { close(over) }) })
}

var errLeaves = errors.New("the member leaves")

// Exchange carries out a request and answers it. With an error, the connection is at its end.
func (s *Session) Exchange(r Request) error {
	m := s.member
	before, after := m.Thinks()
	s.busy = true
	m.Note(Arrived, r.Key, r.Value, nil)
	m.w.Sleep(before)
	m.Pass()
	answer, err := r.CarryOut()
	m.Note(CarriedOut, r.Key, r.Value, err)
	m.w.Sleep(after)
	m.Note(Answered, r.Key, r.Value, err)
	_, err = s.Write(answer)
	if s.busy = false; s.leaving {
		err = errLeaves
	}
	return err
}

// Thinks calls Think.
func (m *Member) Thinks() (before, after time.Duration) {
	if m.Think == nil {
		return 0, 0
	}
	return m.Think()
}

// Note calls Watch for a write.
func (m *Member) Note(stage Stage, key string, value []byte, err error) {
	if m.Watch != nil && value != nil {
		m.Watch(stage, key, value, err)
	}
}

// Pass returns once the member does not hang.
func (m *Member) Pass() {
	m.mu.Lock()
	if !m.hangs {
		m.mu.Unlock()
		return
	}
	over := make(chan struct{})
	m.waiting = append(m.waiting, over)
	m.mu.Unlock()
	<-over
}

// Hang makes the member answer nothing until Release.
func (m *Member) Hang() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hangs = true
}

// Hangs reports whether the member does.
func (m *Member) Hangs() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hangs
}

// Release undoes Hang.
func (m *Member) Release() {
	m.release(func(over chan struct{}) {
		if m.w == nil {
			close(over)
			return
		}
		m.w.After(0, func() { close(over) }) // one after the other
	})
}

func (m *Member) release(waiter func(chan struct{})) {
	m.mu.Lock()
	waiting := m.waiting
	m.hangs, m.waiting = false, nil
	m.mu.Unlock()
	for _, over := range waiting {
		waiter(over)
	}
}

// Stop ends the member: its connections are cut and new ones refused.
func (m *Member) Stop() {
	m.Listener.Refuse(true)
	m.Listener.Reset()
	m.Release()
}

// Leave ends the member's connections in order: a request that it works on is still answered.
func (m *Member) Leave() {
	m.mu.Lock()
	open := slices.Clone(m.open)
	m.mu.Unlock()
	for _, s := range open {
		if s.leaving = true; !s.busy {
			_ = s.Close() // it never fails
		}
	}
}
