package transport

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/load"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/etcd/etcdtest"
	"containernet-env/benchmark_image/internal/store/keyvalue"
	"containernet-env/benchmark_image/internal/store/zookeeper"
	"containernet-env/benchmark_image/internal/store/zookeeper/zookeepertest"
	"containernet-env/benchmark_image/internal/world/worldtest"
)

// seeds are those of the worlds that are tried: CONTAINERNET_ENV_SEED is the first seed, CONTAINERNET_ENV_SEEDS how
// many there are, or "long".
func seeds() (first, many uint64) {
	number := func(name, usual string) uint64 {
		text := strings.Replace(cmp.Or(os.Getenv(name), usual), "long", "100000", 1)
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	return number("CONTAINERNET_ENV_SEED", "1"), number("CONTAINERNET_ENV_SEEDS", "2000")
}

// TestWorlds runs loads in simulated worlds, each with a store, members, faults and stops of the process of its own,
// and checks all outcomes and times against what the members did. The first ones run twice: nothing but the seed decides
// what happens.
func TestWorlds(t *testing.T) {
	first, many := seeds()
	for seed := first; seed < first+many && !t.Failed(); seed++ {
		traces := map[string]bool{}
		for run := 0; run == 0 || run == 1 && seed < first+100; run++ {
			worldtest.Run(t, seed, func(t *testing.T, w *worldtest.World) {
				trial := newTrial(t, w)
				trial.run()
				trial.judge()
				traces[trial.trace()] = true
			})
		}
		assert.That(t, len(traces) == 1, "seed %d: two runs differ: %v", seed, traces)
	}
}

// trial is a load in a simulated world.
type trial struct {
	t       *testing.T
	w       *worldtest.World
	random  *rand.Rand
	kind    kind
	members []member
	elect   func(id int)
	users   *etcdtest.Users // nil: everyone may use the store
	values  *keys.Values

	protocol store.Protocol
	options  Options
	load     load.Options
	total    int           // requests that the measurement has at most
	starts   load.Schedule // nil: a closed loop
	faults   []fault
	losses   []loss
	steps    map[int]time.Duration // stops of the process within its calls
	script   []string              // what there is, for messages

	latency time.Duration
	exact   bool // what is sent takes the latency and no more, and connections stay
	hangs   bool
	few     bool          // requests at a time on a connection
	elected time.Duration // the last time, since the start of the load; 0: never
	leader  int

	elections int
	expiries  int
	leads     int // now
	transport *Transport
	run2      *load.Run
	result    load.Result
	cancelled bool

	judged atomic.Int64 // connections

	stops []worldtest.Stop // those that follow each other at once are one

	mu       sync.Mutex
	problems int
	epoch    time.Time           // of the measurement
	records  map[int]load.Record // by number; nil: it has not begun
	lastEnd  time.Duration
	requests map[int]*request
}

// jitter is that of members that have some.
const jitter = 3 * time.Millisecond

// kind is the store of a trial.
type kind int

const (
	etcdStore kind = iota
	zooKeeperStore
	consulStore
	httpStore
)

// member is one of any store.
type member struct {
	*worldtest.Member
	hang func()
}

// fault is done to the members or to the process, since the start of the load.
type fault struct {
	at time.Duration
	do func()
}

// loss is the end of all connections of a member.
type loss struct {
	member int
	at     time.Duration
}

// request is what the members know of a put.
type request struct {
	member     int
	arrived    []time.Duration
	carriedOut int
	refused    int
	answered   time.Duration // well; 0: it was not
}

func emptyTrial(t *testing.T, w *worldtest.World) *trial {
	return &trial{t: t, w: w, leads: 1, random: w.Random(0), values: keys.NewValues(64, 0), exact: true,
		options:  Options{Spec: &spec.Spec{}},
		requests: make(map[int]*request), steps: make(map[int]time.Duration)}
}

func newTrial(t *testing.T, w *worldtest.World) *trial {
	s := emptyTrial(t, w)
	s.kind = max(0, kind(s.random.IntN(6)-2)) // each second one is etcd
	if s.kind == etcdStore && s.one(4) {
		s.users = &etcdtest.Users{Name: "root", Password: "secret"}
	}
	s.makeMembers(1 + s.random.IntN(3))
	s.makeLoad()
	if s.users != nil {
		s.addExpiries(s.ms(0, 150))
	}
	if s.options.TargetLeader && s.one(2) {
		s.addElection(s.ms(0, 300), s.ms(1, 400))
	}
	for range s.random.IntN(4) {
		s.addFault()
	}
	return s
}

// one is true once in so many times.
func (s *trial) one(in int) bool { return s.random.IntN(in) == 0 }

// ms draws a time in whole milliseconds.
func (s *trial) ms(from, to int) time.Duration {
	return time.Duration(from+s.random.IntN(to-from+1)) * time.Millisecond
}

func (s *trial) note(format string, arguments ...any) {
	s.script = append(s.script, fmt.Sprintf(format, arguments...))
}

func (s *trial) makeMembers(members int) {
	s.latency = s.ms(0, 5) + time.Microsecond
	jitters, pieces, narrow := s.one(5), s.one(5), s.one(8)
	s.exact = !jitters && !pieces && !narrow
	slow, streams := s.ms(0, 12), s.one(6)
	s.few = streams || s.kind != etcdStore
	thinks := func(i int) func() (before, after time.Duration) {
		think := s.w.Random(uint64(i) + 100)
		return func() (before, after time.Duration) {
			return time.Duration(think.Int64N(int64(slow) + 1)), time.Duration(think.Int64N(int64(slow)/4 + 1))
		}
	}
	switch s.kind {
	case etcdStore:
		cluster := etcdtest.Simulate(s.w, members, s.users)
		s.protocol, s.elect = etcd.Protocol{}, func(id int) { cluster.Elect(uint64(id)) }
		if s.users != nil {
			s.protocol = rooted("secret")
		}
		for _, m := range cluster.Members {
			if streams {
				m.Settings = []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: uint32(1 + s.random.IntN(2))}}
			}
			s.members = append(s.members, member{&m.Member, m.Hang})
		}
	case zooKeeperStore:
		cluster := zookeepertest.Simulate(s.w, members)
		s.protocol, s.elect = zookeeper.New(""), cluster.Elect
		for _, m := range cluster.Members {
			s.members = append(s.members, member{&m.Member, m.Hang})
		}
	default:
		web := startWeb(s.w, members)
		s.protocol, s.elect = service, func(id int) { web.leader = id }
		for _, m := range web.members {
			s.members = append(s.members, member{m, m.Hang})
		}
		if s.kind == consulStore {
			s.protocol = consul.Protocol{}
		}
	}
	for i, m := range s.members {
		m.Think = thinks(i)
		m.Watch = func(stage worldtest.Stage, key string, value []byte, err error) { s.watch(i, stage, key, value, err) }
		l := m.Listener
		if l.Latency, l.Pieces = s.latency, pieces; jitters {
			l.Jitter = jitter
		}
		if narrow {
			l.Window = 300
		}
		s.options.Endpoints = append(s.options.Endpoints, l.Endpoint)
	}
	s.note("%d members of %T, %v away, jitter %v, pieces %v, narrow %v, few streams %v, slow by up to %v, users %v",
		members, s.protocol, s.latency, jitters, pieces, narrow, streams, slow, s.users != nil)
}

