package verify

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/simulated"
)

const run = 1000 // whose writes the histories have

// id is the name of a write of the run, other that of an earlier one.
func id(number int) keys.ID    { return keys.ID{Run: run, Client: number % 3, Number: number} }
func other(number int) keys.ID { return keys.ID{Run: run + 1, Number: number} }

// op makes operations; times are in ms.
type op struct {
	history.Operation
	key uint64
}

func at(client int, invoked, completed int64) op {
	return op{history.Operation{Client: client, Invoked: invoked * 1e6, Completed: completed * 1e6, Member: 1}, 0}
}

func (o op) put(value keys.ID, revision int64) op {
	o.Op, o.Value, o.Revision = history.Put, value, revision
	return o
}

func (o op) get(value keys.ID, mod, revision int64) op {
	o.Op, o.Content, o.Value, o.ModRevision, o.Revision = history.Get, history.Written, value, mod, revision
	return o
}

func (o op) txn(value keys.ID, revision int64) op {
	o.Op, o.Value, o.Revision = history.Txn, value, revision
	return o
}

func (o op) nothing(revision int64) op {
	o.Op, o.Content, o.Revision = history.Get, history.Absent, revision
	return o
}

func (o op) as(outcome history.Outcome) op { o.Outcome = outcome; return o }
func (o op) by(member uint64) op           { o.Member = member; return o }
func (o op) of(key uint64) op              { o.key = key; return o }
func (o op) stale() op                     { o.Op = history.SerializableGet; return o }

// Operations of which one comes after the other, of one client.
func put(value keys.ID, revision int64) op      { return op{}.put(value, revision) }
func get(value keys.ID, mod, revision int64) op { return op{}.get(value, mod, revision) }
func txn(value keys.ID, revision int64) op      { return op{}.txn(value, revision) }
func absent(revision int64) op                  { return op{}.nothing(revision) }

func after(operations ...op) []op {
	for i := range operations {
		o := at(0, int64(2*i), int64(2*i+1))
		operations[i].Invoked, operations[i].Completed, operations[i].Member = o.Invoked, o.Completed, o.Member
	}
	return operations
}

// dataset is what a data set has of every key.
var dataset = keys.ID{}

// judged judges operations, all of one key.
func judged(t *testing.T, log *history.Log, operations ...op) *Result {
	t.Helper()
	return assert.Got(judgedOrNot(t, log, operations...))(t)
}

func judgedOrNot(t *testing.T, log *history.Log, operations ...op) (*Result, error) {
	t.Helper()
	return judgedIn(t, file(t, operations...), log, Limits{Time: time.Minute})
}

// judgedIn judges in simulated time, in which no limit is reached that is not over at once.
func judgedIn(t *testing.T, file io.Reader, log *history.Log, limits Limits) (result *Result, err error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { result, err = Judge(file, log, limits) })
	return result, err
}

// file has operations.
func file(t *testing.T, operations ...op) io.Reader {
	t.Helper()
	var file bytes.Buffer
	w := history.NewWriter(&file, 0, "p/", 1)
	for _, o := range operations {
		w.Add(history.Entry{Operation: o.Operation, KeyNumber: o.key})
	}
	footer, err := w.Close()
	assert.Must(t, err == nil && footer.Lost == 0, "%v %v", footer, err)
	return &file
}

// log is a store's own history of key 0 of the data set.
func log(events ...history.Event) *history.Log {
	for i := range events {
		events[i].Key = "p/0"
	}
	return &history.Log{Events: events, Whole: true}
}

func event(revision int64, value keys.ID) history.Event {
	return history.Event{Revision: revision, Value: value.String() + "check and more"}
}

