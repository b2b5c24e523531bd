package verify

import (
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
)

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
		{"the other one", []op{put(1, 0, 3), at(1, 0, 4).put(id(2), 0)}, held(id(2), 10), "", 0, 0},
		{"what was there before", []op{put(1, 0, 1)}, held(dataset, 2), lost, 0, 0},
		{"the same, which was read", []op{at(0, 0, 1).get(other(4), 2, 9), put(1, 2, 3)}, held(other(4), 2), lost, 0, 0},
		{"the same, with a revision", []op{at(0, 0, 1).put(id(1), 10)}, held(dataset, 10), lost, 0, 0},
		{"a key that went", []op{put(1, 0, 1)}, gone(), lost, 0, 0},
		{"a key that never was", []op{at(0, 0, 1).nothing(0), put(1, 2, 3).as(failed)}, gone(), "", 0, 0},
		{"what failed", []op{put(1, 0, 1), put(2, 2, 3).as(failed)}, held(id(2), 11), "had failed", 0, 0},
		{"a value without a put", []op{put(1, 0, 1)}, held(id(2), 11), "never written", 0, 0},
		{"a write that ended last", []op{put(1, 5, 90), at(1, 10, 20).put(id(2), 0)}, held(id(1), 11), "", 0, 0},
		{"a read that no longer fits", []op{put(1, 0, 1), put(2, 2, 9), at(1, 3, 4).get(id(2), 11, 0)}, held(id(1), 10),
			lost, 0, 0},

		{"no answer, and it is there", []op{put(1, 0, 1), put(2, 2, 3).as(unknown)}, held(id(2), 11), "", 1, 1},
		{"no answer, and it is not", []op{put(1, 0, 1), put(2, 2, 3).as(unknown)}, held(id(1), 10), "", 1, 0},
		{"no answer, seen and gone", []op{put(1, 0, 1), put(2, 2, 3).as(unknown), at(1, 4, 5).get(id(2), 11, 0)},
			held(id(1), 10), lost, 1, 1},
		{"no answer, and then another", []op{put(1, 0, 1).as(unknown), put(2, 2, 3)}, held(id(1), 12), "", 1, 1},
		{"no answer, before a transaction",
			[]op{at(0, 0, 1).nothing(0), put(1, 2, 3).as(unknown), at(1, 4, 5).txn(id(2), 0)}, held(id(2), 0), "", 1, 0},
		{"no answer, of nothing", []op{at(0, 0, 1).nothing(0), put(1, 2, 3).as(unknown)}, gone(), "", 1, 0},

		{"cut to nothing", []op{put(1, 0, 1)}, hollow(0), lost, 0, 0},
		{"cut to nothing, later", []op{at(0, 0, 1).put(id(1), 10)}, hollow(12), lost, 0, 0},
		{"no key, and then an empty value", []op{at(0, 0, 1).nothing(0), put(1, 2, 3).as(unknown)}, hollow(0), lost, 1, 0},
		{"the data set, and then an empty value", []op{at(0, 0, 1).get(dataset, 2, 9), put(1, 2, 3).as(unknown)}, hollow(0),
			lost, 1, 0},

		{"a late write of another run", []op{at(0, 0, 1).put(id(1), 10)}, held(other(1), 12), "", 0, 0},
		{"a late one, which was read",
			[]op{at(0, 0, 1).get(dataset, 2, 9), at(0, 2, 3).put(id(1), 10), at(0, 4, 5).get(other(1), 12, 12)},
			held(other(1), 12), "", 0, 0},
		{"a late one, and back", []op{at(0, 0, 1).get(dataset, 2, 9), at(0, 2, 3).put(id(1), 10),
			at(0, 4, 5).get(other(1), 12, 12)}, held(dataset, 2), lost, 0, 0},
		{"the data set is still there", []op{at(0, 0, 1).get(dataset, 2, 9), put(1, 2, 3).as(unknown)}, held(dataset, 2), "",
			1, 0},
		{"nothing of ours happened", []op{at(0, 0, 1).get(other(4), 2, 9), put(1, 2, 3).as(unknown)}, held(other(4), 2), "",
			1, 0},
	} {
		result := expect(t, c.name, c.want, c.state, c.operations)
		if result.Unknown != c.unknown || result.Resolved != c.resolved || result.Compared != FinalState ||
			result.Judged > len(c.operations) || result.Keys != 1 {
			t.Errorf("%s: %+v", c.name, result)
		}
		if v := result.Violation; v != nil && !strings.HasPrefix(v.Operations[len(v.Operations)-1], "after the load") &&
			c.want != "had failed" && c.want != "never written" {
			t.Errorf("%s: %q", c.name, v.Operations)
		}
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
		"without any":            {final(), Undecided, Nothing},
		"the store's history":    {&history.Log{Whole: true, Events: []history.Event{one, two}}, Holds, OwnHistory},
	} {
		result := judged(t, c.state, at(0, 0, 1).put(id(1), 0), at(0, 0, 1).put(id(2), 0).of(1),
			at(0, 2, 3).put(id(3), 0).as(history.Unknown), at(0, 4, 5).get(id(1), 0, 0), at(0, 4, 5).nothing(0).of(2))
		if result.Verdict != c.want || result.Compared != c.by {
			t.Errorf("%s: %+v", name, result)
		}
	}
}

// TestEachKeyIsReadOnceAtTheEnd, however often it was written.
func TestEachKeyIsReadOnceAtTheEnd(t *testing.T) {
	a := &all{operations: []history.Operation{at(0, 0, 1).put(id(1), 0).Operation, at(0, 2, 3).put(id(2), 0).Operation}}
	if !a.readAtEnd([]history.Event{{}}) || len(a.operations) != 3 ||
		a.operations[2].Invoked <= a.operations[1].Completed {
		t.Errorf("%+v", a.operations)
	}
}

// TestWritesThatNobodyReadAreJudgedByTheFinalState, which is more than nothing.
func TestWritesThatNobodyReadAreJudgedByTheFinalState(t *testing.T) {
	result := judged(t, held(id(2), 0), at(0, 0, 1).put(id(1), 0), at(0, 2, 3).put(id(2), 0))
	if result.Verdict != Holds || result.Judged != 2 {
		t.Errorf("%+v", result)
	}
}

// TestAnEmptyValueIsNoMissingKey: it is told, and a key that nobody wrote may have held it before.
func TestAnEmptyValueIsNoMissingKey(t *testing.T) {
	result := judged(t, hollow(0), at(0, 0, 1).put(id(1), 0))
	if v := result.Violation; v == nil || !strings.Contains(v.Operations[1], "found an empty value") {
		t.Errorf("%+v", result)
	}
	read := at(1, 0, 1).get(dataset, 2, 0).stale()
	if result := judged(t, hollow(0), read, at(0, 0, 1).put(id(1), 0).as(history.Failed)); result.Verdict != Holds {
		t.Errorf("%+v", result)
	}
}
