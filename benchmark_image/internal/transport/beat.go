package transport

import "containernet-env/benchmark_image/internal/store"

// keepBeating begins the beats of all connections, where one that has become ready needs them. All share one timer, of
// the shortest interval that any needs.
func (l *loop) keepBeating(k *link) {
	needs, ok := k.protocol.(store.Beater)
	if !ok {
		return
	}
	interval := needs.Interval()
	if l.beat == 0 {
		l.after(interval, l.beatAll)
		l.beat = interval
	}
	l.beat = min(l.beat, interval)
}

// beatAll lets each connection send what its member needs to hear.
func (l *loop) beatAll() {
	for _, k := range l.links {
		if k == nil || k.connecting {
			continue
		}
		if needs, ok := k.protocol.(store.Beater); ok && k.protocol.Ready() {
			if needs.Beat(); len(k.protocol.Output()) > 0 {
				l.markDirty(k)
			}
		}
	}
	l.after(l.beat, l.beatAll)
}