func TestJudgements(t *testing.T) {
	const unknown, failed, wrong = history.Unknown, history.Failed, history.Wrong
	for _, c := range []struct {
		name       string
		operations []op
		log        *history.Log
		want       string // "": it holds; else the reason for which it is violated, or "undecided: " and why
	}{
		{"one after the other", after(get(dataset, 2, 9), put(id(1), 10), get(id(1), 10, 10)), nil, ""},
		{"side by side", []op{at(0, 0, 9).put(id(1), 10), at(1, 0, 9).put(id(2), 11), at(2, 1, 2).get(id(2), 11, 11),
			at(2, 3, 4).get(id(1), 10, 11)}, nil, ""},
		{"nothing, and then something",
			[]op{at(0, 0, 1).nothing(9), at(1, 0, 5).put(id(1), 10), at(0, 2, 3).get(id(1), 10, 10)}, nil, ""},

		{"an old value", after(put(id(1), 10), put(id(2), 11), get(id(1), 10, 11)), nil, "no order"},
		{"back and forth", []op{at(0, 0, 9).put(id(1), 10), at(1, 1, 2).get(id(1), 10, 10), at(2, 3, 4).get(dataset, 2, 11)},
			nil, "no order"},
		{"a wrong answer counts", after(put(id(1), 10), get(dataset, 2, 3).as(wrong)), nil, "no order"},

		{"a value without a put", after(put(id(1), 10), get(id(2), 10, 11)), nil, "never written"},
		{"a value from the future", []op{at(0, 5, 6).put(id(1), 10), at(1, 2, 3).get(id(1), 10, 11)}, nil,
			"before its write was invoked"},
		{"a value that had failed", after(put(id(1), 0).as(failed), get(id(1), 10, 11)), nil, "had failed"},
		{"a failed write had none", after(put(id(1), 0).as(failed), get(dataset, 2, 11)), nil, ""},
		{"a refused transaction", after(txn(id(1), 9).as(failed), absent(9)), nil, ""},
		{"one refused for nothing", after(put(id(1), 9), txn(id(2), 10).as(failed)), nil, "no order"},
		{"one accepted before a put", after(absent(9), txn(id(2), 10), put(id(1), 0).as(unknown)), nil, "no order"},
		{"one accepted for nothing", after(absent(9), txn(id(2), 10)), nil, "no order"},

		{"unknown, and read later", after(put(id(1), 0).as(unknown), get(dataset, 2, 9), get(id(1), 10, 10)), nil, ""},
		{"unknown, and came twice", after(put(id(1), 0).as(unknown), get(id(1), 10, 10), put(id(2), 11), get(id(1), 12, 12)),
			nil, "no order"},
		{"unknown, and never seen", after(put(id(1), 0).as(unknown), get(dataset, 2, 10)), nil,
			"undecided: 1 writes without an answer"},
		{"unknown, and not carried out", after(put(id(1), 0).as(unknown), get(dataset, 2, 10)), log(), ""},
		{"unknown, and carried out", after(put(id(1), 0).as(unknown), get(dataset, 2, 10)), log(event(11, id(1))), ""},
		{"unknown, and a log with gaps", after(put(id(1), 0).as(unknown), get(dataset, 2, 10)), &history.Log{},
			"undecided: is not known"},

		{"as the store has it", after(put(id(1), 10)), log(event(10, id(1))), ""},
		{"lost", after(put(id(1), 10)), log(), "lost a write"},
		{"unknown, carried out twice", after(put(id(1), 0).as(unknown)), log(event(10, id(1)), event(12, id(1))), "twice"},
		{"refused, and carried out", []op{at(0, 0, 1).put(id(1), 0).as(failed), at(0, 0, 1).put(id(2), 10)},
			log(event(9, id(1)), event(10, id(2))), "had refused"},
		{"at another revision", after(put(id(1), 10)), log(event(11, id(1))), "another revision"},
		{"an event without a client", after(put(id(1), 10)), log(event(10, id(1)), event(11, id(2))), "no client made"},
		{"of others", after(put(id(1), 10)), log(event(2, dataset), event(5, other(1)), event(10, id(1))), ""},

		{"revisions in another order", after(put(id(1), 11), put(id(2), 10)), nil, "reported before it began"},
		{"the same, side by side", []op{at(0, 0, 3).put(id(1), 11), at(1, 2, 3).put(id(2), 10)},
			log(event(10, id(2)), event(11, id(1))), ""},
		{"a revision of two writes", after(put(id(1), 11), txn(id(2), 11)), nil, "reported before it began"},
		{"a write after a stale read", []op{at(0, 0, 1).get(dataset, 2, 11).stale(), at(1, 2, 3).put(id(2), 11)}, nil,
			"reported before it began"},
		{"a read of a lower revision", after(get(dataset, 2, 11), get(dataset, 2, 10)), nil, "at a lower revision"},
		{"a read of the same revision", after(put(id(1), 11), get(id(1), 11, 11)), nil, ""},
		{"a refusal at a lower revision", after(absent(11), txn(id(1), 10).as(failed)), nil, "at a lower revision"},

		{"another run's version was there", after(get(other(1), 5, 9), put(id(1), 10), get(id(1), 10, 10)), nil, ""},
		{"another run's version came back", after(get(other(1), 5, 9), put(id(1), 10), get(other(1), 5, 10)), nil,
			"no order"},
		{"another run's write came late", after(get(dataset, 5, 9), get(other(1), 12, 12), get(other(1), 12, 12)), nil, ""},
		{"another run's write came and went", after(get(dataset, 5, 9), get(other(1), 12, 12), get(dataset, 5, 12)), nil,
			"no order"},
		{"a serializable read of the past", []op{at(0, 0, 1).put(id(1), 10), at(1, 4, 5).get(dataset, 2, 9).stale()}, nil,
			""},
		{"a serializable read goes back",
			[]op{at(1, 0, 1).get(dataset, 2, 9).stale(), at(1, 4, 5).get(dataset, 2, 8).stale()}, nil, "lower revision"},
		{"another member is not as far",
			[]op{at(1, 0, 1).get(dataset, 2, 9).stale(), at(1, 4, 5).get(dataset, 2, 8).by(2).stale()}, nil, ""},
		{"another client is not as far",
			[]op{at(1, 0, 1).get(dataset, 2, 9).stale(), at(2, 4, 5).get(dataset, 2, 8).stale()}, nil, ""},
	} {
		result := expect(t, c.name, c.want, c.log, c.operations)
		if v := result.Violation; v != nil && (v.Key != "p/0" || len(v.Operations)+len(v.Store) == 0) {
			t.Errorf("%s: the violation is %+v", c.name, v)
		}
	}
}

