package transport

import (
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
)

// busyTargeter needs the processor for as long as it says for each request.
type busyTargeter struct {
	load.Targeter
	each time.Duration
}

func (b busyTargeter) Target(r *load.Request) {
	for begin := time.Now(); time.Since(begin) < b.each; {
	}
	b.Targeter.Target(r)
}

// TestALoopThatHasTooMuchToDoSaysSo: the member answers as fast as it is asked, which is at a quarter of the rate. The
// loop has all clients' requests to send before it waits for an answer: at 4 ms each, a member on a busy machine has
// 400 ms for its own.
func TestALoopThatHasTooMuchToDoSaysSo(t *testing.T) {
	cluster := etcdtest.Start(t, 1)
	transport := openFor(t, Options{Endpoints: cluster.Endpoints(), Conns: 4})
	o := puts(300, 100)
	o.Targeter = busyTargeter{o.Targeter, 4 * time.Millisecond}
	o.Pacer = load.NewOpenLoop(load.Constant(1000), 300, 0, 300)
	late, own := 0, 0
	// Where the machine is busy with other things, so that the member is slow too, there are more chances.
	for chance := 0; chance < 5 && (late < 200 || own < late*9/10); chance++ {
		late, own = 0, 0
		for _, record := range load.NewRun(o).Attack(t.Context(), transport).Records {
			if record.Late() {
				late++
				if record.Own() {
					own++
				}
			}
		}
	}
	if late < 200 || own < late*9/10 {
		t.Errorf("%d were late, %d of them by the generator", late, own)
	}
}
