package client

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/report"
	"containernet-env/benchmark_image/internal/secure"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// TestAnyNumberOfPoissonStartsBeginsAtOnce: to compute those of a day at the highest rate takes half an hour.
func TestAnyNumberOfPoissonStartsBeginsAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *worldtest.World) {
		cluster := etcdtest.Simulate(w, 1, nil)
		member := cluster.Members[0]
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		ended := make(chan int)
		var stdout, stderr strings.Builder
		go func() {
			ended <- mainIn(ctx, w, "dev", secure.Files,
				strings.Fields("put --total=80000000000 --rate=1000000 --arrival=poisson --clients=4 "+
					"--key-space-size=100 --output=json --endpoints="+member.Endpoint), &stdout, &stderr)
		}()
		w.Until(func() bool { return member.Requests.Load() > 20 })
		cancel(ErrCancelled)
		<-ended
		var result report.Result
		if err := json.Unmarshal([]byte(stdout.String()), &result); err != nil {
			t.Fatal(err)
		}
		if o := result.Outcomes; o.OK == 0 || o.Failed != 0 || !strings.HasPrefix(result.Problem(),
			"cancelled") || *result.RateAchieved <= 0 {
			t.Errorf("%+v, %s", o, stderr.String())
		}
	})
}

// TestTheLastStartOfAPoissonSchedule: where it is not computed, it is before the time that stands for it, and close to
// that.
func TestTheLastStartOfAPoissonSchedule(t *testing.T) {
	s := spec.Default(spec.Put)
	s.Rate, s.Arrival = 1000, spec.Poisson
	for _, total := range []int{1, countedAhead, countedAhead + 1} {
		s.Total = total
		b := &benchmark{spec: &s}
		options, _ := b.options(t.Context())
		exact := options.Pacer.(load.OpenLoop).Last()
		got := b.plan(&options).LastStart
		if total <= countedAhead && got != exact || got < exact || float64(got-exact) > 0.004*math.Max(float64(exact), 1) {
			t.Errorf("%d requests: the last start is %v, planned is %v", total, exact, got)
		}
	}
}