// expect judges operations of one key: "" means that the history holds.
func expect(t *testing.T, name, want string, log *history.Log, operations []op) *Result {
	t.Helper()
	result := judged(t, log, operations...)
	verdict := Violated
	reason, undecided := strings.CutPrefix(want, "undecided: ")
	if undecided {
		verdict = Undecided
	} else if want == "" {
		verdict = Holds
	}
	assert.That(t, result.Verdict == verdict && strings.Contains(result.Reason, reason) &&
		(want == "") == (result.Reason == "") && (result.Violation != nil) == (verdict == Violated) &&
		result.Operations == len(operations), "%s: %+v, want %s: %s", name, result, verdict, reason)
	return result
}

// TestAViolationIsToldBeforeItIsMadeSmall has what takes memory and time come after it is known that there is one.
func TestAViolationIsToldBeforeItIsMadeSmall(t *testing.T) {
	for name, c := range map[string]struct {
		operations []op
		want       []int // operations of the violation, each time that it is told
	}{
		"none":      {[]op{at(0, 0, 1).get(dataset, 2, 9)}, nil},
		"no order":  {[]op{at(0, 0, 1).get(dataset, 5, 9), at(0, 2, 3).get(other(1), 6, 9)}, []int{0, 2}},
		"a foreign": {[]op{at(0, 0, 1).put(id(1), 9), at(0, 2, 3).get(id(7), 5, 9)}, []int{1}},
	} {
		var told []int
		result, err := judgedIn(t, file(t, c.operations...), nil, Limits{Time: time.Minute, Found: func(r Result) {
			assert.That(t, r.Verdict == Violated && r.Reason != "" && r.Violation.Key == "p/0", "%s: told %+v", name, r)
			told = append(told, len(r.Violation.Operations))
			r.Violation.Picture = "mine"
		}})
		if err != nil || !slices.Equal(told, c.want) || result.Violation != nil && result.Violation.Picture != "" {
			t.Errorf("%s: told %v, not %v: %+v, %v", name, told, c.want, result, err)
		}
	}
}

