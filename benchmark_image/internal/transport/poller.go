package transport

import (
	"sync"
	"time"

	"containernet-env/benchmark_image/internal/world"
)

// poller is a world.Poller with a queue of what other goroutines want from the one that waits.
type poller struct {
	world.Poller
	armed time.Duration // when the timer fires; 0: not set

	mu     sync.Mutex
	posted []func()
	woken  []int
	taken  []int // the array of woken before take
	closed bool
}

// wakeAt makes Wait return a TimerToken at the given time, and maybe earlier. now is on the same clock.
func (p *poller) wakeAt(at, now time.Duration) error {
	if p.armed != 0 && p.armed <= at {
		return nil
	}
	p.armed = at
	return p.SetTimer(at - now)
}

// post hands a function to the goroutine that waits; it returns false when that has ended.
func (p *poller) post(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.signal()
	p.posted = append(p.posted, f)
	return true
}

// wake makes the goroutine that waits let a client go on. Wakes come before what is posted later.
func (p *poller) wake(client int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.signal()
		p.woken = append(p.woken, client)
	}
}

// signal makes Wait return.
func (p *poller) signal() {
	if len(p.posted) == 0 && len(p.woken) == 0 {
		p.Wake()
	}
}

// take gives the clients that were woken, valid until the next call, and what was posted.
func (p *poller) take() (woken []int, posted []func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	woken, posted = p.woken, p.posted
	p.woken, p.taken, p.posted = p.taken[:0], woken, nil
	return woken, posted
}

// refuse makes post return false from now on, and gives what was posted before.
func (p *poller) refuse() []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	posted := p.posted
	p.posted, p.closed = nil, true
	return posted
}