func (s *trial) makeLoad() {
	o := Options{Spec: &spec.Spec{Endpoints: s.options.Endpoints, Conns: 1 + s.random.IntN(6),
		TargetLeader: s.one(3) && s.kind != httpStore, DialTimeout: 5 * time.Second, RequestTimeout: s.ms(15, 300)},
		World: s.w}
	if s.one(3) {
		o.LostTimeout = s.ms(200, 800)
	}
	if o.TargetLeader && s.one(2) {
		o.RequestTimeout += time.Second // longer than what a deposed leader has
	}
	total, warm := 20+s.random.IntN(130), s.random.IntN(3)*10
	s.total = total
	o.Clients = 1 + s.random.IntN(12)
	s.load = load.Options{Spec: o.Spec, ID: 7, Sink: s, World: s.w}
	if s.one(3) {
		s.load.StallTimeout = s.ms(80, 900)
	}
	space := warm + total
	puts := &load.Puts{KeySize: 4, Values: s.values, Unique: true}
	if mixed := s.one(3); mixed {
		space = 1 + s.random.IntN(20)
		s.load.Promises = load.NewPromises(space)
		puts.Order, puts.Promises = keys.NewUniform(space, int64(s.w.Seed)), s.load.Promises
		s.load.Targeter = &load.Mixed{Puts: puts, Ratio: 0.6, Draw: keys.NewDraw(int64(s.w.Seed), keys.StreamKinds).At,
			Reads: &load.Reads{KeySize: 4, Order: puts.Order, Verify: s.values, Promises: s.load.Promises}}
	} else {
		puts.Order = keys.NewOrder(space, true, 0)
		s.load.Targeter = puts
	}
	duration := time.Duration(0)
	if s.one(4) {
		duration = s.ms(50, 600)
	}
	switch s.random.IntN(3) {
	case 0:
		if s.load.Pacer = (load.Pacer{Total: total, Duration: duration}); warm > 0 {
			s.load.Warmup = &load.Pacer{Total: warm}
		}
	default:
		rate := float64(20 + s.random.IntN(1500))
		s.starts = load.Constant(rate)
		if s.one(2) {
			s.starts = load.NewPoisson(rate, keys.NewDraw(int64(s.w.Seed), keys.StreamArrival).At)
		}
		measured := s.starts
		if warm > 0 {
			s.load.Warmup = &load.Pacer{Schedule: s.starts, Total: warm}
			measured = s.load.Warmup.Rest()
		}
		loop := load.NewOpenLoop(measured, total, duration)
		s.load.Pacer, s.total = loop, loop.Total
	}
	s.options = o
	s.note("%T %T, %d requests after %d, duration %v, %d clients, %d connections, leader %v, timeout %v, lost after %v, "+
		"stalled after %v, %T", s.load.Pacer, s.starts, s.total, warm, duration, s.load.Clients, o.Conns, o.TargetLeader,
		o.RequestTimeout, o.LostTimeout, s.load.StallTimeout, s.load.Targeter)
}