func TestNothingToJudgeIsAnError(t *testing.T) {
	for name, operations := range map[string][]op{
		"none":                    nil,
		"writes that nobody read": {at(0, 0, 1).put(id(1), 10), at(0, 2, 3).put(id(2), 11)},
		"no answers": {at(0, 0, 1).put(id(1), 0).as(history.Failed), {Operation: history.Operation{Op: history.Get,
			Outcome: history.Unknown}}, {Operation: history.Operation{Op: history.SerializableGet, Outcome: history.Unknown}}},
	} {
		result, err := judgedOrNot(t, nil, operations...)
		assert.That(t, errors.Is(err, ErrNothing), "%s: %+v, %v", name, result, err)
	}
}

func TestStaleness(t *testing.T) {
	result := judged(t, nil,
		at(0, 0, 10).put(id(1), 10), at(0, 20, 30).put(id(2), 11), at(0, 40, 50).put(id(3), 12),
		at(1, 60, 61).get(id(3), 12, 12).stale(), // the newest
		at(2, 60, 61).get(id(2), 11, 11).stale(), // replaced at 50
		at(3, 60, 61).get(id(1), 10, 10).stale(), // replaced at 30
		at(4, 25, 61).get(dataset, 2, 9).stale(), // replaced at 10, 15 ms before it began
		at(5, 5, 61).get(dataset, 2, 9).stale(),  // replaced after it had begun
		at(6, 5, 61).by(2).get(dataset, 2, 9).stale(), at(6, 62, 63).get(dataset, 2, 8).stale(),
	)
	s := result.Serializable
	assert.That(t, s.Reads == 7 && s.Dated && s.Stale == 4 && s.MedianMs == 15 && s.MaxMs == 52 && s.Switched == 1 &&
		result.Judged == 10, "%+v, %d judged", s, result.Judged)
}

// TestStalenessWithoutRevisions: of writes that tell none, as Consul's puts, nobody knows which reads they made stale.
func TestStalenessWithoutRevisions(t *testing.T) {
	result := judged(t, nil,
		at(0, 0, 10).put(id(1), 0), at(0, 20, 30).put(id(2), 0),
		at(1, 60, 61).get(id(1), 10, 0).stale(), at(2, 60, 61).get(id(2), 11, 0).stale(),
	)
	s := result.Serializable
	assert.That(t, s.Reads == 2 && !s.Dated && result.Verdict != Violated, "%s: %+v", result.Verdict, s)
}

// simulate makes a history of a store that does one operation after the other; each takes effect at one moment between
// its invocation and its answer. tamper changes what clients are told.
func simulate(random *rand.Rand, clients, operations int, tamper func(*history.Operation)) (made []history.Operation) {
	type pending struct {
		o      history.Operation
		effect int64
	}
	var all []pending
	next := make([]int64, clients)
	for i := range operations {
		c := i % clients
		o := history.Operation{Client: c, Op: history.Put, Invoked: next[c], Value: keys.ID{Run: run, Client: c, Number: i},
			Member: 1}
		if random.IntN(2) == 0 {
			o.Op = history.Get
		}
		o.Completed = o.Invoked + 1 + random.Int64N(1000)
		next[c] = o.Completed + 1 + random.Int64N(100)
		all = append(all, pending{o, o.Invoked + random.Int64N(o.Completed-o.Invoked+1)})
	}
	slices.SortStableFunc(all, func(x, y pending) int { return int(x.effect - y.effect) })
	value, mod, revision := dataset, int64(2), int64(9)
	for i := range all {
		o := &all[i].o
		if o.Op == history.Put {
			revision++
			value, mod = o.Value, revision
		} else {
			o.Content, o.Value, o.ModRevision = history.Written, value, mod
		}
		o.Revision = revision
		if tamper != nil {
			tamper(o)
		}
		made = append(made, *o)
	}
	return made
}

// TestTwoValuesAreEnough compares with what porcupine says of all operations of a key at once, of histories with some
// reads changed at random.
func TestTwoValuesAreEnough(t *testing.T) { synctest.Test(t, twoValuesAreEnough) }

