package transport

import (
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// busyTargeter needs the processor for as long as it says for each request.
type busyTargeter struct {
	load.Targeter
	w    *worldtest.World
	each time.Duration
}

func (b busyTargeter) Target(r *load.Request) {
	b.w.Busy(b.each)
	b.Targeter.Target(r)
}

// TestALoopThatHasTooMuchToDoSaysSo: the member answers as fast as it is asked, which is at a quarter of the rate.
func TestALoopThatHasTooMuchToDoSaysSo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		transport := openFor(t, w, Options{Endpoints: cluster.Endpoints(), Conns: 4})
		o := puts(w, 300, 100)
		o.Targeter = busyTargeter{o.Targeter, w, 4 * time.Millisecond}
		o.Pacer = load.NewOpenLoop(load.Constant(1000), 300, 0, 300)
		late, own := 0, 0
		for _, record := range load.NewRun(o).Attack(t.Context(), transport).Records {
			if record.Late() {
				late++
				if record.Own() {
					own++
				}
			}
		}
		// The loop rests while the first answers are on their way.
		if late < 290 || own < late-1 {
			t.Errorf("%d were late, %d of them by the generator", late, own)
		}
	})
}