// addFault adds something that goes wrong.
func (s *trial) addFault() {
	at, d := s.ms(0, 500), s.ms(1, 400)
	if s.one(10) {
		d = 10 * d
	}
	number := s.random.IntN(len(s.members))
	m := s.members[number]
	add := func(name string, do func()) {
		s.faults = append(s.faults, fault{at, do})
		s.note("at %v %s", at, name)
	}
	l := m.Listener
	of := func(what string) string { return fmt.Sprintf("%s %s for %v", l.Endpoint, what, d) }
	switch s.random.IntN(9) {
	case 0, 1:
		add(fmt.Sprintf("the process is stopped for %v", d), func() { s.w.StopProcess(d) })
	case 2:
		for range 1 + s.random.IntN(3) {
			call := 1 + s.random.IntN(500)
			s.steps[call] = d
			s.note("in call %d the process is stopped for %v", call, d)
		}
	case 3:
		s.hangs = true
		add(of("hangs"), func() {
			m.hang()
			s.w.After(d, m.Release)
		})
	case 4:
		s.exact = false
		add(of("is gone"), func() {
			l.Refuse(true)
			l.Reset()
			s.losses = append(s.losses, loss{number, s.w.Now()})
			s.w.After(d, func() { l.Refuse(false) })
		})
	case 5:
		s.exact = false
		add(of("is cut off"), func() {
			l.Drop(true)
			l.Cut()
			s.w.After(d, func() { l.Drop(false) })
		})
	case 6:
		s.exact = false
		add(l.Endpoint+" closes its connections in order", m.Leave)
	case 7:
		if s.users != nil {
			s.addExpiries(at)
		} else {
			s.addElection(at, d)
		}
	case 8:
		add("the run is cancelled", func() {
			s.cancelled = true
			s.run2.Stop("cancelled")
		})
	}
}

// addElection lets a member be elected, and maybe the one before it hang for a time, and then answer from a term that
// is over.
func (s *trial) addElection(at, hangs time.Duration) {
	leader, stuck := 1+s.random.IntN(len(s.members)), s.one(2)
	if at == s.elected {
		return
	}
	if at > s.elected {
		s.elected, s.leader = at, leader
	}
	s.elections++
	s.hangs = s.hangs || stuck && s.elections > 1 // the new leader may hang
	s.note("at %v member %d is elected, and the one before it hangs for %v: %v", at, leader, hangs, stuck)
	s.faults = append(s.faults, fault{at, func() {
		if old := s.members[s.leads-1]; stuck {
			old.hang()
			s.w.After(hangs, old.Release)
		}
		s.leads = leader
		s.elect(leader)
	}})
}

