package load

import (
	"testing"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world"
)

// pair is a key of an answer, by its number, with its value.
type pair struct {
	key   string
	value []byte
}

// TestWrongAnswers checks what a span of the keys p00..p09, all of them written, may be answered with.
func TestWrongAnswers(t *testing.T) {
	values := keys.NewValues(20, 1)
	written := func(numbers ...uint64) (pairs []pair) {
		for _, n := range numbers {
			pairs = append(pairs, pair{string(keys.Append([]byte("p"), n, 2)), values.At(n)})
		}
		return pairs
	}
	const countWrong = "an answer counted "
	span := Reads{Prefix: "p", KeySize: 2, Order: at(3), SpanKeys: 4, Space: 10, Verify: values, Complete: true}
	end := span
	end.Order = at(8)
	loose := span
	loose.Complete = false
	limited := span
	limited.Span.Limit = 2
	onlyKeys := span
	onlyKeys.Span.KeysOnly = true
	counts := span
	counts.Span.CountOnly = true
	named := Reads{Prefix: "p", KeySize: 2, Verify: values, Complete: true, First: 3, Last: 10}
	named.Span.Key, named.Span.End = []byte("p03"), []byte("q")
	single := span
	single.SpanKeys = 0
	unverified, counted := Reads{}, Reads{}
	unverified.Span.Key, counted.Span.Key, counted.Span.CountOnly = []byte("k"), []byte("k"), true
	for name, c := range map[string]struct {
		reads *Reads
		pairs []pair
		count int64 // in the span; 0: as many as pairs
		more  bool
		want  string // how the error begins; empty: none
	}{
		"as written":         {&span, written(3, 4, 5, 6), 0, false, ""},
		"up to the last key": {&end, written(8, 9), 0, false, ""},
		"one less":           {&span, written(3, 4, 5), 0, false, countWrong + "3 keys, written were 4"},
		"the first missing":  {&span, written(4, 5, 6), 0, false, errLeftOut.Text},
		"none":               {&span, nil, 0, false, ""},
		"too many":           {&span, written(3, 4, 5, 6, 7), 0, false, errOutside.Text},
		"one before":         {&span, written(2, 3, 4, 5, 6), 0, false, errOutside.Text},
		"twice":              {&span, written(3, 3, 4, 5), 0, false, errOrder.Text},
		"descending":         {&span, written(3, 4, 6, 5), 0, false, errLeftOut.Text},
		"another value":      {&span, append(written(3), pair{"p04", values.At(77)}), 0, false, errOtherValue.Text},
		"a shorter value": {&span, append(written(3, 4, 5), pair{"p06", values.At(6)[:19]}), 0, false,
			"an answer held a value of 19 bytes, written were 20"},
		"a key of others":       {&span, append(written(3, 4), pair{"p040", values.At(4)}), 0, false, errNotWritten.Text},
		"count is more":         {&span, written(3, 4, 5, 6), 5, true, "an answer held 4 keys of 5, expected were 5"},
		"more without a reason": {&span, written(3, 4, 5, 6), 0, true, "an answer with 4 keys of 4 said of more: true"},

		"loosely: as written": {&loose, written(3, 4, 5, 6), 0, false, ""},
		"loosely: one less":   {&loose, written(3, 5, 6), 0, false, ""},
		"loosely: none":       {&loose, nil, 0, false, ""},
		"loosely: descending": {&loose, written(4, 3), 0, false, errOrder.Text},
		"loosely: too many":   {&loose, written(3, 7), 0, false, errOutside.Text},

		"limited":                     {&limited, written(3, 4), 4, true, ""},
		"limited, without more":       {&limited, written(3, 4), 4, false, "an answer with 2 keys of 4 said of more: false"},
		"limited, not the first ones": {&limited, written(3, 5), 4, true, errLeftOut.Text},
		"limited, too few":            {&limited, written(3), 4, true, "an answer held 1 keys of 4, expected were 2"},
		"limited, too many":           {&limited, written(3, 4, 5), 4, true, "an answer held 3 keys of 4, expected were 2"},

		"only keys":                {&onlyKeys, []pair{{"p03", nil}, {"p04", nil}, {"p05", nil}, {"p06", nil}}, 0, false, ""},
		"only keys, with a value":  {&onlyKeys, written(3, 4, 5, 6), 0, false, errAnyValue.Text},
		"only the count":           {&counts, nil, 4, false, ""},
		"only the count, one less": {&counts, nil, 3, false, countWrong + "3 keys, written were 4"},
		"only the count, with one": {&counts, written(3), 4, false, "an answer held 1 keys of 4, expected were 0"},

		"a named span":                  {&named, written(3, 4, 5, 6, 7, 8, 9), 0, false, ""},
		"a named span, one less":        {&named, written(3, 4, 5, 6, 7, 8), 0, false, countWrong + "6 keys, written were 7"},
		"a named span, beyond":          {&named, written(3, 4, 5, 6, 7, 8, 9, 10), 0, false, errNotWritten.Text},
		"a named span, a longer number": {&named, append(written(3), pair{"p0300", nil}), 0, false, errNotWritten.Text},

		"a single key":            {&single, written(3), 0, false, ""},
		"a single key, another":   {&single, written(4), 0, false, errOtherKey.Text},
		"a single key, two":       {&single, written(3, 4), 0, false, errOtherKey.Text},
		"a single key, not there": {&single, nil, 0, false, ""},

		"not verified":         {&unverified, []pair{{"k", nil}}, 0, false, ""},
		"not verified, hidden": {&unverified, nil, 1, true, "an answer held 0 keys of 1, expected were 1"},
		"not verified, two":    {&unverified, make([]pair, 2), 0, false, "an answer held 2 keys of 2, expected were 2"},
		"not verified, less":   {&counted, nil, -1, false, "an answer held 0 keys of -1, expected were 0"},
		"not verified, more": {&unverified, []pair{{"k", nil}}, 0, true,
			"an answer with 1 keys of 1 said of more: true"},
		"only the count of a key": {&counted, nil, 1, false, ""},
	} {
		var r Request
		c.reads.Target(&r)
		count := c.count
		if count == 0 {
			count = int64(len(c.pairs))
		}
		var wrong error
		for _, pair := range c.pairs {
			if c.reads.Verify == nil {
				break // nothing visits it
			}
			if wrong = r.Check([]byte(pair.key), pair.value, 1); wrong != nil {
				break
			}
		}
		if wrong == nil {
			wrong = r.CheckCounts(int64(len(c.pairs)), count, c.more)
		}
		assert.Equal(t, text(wrong), c.want, "%s", name)
		outcome, code := classify(wrong)
		assert.That(t, wrong == nil || outcome == Failed && code == store.Check, "%s: %v, %v", name, outcome, code)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// at is an order in which every request uses the same key.
type at uint64

func (a at) Key(int) uint64 { return uint64(a) }

// TestSpansEndWithTheirLastKey holds where spans begin and end, also where there is no next key to end them.
func TestSpansEndWithTheirLastKey(t *testing.T) {
	for _, c := range []struct {
		first    at
		keys     int
		from, to string
	}{{0, 1, "p0", "p0\x00"}, {0, 5, "p0", "p4\x00"}, {60, 1, "py", "py\x00"}, {60, 2, "py", "pz\x00"}, {61, 100, "pz",
		"pz\x00"}, {0, 1000, "p0", "pz\x00"}} {
		reads := Reads{Prefix: "p", KeySize: 1, Order: c.first, SpanKeys: c.keys, Space: 62}
		r := Request{Number: 5}
		for range 2 {
			reads.Target(&r)
			assert.That(t, string(r.Key) == c.from && string(r.End) == c.to && r.Number == 5, "%d keys from %d on: %q to %q",
				c.keys, c.first, r.Key, r.End)
		}
	}
}

func TestSpansDoNotAllocate(t *testing.T) {
	values := keys.NewValues(100, 1)
	reads := &Reads{Prefix: "p", KeySize: 8, Order: keys.NewOrder(1000, false, 1), SpanKeys: 50, Space: 1000,
		Verify: values, Complete: true}
	puts := &Puts{Prefix: "p", KeySize: 8, Order: reads.Order, Values: values}
	mixed := &Mixed{Puts: puts, Reads: reads, Ratio: 0.5, Draw: keys.NewDraw(1, keys.StreamKinds).At}
	var r Request
	var key []byte
	ranges := 0
	request := func() {
		r.Number++
		mixed.Target(&r)
		if r.Kind == Put {
			return
		}
		ranges++
		e := &r.expected
		for n := e.first; n < e.last; n++ {
			key = keys.Append(append(key[:0], 'p'), n, 8)
			assert.OK(t, r.Check(key, values.At(n), 1))
		}
		assert.OK(t, r.CheckCounts(int64(e.last-e.first), int64(e.last-e.first), false))
	}
	for range 10 {
		request()
	}
	allocations := testing.AllocsPerRun(1000, request)
	assert.That(t, allocations == 0 && ranges >= 300, "%v allocations, %d spans", allocations, ranges)
}

// TestReadsWithoutARevision pass. One that has a revision is held to it, and a write has one of its own.
func TestReadsWithoutARevision(t *testing.T) {
	run := NewRun(Options{Spec: &spec.Spec{Clients: 1}, Pacer: Pacer{Total: 9}, World: world.Real(),
		Targeter: &Reads{KeySize: 1, Order: keys.NewOrder(9, true, 0)}})
	for _, step := range []struct {
		revision int64
		want     error
	}{{7, nil}, {0, nil}, {6, errBehind}, {7, nil}} {
		request, _ := run.Ask(0)
		assert.Equal(t, run.CheckRevision(request, step.revision, 1, false), step.want, "revision %d after 7", step.revision)
	}
	write := &Request{Kind: Put, unique: true, floor: 7}
	for revision, want := range map[int64]error{7: errSameAgain, 8: nil} {
		assert.Equal(t, run.CheckRevision(write, revision, 1, true), want, "a write at revision %d after 7", revision)
	}
}

// TestAReadIsHeldToTheAcknowledgedWrites has a write of a key acknowledged at revision 5, and then reads the key.
func TestAReadIsHeldToTheAcknowledgedWrites(t *testing.T) {
	const run, key = 7, 3
	values := keys.NewValues(40, 1)
	version := func(number int) []byte {
		head, tail := values.Version(nil, key, keys.ID{Run: run, Number: number})
		return append(head, tail...)
	}
	for name, c := range map[string]struct {
		value        []byte // nil: none is there
		revision     int64  // below 0: the write was not acknowledged
		serializable bool
		want         error
	}{
		"as acknowledged":                   {version(0), 5, false, nil},
		"a later write of others":           {values.At(key), 6, false, nil},
		"an older version":                  {values.At(key), 4, false, errStale},
		"an older version, serializable":    {values.At(key), 4, true, nil},
		"another version at the revision":   {values.At(key), 5, false, errOtherWriter},
		"no longer there":                   {nil, 0, false, errLost},
		"no longer there, serializable":     {nil, 0, true, nil},
		"not there, and not acknowledged":   {nil, -1, false, nil},
		"of a write that was not sent":      {version(2), 6, false, errNoWriter},
		"of a request that writes no value": {version(1), 6, false, errNoWriter},
	} {
		promises := NewPromises(10)
		reads := &Reads{Prefix: "p", KeySize: 2, Order: at(key), Space: 10, Verify: values, Promises: promises}
		reads.Complete = true
		reads.Span.Serializable = c.serializable
		puts := &Puts{Prefix: "p", KeySize: 2, Order: at(key), Values: values, Unique: true, Promises: promises}
		mixed := &Mixed{Puts: puts, Reads: reads, Ratio: 0.5, Draw: func(n uint64) float64 { return float64(n % 2) }}
		r := NewRun(Options{Spec: &spec.Spec{Clients: 1}, ID: run, Pacer: Pacer{Total: 9}, Targeter: mixed,
			Promises: promises, World: world.Real()})
		write, _ := r.Ask(0)
		assert.OK(t, r.CheckRevision(write, 5, 1, c.revision >= 0))
		read, _ := r.Ask(0)
		read.actual++ // the clock need not have moved since
		var wrong error
		if c.value == nil {
			wrong = read.CheckCounts(0, 0, false)
		} else {
			wrong = read.Check([]byte("p03"), c.value, c.revision)
		}
		assert.Equal(t, wrong, c.want, "%s", name)
	}
}