func twoValuesAreEnough(t *testing.T) {
	illegal := 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 4))
		var seen []keys.ID
		made := simulate(random, 1+random.IntN(5), 3+random.IntN(12), func(o *history.Operation) {
			if o.Op == history.Put {
				seen = append(seen, o.Value)
				if random.IntN(3) == 0 {
					o.Op = history.Txn
				}
			} else if len(seen) > 0 && random.IntN(5) == 0 {
				o.Value = seen[random.IntN(len(seen))]
			} else if random.IntN(20) == 0 {
				o.Content, o.Value = history.Absent, keys.ID{}
			}
		})
		a := &all{operations: made}
		a.index()
		steps := a.steps("", a.firstReads(), false)
		deadline := simulated.Now().Add(time.Minute)
		want := judge(steps, deadline)
		part, got := judgeKey(steps, deadline)
		assert.Must(t, got == want, "seed %d: %v, all at once %v: %+v", seed, got, want, made)
		if got == porcupine.Illegal {
			illegal++
			if small := reduce(part); judge(small, deadline) != porcupine.Illegal || len(small) > 5 {
				t.Errorf("seed %d: %d operations of %d are left", seed, len(small), len(steps))
			}
		}
	}
	assert.That(t, illegal >= 300 && illegal <= 2700, "%d of 3000 histories are illegal", illegal)
}

func TestWithoutTimeNothingIsDecided(t *testing.T) {
	result, err := judgedIn(t, file(t, at(0, 0, 1).get(dataset, 2, 9)), nil, Limits{Time: -1})
	assert.That(t, err == nil && result.Verdict == Undecided && strings.Contains(result.Reason, "1 of 1 keys"),
		"%+v, %v", result, err)
}

// TestWritesOfOtherRuns has stores that tell revisions of all answers, as etcd, of what reads find, as Consul, and
// none, as services that are known by their URLs.
func TestWritesOfOtherRuns(t *testing.T) {
	const lost, unknown, notKnown = "no order", history.Unknown, "undecided: 1 of 1 keys lost a write"
	put := func(number int, from int64) op { return at(0, from, from+1).put(id(number), 0) }
	get := func(value keys.ID, mod, from int64) op { return at(1, from, from+1).get(value, mod, 0) }
	for _, c := range []struct {
		name       string
		operations []op
		state      *history.Log
		want       string // see expect
	}{
		{"Consul: late or lost", []op{put(1, 0), get(other(1), 12, 2)}, nil, notKnown},
		{"Consul: late", []op{put(1, 0), get(id(1), 10, 2), get(other(1), 12, 4)}, nil, ""},
		{"Consul: late, before one is read", []op{put(1, 0), get(other(1), 12, 2), put(2, 4), get(id(2), 14, 6)}, nil,
			notKnown},
		{"Consul: late, and back", []op{put(1, 0), get(id(1), 10, 2), get(other(1), 12, 4), get(id(1), 10, 6)}, nil, lost},
		{"Consul: late, and told by a stale read", []op{put(1, 0), get(id(1), 10, 2).stale(), get(other(1), 12, 4)}, nil, ""},
		{"Consul: an older one", []op{put(1, 0), get(id(1), 10, 2), get(other(1), 5, 4)}, nil, lost},
		{"Consul: the first one came back", []op{get(other(1), 5, 0), put(1, 2), get(other(1), 5, 4)}, nil, lost},
		{"Consul: the second one is late", []op{get(dataset, 2, 0), get(other(1), 5, 2), put(1, 4), get(id(1), 10, 6)}, nil,
			notKnown},
		{"Consul: the data set came back", []op{put(1, 0), get(id(1), 10, 2), get(dataset, 2, 4)}, nil, lost},

		{"no revisions: late or lost", []op{put(1, 0), get(other(1), 0, 2)}, nil, notKnown},
		{"no revisions: the first one came back", []op{get(other(1), 0, 0), put(1, 2), get(other(1), 0, 4)}, nil, lost},
		{"no revisions: one after another", []op{get(other(1), 0, 0), get(other(2), 0, 2)}, nil, notKnown},
		{"no revisions: side by side", []op{at(0, 0, 9).put(id(1), 0), get(other(1), 0, 2), get(id(1), 0, 10)}, nil, ""},
		{"no revisions: before an older write", []op{put(1, 0), put(2, 2), get(other(1), 0, 4), get(id(1), 0, 6)}, nil, lost},
		{"no revisions: only stale reads", []op{put(1, 0), get(other(1), 0, 2).stale(), get(id(1), 0, 4)}, nil, ""},

		{"etcd: the data set was written late",
			[]op{at(0, 0, 1).get(dataset, 2, 9), at(0, 2, 3).put(id(1), 10), at(0, 4, 5).get(dataset, 12, 12)}, nil, ""},
		{"etcd: a stale read's revision is no measure",
			[]op{at(1, 0, 1).get(dataset, 2, 3).stale(), at(0, 2, 3).put(id(1), 10), at(0, 4, 5).get(other(1), 6, 11)}, nil,
			lost},

		{"Consul: late or lost, at the end", []op{put(1, 0)}, held(other(1), 12), notKnown},
		{"Consul: late, at the end", []op{put(1, 0), get(id(1), 10, 2)}, held(other(1), 12), ""},
		{"Consul: an older one, at the end", []op{put(1, 0), get(id(1), 10, 2)}, held(other(1), 5), lost},
		{"Consul: the data set, late, at the end", []op{put(1, 0), get(id(1), 10, 2)}, held(dataset, 12), ""},
		{"no revisions: another one, at the end", []op{get(dataset, 0, 0), put(1, 2)}, held(other(1), 0), notKnown},
		{"no revisions: the first one, at the end", []op{get(other(1), 0, 0), put(1, 2)}, held(other(1), 0), lost},
		{"no revisions: the data set, at the end", []op{put(1, 0)}, held(dataset, 0), lost},
		{"no revisions: as it was", []op{get(other(1), 0, 0), put(1, 2).as(unknown)}, held(other(1), 0), ""},
		{"ZooKeeper: a stale read before",
			[]op{get(other(3), 3, 0).stale(), at(1, 2, 3).get(other(4), 5, 9), put(1, 4).as(unknown)}, held(other(4), 5), ""},
	} {
		expect(t, c.name, c.want, c.state, c.operations)
	}
}