// addExpiries lets all tokens expire, once or shortly after each other, so that a request meets several expiries.
func (s *trial) addExpiries(at time.Duration) {
	for range 1 + s.random.IntN(4) {
		s.expiries++
		s.faults = append(s.faults, fault{at, s.users.Expire})
		s.note("at %v all tokens expire", at)
		at += s.ms(1, 15)
	}
}

// watch takes what a member does with a put.
func (s *trial) watch(member int, stage worldtest.Stage, name string, value []byte, err error) {
	key, _ := keys.Number([]byte(name), "", 4)
	id, ok := s.values.Writer(key, value)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok {
		s.problem("a member got a value that no request has")
		return
	}
	r := s.requests[id.Number]
	if r == nil {
		r = &request{member: member}
		s.requests[id.Number] = r
	}
	switch {
	case stage == worldtest.Arrived:
		r.arrived = append(r.arrived, s.w.Now())
	case stage == worldtest.Answered:
		if err == nil {
			r.answered = s.w.Now()
		}
	case err == nil:
		r.carriedOut++
	default:
		r.refused++
	}
}

// Begin and Add implement load.Sink.
func (s *trial) Begin(epoch time.Time) {
	if s.records != nil {
		s.problem("the measurement begins twice")
	}
	s.epoch, s.records = epoch, make(map[int]load.Record)
}

func (s *trial) Add(number int, outcome load.Record) {
	if _, twice := s.records[number]; twice || s.records == nil {
		s.problem("request %d has two outcomes, or one before the measurement", number)
		return
	}
	if outcome.End() < s.lastEnd-1 { // a request that fails at once takes 1 ns
		s.problem("the outcome of request %d comes late", number)
	}
	s.records[number], s.lastEnd = outcome, outcome.End()
}

func (s *trial) problem(format string, arguments ...any) {
	if s.problems++; s.problems == 1 {
		s.t.Errorf("seed %d: %s\nreplay it: CONTAINERNET_ENV_SEED=%[1]d CONTAINERNET_ENV_SEEDS=1 go test "+
			"./internal/transport -run %[3]s", s.w.Seed, strings.Join(s.script, "; "), s.t.Name())
	}
	if s.problems < 10 {
		s.t.Errorf("seed %d: %s", s.w.Seed, fmt.Sprintf(format, arguments...))
	}
}

func (s *trial) run() {
	s.options.Permit = func(string, netip.AddrPort) error {
		s.judged.Add(1)
		return nil
	}
	transport, err := Open(s.t.Context(), s.protocol, s.options)
	if err != nil {
		s.problem("open: %v", err)
		return
	}
	s.transport, s.run2 = transport, load.NewRun(s.load)
	for _, f := range s.faults {
		s.w.After(f.at, f.do)
	}
	s.w.StopIn(func(number int) time.Duration { return s.steps[number] })
	s.result = s.run2.Attack(s.t.Context(), transport)
	transport.Close()
	s.w.StopIn(nil)
	s.w.Sleep(10 * time.Second) // what is still on its way arrives
}

// trace is all that a load has led to.
func (s *trial) trace() string {
	result := s.result
	result.Warmup, result.Idle = nil, nil // pointers
	var b strings.Builder
	fmt.Fprintf(&b, "%+v %v\n", result, s.script)
	for number := range s.result.Due + len(s.records) {
		fmt.Fprintln(&b, number, s.records[number], s.requests[number])
	}
	return b.String()
}

