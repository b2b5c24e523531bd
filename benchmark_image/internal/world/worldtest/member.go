package worldtest

import (
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
	Endpoint string
	// Think gives how long a request takes until it is carried out, and then until it is answered; nil: no time.
	Think func() (before, after time.Duration)
	// Watch is called with each write when it arrives, when it was carried out, and when it is answered; err is what it
	// was refused with. nil: it is not.
	Watch func(stage Stage, key string, value []byte, err error)

	w    *World // nil: the real world
	mu   sync.Mutex
	open []*Session
	over chan struct{} // closed when it hangs no more; nil: it does not hang
}

// Session is one connection of a Member.
type Session struct {
	*Conn
	Bye     func() // says that no more requests are taken; nil: the protocol cannot
	Leaving bool
	member  *Member
	active  int // requests
	taken   int // in all
}

// Request is what a Member works on.
type Request struct {
	Key      string
	Value    []byte                            // of a write; nil: it is another request
	CarryOut func() (answer []byte, err error) // err is what it is refused with
	Answer   func() error                      // nil: the answer is written as it is
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
	m.Endpoint = m.Listener.Endpoint
	w.AtEnd(m.Release)
}

// Take takes a request. What it gives carries the request out and answers it; with an error, the connection is at its
// end.
func (s *Session) Take(r Request) (rest func() error) {
	m, before, after := s.member, time.Duration(0), time.Duration(0)
	if m.Think != nil {
		before, after = m.Think()
	}
	note := func(stage Stage, err error) {
		if m.Watch != nil && r.Value != nil {
			m.Watch(stage, r.Key, r.Value, err)
		}
	}
	s.active++
	s.taken++
	request := s.taken
	sleep := func(d time.Duration) { m.w.sleep(request, s.number+2, d) } // Sleep would look its goroutine up
	note(Arrived, nil)
	return func() error {
		sleep(before)
		answer, err := r.CarryOut()
		note(CarriedOut, err)
		sleep(after)
		note(Answered, err)
		if r.Answer != nil {
			err = r.Answer()
		} else {
			_, err = s.Write(answer)
		}
		s.active--
		s.endIfLeft()
		return err
	}
}

// Exchange is all of Take, once the member does not hang.
func (s *Session) Exchange(r Request) error {
	carryOut := r.CarryOut
	r.CarryOut = func() ([]byte, error) {
		s.member.Pass()
		return carryOut()
	}
	return s.Take(r)()
}

func (s *Session) endIfLeft() {
	if s.Leaving && s.active == 0 {
		_ = s.Close() // it never fails
	}
}

// hanging is closed when the member does not hang any more; nil: it does not.
func (m *Member) hanging() chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// Pass returns once the member does not hang.
func (m *Member) Pass() {
	if over := m.hanging(); over != nil {
		if <-over; m.w != nil {
			m.w.Sleep(0) // one after the other
		}
	}
}

// Hang makes the member answer nothing until Release.
func (m *Member) Hang() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over == nil {
		m.over = make(chan struct{})
	}
}

// Hangs reports whether the member does.
func (m *Member) Hangs() bool { return m.hanging() != nil }

// Release undoes Hang.
func (m *Member) Release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over != nil {
		close(m.over)
		m.over = nil
	}
}

// Stop ends the member: its connections are cut and new ones refused.
func (m *Member) Stop() {
	m.Listener.Refuse(true)
	m.Listener.Reset()
	m.Release()
}

// Leave ends the member's connections in order: requests that it works on are still answered.
func (m *Member) Leave() {
	m.mu.Lock()
	open := slices.Clone(m.open)
	m.mu.Unlock()
	for _, s := range open {
		if s.Leaving = true; s.Bye != nil {
			s.Bye()
		}
		s.endIfLeft()
	}
}