// TestAnotherKeyTellsWhenAValueWasWritten, where revisions count the writes to all keys.
func TestAnotherKeyTellsWhenAValueWasWritten(t *testing.T) {
	for name, c := range map[string]struct {
		revision int64 // of the version of another run
		first    op
		want     Verdict
	}{
		"a write that was over before": {5, at(0, 0, 1).put(id(9), 0), Violated},
		"a write with a lower one":     {9, at(0, 0, 1).put(id(9), 0), Holds},
		"a write that ended later":     {5, at(0, 0, 20).put(id(9), 0), Undecided},
		"a write without an answer":    {5, at(0, 0, 1).put(id(9), 0).as(history.Unknown), Undecided},
	} {
		result := judged(t, nil, c.first.of(1), at(0, 2, 3).put(id(1), 0), at(1, 4, 5).get(other(1), c.revision, 0),
			at(1, 30, 31).get(id(9), 8, 0).of(1))
		assert.That(t, result.Verdict == c.want, "%s: %+v", name, result)
	}
}

// TestAViolationCountsMoreThanWhatIsNotKnown of another key.
func TestAViolationCountsMoreThanWhatIsNotKnown(t *testing.T) {
	for key := range uint64(2) {
		other := at(1, 4, 5).get(other(1), 0, 0)
		result := judged(t, nil, at(0, 0, 1).put(id(1), 0).of(key), other.of(key), at(0, 0, 1).put(id(2), 0).of(1-key),
			at(1, 4, 5).get(dataset, 0, 0).of(1-key))
		assert.That(t, result.Verdict == Violated, "%+v", result)
	}
}

