package verify

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
)

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
		{"Consul: nothing was replaced", []op{get(other(1), 5, 0), put(1, 2), get(id(1), 10, 4)}, nil, ""},
		{"Consul: the data set came back", []op{put(1, 0), get(id(1), 10, 2), get(dataset, 2, 4)}, nil, lost},
		{"Consul: the data set was written late",
			[]op{get(dataset, 2, 0), put(1, 2), get(id(1), 10, 4), get(dataset, 12, 6)}, nil, ""},

		{"no revisions: late or lost", []op{put(1, 0), get(other(1), 0, 2)}, nil, notKnown},
		{"no revisions: the first one came back", []op{get(other(1), 0, 0), put(1, 2), get(other(1), 0, 4)}, nil, lost},
		{"no revisions: one after another", []op{get(other(1), 0, 0), get(other(2), 0, 2)}, nil, notKnown},
		{"no revisions: back and forth", []op{get(other(1), 0, 0), get(other(2), 0, 2), get(other(1), 0, 4)}, nil, lost},
		{"no revisions: nothing before", []op{at(0, 0, 1).nothing(0), get(other(1), 0, 2)}, nil, notKnown},
		{"no revisions: side by side", []op{at(0, 0, 9).put(id(1), 0), get(other(1), 0, 2), get(id(1), 0, 10)}, nil, ""},
		{"no revisions: before an older write", []op{put(1, 0), put(2, 2), get(other(1), 0, 4), get(id(1), 0, 6)}, nil, lost},
		{"no revisions: the data set came back", []op{put(1, 0), get(dataset, 0, 2)}, nil, lost},
		{"no revisions: only stale reads", []op{put(1, 0), get(other(1), 0, 2).stale(), get(id(1), 0, 4)}, nil, ""},

		{"etcd: the data set was written late",
			[]op{at(0, 0, 1).get(dataset, 2, 9), at(0, 2, 3).put(id(1), 10), at(0, 4, 5).get(dataset, 12, 12)}, nil, ""},
		{"etcd: it was, and then came back",
			[]op{at(0, 0, 1).get(dataset, 2, 9), at(0, 2, 3).put(id(1), 10), at(0, 4, 5).get(dataset, 12, 12),
				at(0, 6, 7).get(dataset, 2, 12)}, nil, lost},
		{"etcd: a stale read's revision is no measure",
			[]op{at(1, 0, 1).get(dataset, 2, 3).stale(), at(0, 2, 3).put(id(1), 10), at(0, 4, 5).get(other(1), 6, 11)}, nil,
			lost},

		{"Consul: late or lost, at the end", []op{put(1, 0)}, held(other(1), 12), notKnown},
		{"Consul: late, at the end", []op{put(1, 0), get(id(1), 10, 2)}, held(other(1), 12), ""},
		{"Consul: an older one, at the end", []op{put(1, 0), get(id(1), 10, 2)}, held(other(1), 5), lost},
		{"Consul: the data set, at the end", []op{put(1, 0), get(id(1), 10, 2)}, held(dataset, 2), lost},
		{"Consul: the data set, late, at the end", []op{put(1, 0), get(id(1), 10, 2)}, held(dataset, 12), ""},
		{"no revisions: late or lost, at the end", []op{put(1, 0)}, held(other(1), 0), notKnown},
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
		if result.Verdict != c.want {
			t.Errorf("%s: %+v", name, result)
		}
	}
}

// TestAViolationCountsMoreThanWhatIsNotKnown of another key.
func TestAViolationCountsMoreThanWhatIsNotKnown(t *testing.T) {
	for key := range uint64(2) {
		other := at(1, 4, 5).get(other(1), 0, 0)
		if result := judged(t, nil, at(0, 0, 1).put(id(1), 0).of(key), other.of(key), at(0, 0, 1).put(id(2), 0).of(1-key),
			at(1, 4, 5).get(dataset, 0, 0).of(1-key)); result.Verdict != Violated {
			t.Errorf("%+v", result)
		}
	}
}

// TestStoresWithLateWritesPass: whatever the store tells of revisions, none that does one thing after the other is
// accused. Of its writes, some are another run's or, where all answers tell revisions, late ones of the data set.
func TestStoresWithLateWritesPass(t *testing.T) {
	told := map[string]map[Verdict]int{"all": {}, "of reads": {}, "none": {}}
	for seed := range uint64(500) {
		for revisions, verdicts := range told {
			random := rand.New(rand.NewPCG(seed, 5))
			foreign := func(o *history.Operation) (renamed keys.ID, is bool) {
				switch {
				case o.Value == dataset:
					return dataset, true
				case o.Value.Number%5 == 3:
					return other(o.Value.Number), true
				case o.Value.Number%11 == 4 && revisions == "all":
					return dataset, true
				}
				return o.Value, false
			}
			value, mod := dataset, int64(2)
			var operations []op
			for _, o := range simulated(random, 1+random.IntN(5), 3+random.IntN(20), nil) {
				renamed, is := foreign(&o)
				if o.Op == history.Put {
					value, mod = renamed, o.Revision
				}
				if is && o.Op == history.Put {
					continue
				}
				o.Value = renamed
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
	if told["all"][Undecided] > 0 || told["of reads"][Undecided] == 0 || told["none"][Undecided] == 0 ||
		told["of reads"][Undecided] > told["none"][Undecided] || told["none"][Holds] < 100 {
		t.Errorf("%v", told)
	}
}
