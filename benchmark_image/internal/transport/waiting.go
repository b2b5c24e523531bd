package transport

import "time"

// releaseInterval is half of how long output may wait. All connections share one timer for it.
const releaseInterval = 250 * time.Millisecond

// flush writes until the output is empty or the socket takes no more, unless the output waits for more.
func (l *loop) flush(k *link) {
	if k.dead || !k.protocol.Waits() {
		l.write(k)
		return
	}
	if k.waits == 0 {
		k.waits = l.releases
	}
	if !k.listed {
		if len(l.waiting) == 0 {
			l.after(releaseInterval, l.release)
		}
		k.listed = true
		l.waiting = append(l.waiting, k)
	}
}

// release writes what has waited since the release before this one.
func (l *loop) release() {
	l.releases++
	still := l.waiting[:0]
	for _, k := range l.waiting {
		if k.dead || k.waits == 0 {
			k.listed = false
		} else if k.waits == l.releases-1 {
			still = append(still, k)
		} else {
			k.listed = false
			l.write(k)
		}
	}
	clear(l.waiting[len(still):])
	if l.waiting = still; len(still) > 0 {
		l.after(releaseInterval, l.release)
	}
}