// TestStoresWithLateWritesPass: whatever the store tells of revisions, none that does one thing after the other is
// accused. Of its writes, some are another run's or, where all answers tell revisions, late ones of the data set.
func TestStoresWithLateWritesPass(t *testing.T) {
	told := map[string]map[Verdict]int{"all": {}, "of reads": {}, "none": {}}
	for seed := range uint64(500) {
		for revisions, verdicts := range told {
			random := rand.New(rand.NewPCG(seed, 5))
			value, mod := dataset, int64(2)
			var operations []op
			for _, o := range simulate(random, 1+random.IntN(5), 3+random.IntN(20), nil) {
				foreign := true
				switch {
				case o.Value == dataset:
				case o.Value.Number%5 == 3:
					o.Value = other(o.Value.Number)
				case o.Value.Number%11 == 4 && revisions == "all":
					o.Value = dataset
				default:
					foreign = false
				}
				if o.Op == history.Put {
					value, mod = o.Value, o.Revision
					if foreign {
						continue
					}
				}
				if revisions != "all" {
					o.Revision = 0
				}
				if revisions == "none" {
					o.ModRevision = 0
				}
				operations = append(operations, op{Operation: o})
			}
			if revisions == "none" {
				mod = 0
			}
			var state *history.Log
			if random.IntN(2) == 0 {
				state = held(value, mod)
			}
			slices.SortStableFunc(operations, func(x, y op) int { return cmp.Compare(x.Completed, y.Completed) })
			result, err := judgedOrNot(t, state, operations...)
			if errors.Is(err, ErrNothing) {
				continue
			}
			if verdicts[result.Verdict]++; err != nil || result.Verdict == Violated {
				t.Fatalf("seed %d, revisions %s: %+v, %v: %+v, %+v", seed, revisions, result, err, operations, state)
			}
		}
	}
	assert.That(t, told["all"][Undecided] == 0 && told["of reads"][Undecided] != 0 && told["none"][Undecided] != 0 &&
		told["of reads"][Undecided] <= told["none"][Undecided] && told["none"][Holds] >= 100, "%v", told)
}

// held is the final state of key 0, with the revision of its last write, and gone one without that key.
func held(value keys.ID, revision int64) *history.Log {
	text := value.String() + "check and more"
	if value == dataset {
		text = "Ab3" + strings.Repeat("x9", 20) // digits and letters, as of any value
	}
	return &history.Log{Final: true, Events: []history.Event{{Revision: revision, Key: "p/0", Value: text}}}
}

func gone() *history.Log {
	return &history.Log{Final: true, Events: []history.Event{{Key: "p/0", Absent: true}}}
}

// hollow is one with an empty value.
func hollow(revision int64) *history.Log {
	return &history.Log{Final: true, Events: []history.Event{{Key: "p/0", Revision: revision}}}
}

func TestTheFinalStateIsReadAfterTheLoad(t *testing.T) {
	const unknown, failed, lost = history.Unknown, history.Failed, "no order"
	put := func(number int, from, to int64) op { return at(0, from, to).put(id(number), 0) }
	for _, c := range []struct {
		name       string
		operations []op
		state      *history.Log
		want       string // see expect
		unknown    int
		resolved   int
	}{
		{"the last write", []op{put(1, 0, 1), put(2, 2, 3)}, held(id(2), 11), "", 0, 0},
		{"one before it", []op{put(1, 0, 1), put(2, 2, 3)}, held(id(1), 10), lost, 0, 0},
		{"one of two side by side", []op{put(1, 0, 3), at(1, 0, 4).put(id(2), 0)}, held(id(1), 10), "", 0, 0},
		{"what was there before", []op{put(1, 0, 1)}, held(dataset, 2), lost, 0, 0},
		{"the same, with a revision", []op{at(0, 0, 1).put(id(1), 10)}, held(dataset, 10), lost, 0, 0},
		{"a key that went", []op{put(1, 0, 1)}, gone(), lost, 0, 0},
		{"a key that never was", []op{at(0, 0, 1).nothing(0), put(1, 2, 3).as(failed)}, gone(), "", 0, 0},
		{"what failed", []op{put(1, 0, 1), put(2, 2, 3).as(failed)}, held(id(2), 11), "had failed", 0, 0},
		{"a write that ended last", []op{put(1, 5, 90), at(1, 10, 20).put(id(2), 0)}, held(id(1), 11), "", 0, 0},
		{"a read that no longer fits", []op{put(1, 0, 1), put(2, 2, 9), at(1, 3, 4).get(id(2), 11, 0)}, held(id(1), 10),
			lost, 0, 0},

		{"no answer, and it is there", []op{put(1, 0, 1), put(2, 2, 3).as(unknown)}, held(id(2), 11), "", 1, 1},
		{"no answer, and it is not", []op{put(1, 0, 1), put(2, 2, 3).as(unknown)}, held(id(1), 10), "", 1, 0},
		{"no answer, and then another", []op{put(1, 0, 1).as(unknown), put(2, 2, 3)}, held(id(1), 12), "", 1, 1},
		{"no answer, before a transaction",
			[]op{at(0, 0, 1).nothing(0), put(1, 2, 3).as(unknown), at(1, 4, 5).txn(id(2), 0)}, held(id(2), 0), "", 1, 0},

		{"cut to nothing", []op{put(1, 0, 1)}, hollow(0), lost, 0, 0},
		{"cut to nothing, later", []op{at(0, 0, 1).put(id(1), 10)}, hollow(12), lost, 0, 0},
		{"no key, and then an empty value", []op{at(0, 0, 1).nothing(0), put(1, 2, 3).as(unknown)}, hollow(0), lost, 1, 0},

		{"an empty value before", []op{at(1, 0, 1).get(dataset, 2, 0).stale(), put(1, 0, 1).as(failed)}, hollow(0), "", 0, 0},

		{"a late write of another run", []op{at(0, 0, 1).put(id(1), 10)}, held(other(1), 12), "", 0, 0},
		{"a late one, which was read",
			[]op{at(0, 0, 1).get(dataset, 2, 9), at(0, 2, 3).put(id(1), 10), at(0, 4, 5).get(other(1), 12, 12)},
			held(other(1), 12), "", 0, 0},
		{"nothing of ours happened", []op{at(0, 0, 1).get(other(4), 2, 9), put(1, 2, 3).as(unknown)}, held(other(4), 2), "",
			1, 0},
	} {
		result := expect(t, c.name, c.want, c.state, c.operations)
		assert.That(t, result.Unknown == c.unknown && result.Resolved == c.resolved && result.Compared == FinalState &&
			result.Judged <= len(c.operations) && result.Keys == 1, "%s: %+v", c.name, result)
		v := result.Violation
		if v == nil || c.want == "had failed" {
			continue
		}
		last, e := v.Operations[len(v.Operations)-1], c.state.Events[0]
		assert.That(t, strings.HasPrefix(last, "after the load") &&
			strings.Contains(last, "an empty value") == (e.Value == "" && !e.Absent), "%s: %+v", c.name, v)
	}
}