// judge checks everything.
func (s *trial) judge() {
	if s.transport == nil {
		return
	}
	total, duration := s.total, s.load.Pacer.Duration
	for _, stop := range s.w.Stops() {
		if last := len(s.stops) - 1; last >= 0 && s.stops[last].To >= stop.From {
			s.stops[last].To = max(s.stops[last].To, stop.To)
		} else {
			s.stops = append(s.stops, stop)
		}
	}
	for number, r := range s.requests {
		s.judgeRequest(number, r)
	}
	for i := range s.records {
		if i < 0 || i >= total {
			s.problem("request %d is not one of the load", i)
		}
	}
	if !s.result.Measured {
		if s.result.Reason == "" {
			s.problem("nothing is measured, and there is no reason")
		}
		return
	}
	for i := range total {
		record, sent := s.records[i]
		switch {
		case sent && record.Outcome != load.NotSent:
			s.judgeRecord(i, record)
		case s.result.Reason == "" && duration == 0:
			s.problem("request %d has no outcome", i)
		default:
			// One that was refused because of its token has not been sent again yet.
			if r := s.requests[s.result.First+i]; r != nil && len(r.arrived) > r.refused {
				s.problem("request %d has no outcome, and was sent", i)
			}
		}
	}
	if undisturbed := len(s.faults)+len(s.steps) == 0 && !s.few; undisturbed && s.result.Failed > 0 &&
		s.options.RequestTimeout >= 250*time.Millisecond {
		s.problem("%d requests failed, and nothing went wrong: %v", s.result.Failed, s.result.Errors)
	}
	if s.records != nil && !s.epoch.Equal(s.result.Epoch) {
		s.problem("the measurement began at %v and %v", s.epoch, s.result.Epoch)
	}
	if s.users != nil && s.exact && !s.hangs && !s.options.TargetLeader && s.result.Reason == "" &&
		s.users.Logins() > 1+s.expiries {
		s.problem("%d logins, and tokens have expired %d times", s.users.Logins(), s.expiries)
	}
	if len(s.faults)+len(s.steps) == 0 && s.exact && s.kind == etcdStore && s.users == nil && !s.options.TargetLeader {
		s.judgeConnections()
	}
	s.judgePauses()
	s.judgeEnd()
	s.judgeLeader()
	accepted := 0
	for _, m := range s.members {
		accepted += m.Listener.Accepted()
	}
	if accepted > int(s.judged.Load()) {
		s.problem("%d connections were opened, and %d permitted", accepted, s.judged.Load())
	}
}

// judgeConnections checks that the connections went round the members, and who is known to lead.
func (s *trial) judgeConnections() {
	sum, members := 0, len(s.members)
	for i, m := range s.members {
		want := max((s.options.Conns+members-1-i)/members, 1)
		if sum += want; m.Listener.Accepted() != want {
			s.problem("member %d has %d connections, %d are its part", i, m.Listener.Accepted(), want)
		}
	}
	if got := s.transport.Connections(); got != sum || s.transport.Leader != s.options.Endpoints[0] {
		s.problem("%d connections are reported of %d, and the leader %q", got, sum, s.transport.Leader)
	}
}

// judgeRequest checks what the members know of a put.
func (s *trial) judgeRequest(number int, r *request) {
	tries := 1
	if r.refused > 0 && (s.users != nil || s.kind == zooKeeperStore) { // the token has expired; the key is there already
		tries = 2
	}
	if len(r.arrived) > tries || r.carriedOut > 1 || r.carriedOut+r.refused > len(r.arrived) {
		s.problem("request %d arrived %d times, was refused %d times and carried out %d times", number, len(r.arrived),
			r.refused, r.carriedOut)
	}
	if members := len(s.members); !s.options.TargetLeader && r.member != number%members {
		s.problem("request %d went to member %d of %d", number, r.member, members)
	}
	if began := time.Duration(s.result.BeganNs); s.starts != nil && s.result.Measured {
		first := s.starts.Start(s.result.First)
		if s.load.Warmup == nil {
			first = 0
		}
		if start := began + s.starts.Start(number) - first; r.arrived[0] < start+s.latency {
			s.problem("request %d arrived at %v, its intended start is %v", number, r.arrived[0], start)
		}
	}
}