// TestOnlyAWholeFinalStateIsCompared has writes of two keys, of which one is lost and one has no answer.
func TestOnlyAWholeFinalStateIsCompared(t *testing.T) {
	text := func(number int) string { return id(number).String() + "check and more" }
	one, two := history.Event{Key: "p/0", Value: text(1)}, history.Event{Key: "p/1", Value: text(2)}
	lost := history.Event{Key: "p/1", Absent: true}
	final := func(events ...history.Event) *history.Log { return &history.Log{Final: true, Events: events} }
	for name, c := range map[string]struct {
		state *history.Log
		want  Verdict
		by    Compared
	}{
		"none":                   {nil, Undecided, Nothing},
		"whole":                  {final(one, two), Holds, FinalState},
		"more than whole":        {final(two, history.Event{Key: "p/2"}, one), Holds, FinalState},
		"whole, and one is lost": {final(one, lost), Violated, FinalState},
		"cut off":                {&history.Log{Events: []history.Event{one, lost}}, Undecided, Nothing},
		"without a key":          {final(one), Undecided, Nothing},
		"with keys of others":    {final(one, history.Event{Key: "1"}), Undecided, Nothing},
		"the store's history":    {&history.Log{Whole: true, Events: []history.Event{one, two}}, Holds, OwnHistory},
	} {
		result := judged(t, c.state, at(0, 0, 1).put(id(1), 0), at(0, 0, 1).put(id(2), 0).of(1),
			at(0, 2, 3).put(id(3), 0).as(history.Unknown), at(0, 4, 5).get(id(1), 0, 0), at(0, 4, 5).nothing(0).of(2))
		assert.That(t, result.Verdict == c.want && result.Compared == c.by, "%s: %+v", name, result)
	}
}

// TestEachKeyIsReadOnceAtTheEnd, however often it was written.
func TestEachKeyIsReadOnceAtTheEnd(t *testing.T) {
	a := &all{operations: []history.Operation{at(0, 0, 1).put(id(1), 0).Operation, at(0, 2, 3).put(id(2), 0).Operation}}
	assert.That(t, a.readAtEnd([]history.Event{{}}) && len(a.operations) == 3 &&
		a.operations[2].Invoked > a.operations[1].Completed, "%+v", a.operations)
}