// judgeRecord checks the outcome of request number i of the measurement, and its times.
func (s *trial) judgeRecord(i int, record load.Record) {
	number, began := s.result.First+i, time.Duration(s.result.BeganNs)
	put := record.Kind == load.Put
	r := s.requests[number]
	applied := r != nil && r.carriedOut > 0
	switch outcome := record.Outcome; {
	case record.Code == store.Check:
		s.problem("request %d has the outcome %v %v: %v", i, outcome, record.Code, s.result.Errors)
	case put && outcome == load.OK && !applied:
		s.problem("request %d is ok and was not carried out", i)
	case put && outcome == load.Failed && applied:
		s.problem("request %d has failed with %v, and was carried out", i, record.Code)
	case put && (outcome == load.Unknown || outcome == load.Abandoned) && s.exact && r == nil && s.kind == etcdStore:
		s.problem("request %d may have been carried out, and never arrived", i)
	case record.Code == store.Unauthenticated && s.exact && r != nil && r.refused < 2:
		s.problem("request %d was refused because of its token, and not sent again", i)
	case outcome == load.Abandoned && s.result.Reason == "":
		s.problem("request %d is abandoned, and the run was not ended", i)
	}
	start, actual, end := began+record.Start, began+record.Start+record.Lag, began+record.End()
	if s.starts != nil {
		if want := s.load.Pacer.Schedule.Start(i); record.Start != want {
			s.problem("request %d is due at %v, and its record has %v", i, want, record.Start)
		}
	}
	stopped := s.stoppedAt(start)
	switch d := s.load.Pacer.Duration; {
	case d > 0 && record.Start >= d:
		s.problem("request %d starts at %v, after the end of %v", i, record.Start, d)
	case record.Lag < 0:
		s.problem("request %d was sent %v before its intended start", i, -record.Lag)
	case record.Waited && !s.happens(start, actual):
		s.problem("request %d, for which a client waited, was sent %v after its intended start", i, record.Lag)
	case record.Late() && record.Own && !record.Waited && !stopped && s.overlap(start, actual) == 0:
		s.problem("request %d is late by %v because of the generator, which was idle", i, record.Lag)
	case record.Late() && !record.Own && s.longStop(start):
		s.problem("request %d is late by %v because of a stop of the generator, and that counts as the members'", i,
			record.Lag)
	}
	deadline := actual + s.options.RequestTimeout
	if record.Code == store.DeadlineExceeded && record.Done() && !s.happens(deadline, end) {
		s.problem("request %d was given up at %v, its deadline was %v", i, end, deadline)
	}
	if record.Done() && end > deadline && !s.happens(deadline, end) && !s.stoppedAt(deadline) {
		s.problem("request %d ended at %v, its deadline was %v", i, end, deadline)
	}
	for _, lost := range s.losses { // what the member had not answered ends with its connections
		waited := r != nil && r.member == lost.member && r.refused == 0 && r.arrived[0] < lost.at &&
			(r.answered == 0 || r.answered > lost.at)
		if due := lost.at + s.latency + jitter; waited && end > due && !s.happens(due, end) && !s.stoppedAt(due) {
			s.problem("request %d ended at %v, its connection was reset at %v", i, end, lost.at)
		}
	}
	if put && s.exact && r != nil && r.answered > 0 && record.Done() {
		s.judgeAnswer(i, record, r.answered+s.latency, end, deadline)
	}
}

// judgeAnswer checks when an answer that came at a time was taken.
func (s *trial) judgeAnswer(i int, record load.Record, came, end, deadline time.Duration) {
	gaveUp := record.Code == store.DeadlineExceeded
	switch {
	case record.Code == store.Canceled:
		if came < end {
			s.problem("request %d was ended at its deposed leader at %v, and its answer was there at %v", i, end, came)
		}
	case gaveUp && came < deadline:
		s.problem("request %d was given up at %v, and its answer was there at %v", i, end, came)
	case !gaveUp && !s.happens(came, end):
		s.problem("the answer to request %d came at %v, and was taken at %v", i, came, end)
	}
}

// happens tells whether the process may do at a time what is due at another one: at once, or at the end of a stop, also
// where another one follows it. A timer for what is due takes 1 ns.
func (s *trial) happens(due, at time.Duration) bool {
	ends := func(stop worldtest.Stop) bool { return stop.To == at || stop.To == at-1 }
	for _, stop := range s.stops {
		if due > stop.From && due < stop.To {
			return at > due && slices.ContainsFunc(s.w.Stops(), ends)
		}
		if (due == stop.From || due == stop.To) && at > due && at <= stop.To+1 && slices.ContainsFunc(s.w.Stops(), ends) {
			return true
		}
	}
	return at == due || at == due+1
}

func (s *trial) stoppedAt(at time.Duration) bool {
	return slices.ContainsFunc(s.stops, func(stop worldtest.Stop) bool { return at >= stop.From && at <= stop.To })
}

// longStop tells whether a time lies in a stop that the process must have noticed.
func (s *trial) longStop(at time.Duration) bool {
	return slices.ContainsFunc(s.w.Stops(), func(stop worldtest.Stop) bool {
		return at > stop.From+load.LateAfter && at < stop.To && stop.To-stop.From > 2*load.LateAfter
	})
}

// overlap is for how long the process was stopped between two times.
func (s *trial) overlap(from, to time.Duration) (sum time.Duration) {
	for _, stop := range s.stops {
		sum += max(min(stop.To, to)-max(stop.From, from), 0)
	}
	return sum
}

// judgePauses compares the pauses that the run has noticed with the stops of the process.
func (s *trial) judgePauses() {
	began := time.Duration(s.result.BeganNs)
	ended := began + s.result.Took
	longest, count, sum := time.Duration(0), 0, time.Duration(0)
	for _, stop := range s.stops {
		sum += max(stop.To-max(stop.From, began), 0)
		if stop.From > began && stop.To < ended && slices.ContainsFunc(s.w.Stops(), func(part worldtest.Stop) bool {
			return part.From >= stop.From && part.To <= stop.To && part.To-part.From > 2*load.LateAfter
		}) {
			count++
		}
	}
	for _, stop := range s.w.Stops() {
		if stop.From > began && stop.To < ended {
			longest = max(longest, stop.To-stop.From)
		}
	}
	p := s.result.Pauses
	if p.Longest < longest-load.LateAfter || p.Count < count || p.Sum > sum {
		s.problem("the process was stopped %d times for long, for at most %v and %v in all, and the run has %+v", count,
			longest, sum, p)
	}
}

// judgeEnd checks why the run has ended.
func (s *trial) judgeEnd() {
	began := time.Duration(s.result.BeganNs)
	end, lastOK := began+s.result.Took, began
	for _, record := range s.records {
		if record.Outcome == load.OK {
			lastOK = max(lastOK, began+record.End())
		}
	}
	switch reason := s.result.Reason; {
	case reason == "":
	case reason == "cancelled" && s.cancelled:
	case reason == fmt.Sprintf("no request succeeded for %v", s.load.StallTimeout):
		// It notices a stop of the process by its looks, which are a twentieth of the time apart.
		inexact := time.Duration(len(s.stops)) * (s.load.StallTimeout/20 + load.LateAfter)
		ran := end - lastOK - s.overlap(lastOK, end)
		if s.load.Warmup == nil && (ran > s.load.StallTimeout+inexact || ran < s.load.StallTimeout-inexact) {
			s.problem("the run was ended because of a stall, %v after the last success", ran)
		}
	case reason == fmt.Sprintf("no put succeeded for %v", s.load.StallTimeout):
	case reason == fmt.Sprintf("no range succeeded for %v", s.load.StallTimeout):
	case reason == fmt.Sprintf("no member could be reached for %v", s.options.LostTimeout) &&
		(!s.exact || s.kind >= consulStore):
		// A connection of HTTP ends with a request that is given up.
	default:
		s.problem("the run has ended: %s", reason)
	}
	if s.load.Warmup != nil {
		return // its last success is not known
	}
	quiet := end - lastOK - s.overlap(lastOK, end)
	if most := s.load.StallTimeout + s.load.StallTimeout/10 + load.LateAfter; s.load.StallTimeout > 0 && quiet > most {
		s.problem("the run went on for %v after its last success", quiet)
	}
}

// judgeLeader checks that the load has followed the leader.
func (s *trial) judgeLeader() {
	// Without terms, an answer from before an election may come after one from after it.
	if moves := len(s.transport.LeaderChanges); moves > s.elections && s.kind != consulStore {
		s.problem("the load has moved %d times in %d elections", moves, s.elections)
	}
	if !s.options.TargetLeader || s.elected == 0 || !s.exact || s.hangs || len(s.stops) > 0 {
		return
	}
	settled := time.Duration(s.result.BeganNs) + s.elected + followPoll + 10*s.latency + 100*time.Millisecond
	if s.users != nil {
		settled += time.Second // tokens expire, also those of the questions who leads
	}
	for i, record := range s.records {
		// Not when it arrived: a member that hangs takes what was sent to it once it goes on.
		sent, r := time.Duration(s.result.BeganNs)+record.Start+record.Lag, s.requests[s.result.First+i]
		if r != nil && sent > settled && r.member != s.leader-1 {
			s.problem("request %d was sent to member %d, %v after the election of member %d", i, r.member+1,
				sent-settled, s.leader)
		}
	}
}

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

// status says who a member is, or who leads, by the ports of their RPC: members share one address.
func (s *web) status(path string, member int) []byte {
	body := fmt.Sprintf(`"10.0.0.9:%d"`, 8300+s.leader)
	if path == "/v1/agent/self" {
		body = fmt.Sprintf(`{"Member":{"Addr":"10.0.0.9","Tags":{"port":"%d"}}}`, 8300+member+1)
	}
	return fmt.Appendf(nil, "HTTP/1.1 200 ?\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}
