package verify

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
)

// What a key holds, as a number: its versions are counted from 1.
const (
	untold  = -1 // no read since the history began
	nothing = 0
)

// step is the input of an operation to the model of one key.
type step struct {
	source  *history.Operation // nil: a write of another run
	write   bool
	exists  bool // of a write: the key must exist
	value   int  // that is written or found
	initial bool // of a read: the key may have held that when the history began
}

// register is one key, which holds what was written last.
var register = porcupine.Model{
	Init: func() any { return untold },
	Step: func(state, in, _ any) (bool, any) {
		holds, s := state.(int), in.(*step)
		switch {
		case s.write:
			return !s.exists || holds != nothing, s.value
		case holds == untold:
			return s.initial, s.value
		}
		return holds == s.value, holds
	},
	DescribeOperation: func(in, _ any) string {
		if s := in.(*step); s.source != nil {
			return describe(s.source)
		}
		return "a write of an earlier run"
	},
	DescribeState: func(state any) string {
		switch holds := state.(int); holds {
		case untold:
			return "as it was"
		case nothing:
			return "nothing"
		default:
			return fmt.Sprintf("version %d", holds)
		}
	},
}

// linearizable judges the operations of each key by themselves: etcd and its kind promise linearizability of the whole,
// which follows from that of each key (Herlihy and Wing, 'Linearizability', TOPLAS 1990, theorem 1).
func (a *all) linearizable(result *Result, deadline time.Time, limits Limits) (found *finding) {
	first := a.firstReads()
	late, unsure := 0, 0
	for _, key := range a.order {
		steps := a.steps(key, first, false)
		result.Judged += a.judgeable(key, steps, result.Compared == OwnHistory)
		if result.Verdict == Violated {
			continue // one is enough
		}
		part, verdict := judgeKey(steps, deadline)
		if verdict == porcupine.Illegal && a.unsure[key] {
			if part, verdict = judgeKey(a.steps(key, first, true), deadline); verdict == porcupine.Ok {
				unsure++
			}
		}
		switch verdict {
		case porcupine.Illegal:
			result.Verdict = Violated
			large := *result
			large.Reason, large.Violation = noOrder, &Violation{Key: a.prefix + key}
			limits.tell(large)
			found = a.explain(key, reduce(part))
		case porcupine.Unknown:
			late++
		}
	}
	var reasons []string
	if late > 0 {
		reasons = append(reasons,
			fmt.Sprintf("%d of %d keys could not be judged in the time that there was", late, len(a.order)))
	}
	if unsure > 0 {
		reasons = append(reasons, fmt.Sprintf("whether %d of %d keys lost a write, or a write of another run came "+
			"late, is not known: no revision tells", unsure, len(a.order)))
	}
	if found == nil && len(reasons) > 0 {
		found = &finding{verdict: Undecided, reason: strings.Join(reasons, "; ")}
	}
	return found
}

// judgeable counts the operations of a key that say something: writes of which neither a read, the store's own history
// nor its final state tells are in some order, whatever became of them.
func (a *all) judgeable(key string, steps []porcupine.Operation, compared bool) int {
	count, reads := 0, compared || a.found[key]
	for i := range steps {
		s := steps[i].Input.(*step)
		if s.source != nil && !atEnd(s.source) {
			count++
		}
		reads = reads || !s.write
	}
	if !reads {
		return 0
	}
	return count
}

// cluster is what was done with one value: its write, if it was written here, and its reads.
type cluster struct {
	steps      []porcupine.Operation
	start, end int64
}

// judgeKey judges the operations of a key, two values at a time: where each value is written once, every history that
// is not linearizable has two that conflict (Gibbons and Korach, 'Testing Shared Memories', SIAM J. Comput. 1997,
// section 4.2). So the time grows with the number of operations side by side, and not exponentially. Only a transaction
// that needs the key to exist depends on third ones, where a read found no key: then all are judged at once. part is
// a part that is illegal by itself.
func judgeKey(steps []porcupine.Operation, deadline time.Time) (part []porcupine.Operation,
	verdict porcupine.CheckResult) {
	if len(steps) == 0 {
		return nil, porcupine.Ok
	}
	exists, missing := false, false
	for _, o := range steps {
		s := o.Input.(*step)
		exists, missing = exists || s.exists, missing || !s.write && s.value == nothing
	}
	if exists && missing {
		return steps, judge(steps, deadline)
	}
	clusters := clustersOf(steps)
	for i, one := range clusters {
		if verdict := judge(one.steps, deadline); verdict != porcupine.Ok {
			return one.steps, verdict
		}
		for _, other := range clusters[i+1:] {
			if other.start > one.end {
				break
			}
			if len(one.steps) == 1 && len(other.steps) == 1 && one.steps[0].Input.(*step).write &&
				other.steps[0].Input.(*step).write {
				continue // two writes alone are in some order
			}
			both := slices.Concat(one.steps, other.steps)
			if verdict := judge(both, deadline); verdict != porcupine.Ok {
				return both, verdict
			}
		}
	}
	return nil, porcupine.Ok
}

// clustersOf sorts operations by their values, and these by the time of the first operation on each.
func clustersOf(steps []porcupine.Operation) []*cluster {
	byValue := make(map[int]*cluster)
	var clusters []*cluster
	for _, o := range steps {
		s := o.Input.(*step)
		c := byValue[s.value]
		if c == nil {
			c = &cluster{start: o.Call, end: o.Return}
			byValue[s.value] = c
			clusters = append(clusters, c)
		}
		c.steps = append(c.steps, o)
		c.start, c.end = min(c.start, o.Call), max(c.end, o.Return)
		if s.initial {
			c.start = math.MinInt64 // the key held it from the begin
		}
	}
	slices.SortStableFunc(clusters, func(x, y *cluster) int { return cmp.Compare(x.start, y.start) })
	return clusters
}

// judge asks porcupine; without time left it says Unknown.
func judge(steps []porcupine.Operation, deadline time.Time) porcupine.CheckResult {
	left := time.Until(deadline)
	if left <= 0 {
		return porcupine.Unknown
	}
	return porcupine.CheckOperationsTimeout(register, steps, left)
}

// steps are the operations of a key that have or had an effect, as porcupine takes them. lenient: what other runs wrote
// was written during this one, unless a revision tells that it was not; otherwise only where one tells that it was.
func (a *all) steps(key string, first map[version]int64, lenient bool) []porcupine.Operation {
	numbers := make(map[version]int)
	number := func(v version) int {
		if numbers[v] == 0 {
			numbers[v] = len(numbers) + 1
		}
		return numbers[v]
	}
	var steps []porcupine.Operation
	known := make(map[version]bool) // writes of other runs
	operations := a.byKey[key]
	for i := range operations {
		o := &operations[i]
		s := &step{source: o.Operation}
		switch {
		case o.refused():
			s.value, s.initial = nothing, true
		case o.isWrite():
			if o.dropped {
				continue
			}
			s.write, s.exists, s.value = true, o.Op == history.Txn, number(a.version(o.Operation))
		case o.Content == history.Absent:
			s.value, s.initial = nothing, true
		case o.Content == history.Written:
			v := a.version(o.Operation)
			origin := a.origins[v]
			if origin == either && !lenient && atEnd(o.Operation) {
				v = version{ID: a.before[key]}
			}
			late := origin == during || origin == either && lenient
			s.value, s.initial = number(v), a.other(o.Value) && !late
			if late && !known[v] {
				known[v] = true
				steps = append(steps, porcupine.Operation{
					Input: &step{write: true, value: s.value}, Call: math.MinInt64,
					Return: min(first[v], a.dates.reached(o.ModRevision)),
				})
			}
		default:
			continue
		}
		steps = append(steps, porcupine.Operation{ClientId: o.Client, Input: s, Call: o.Invoked, Return: o.until})
	}
	return steps
}

// reduceTime is what making a violation small may take, and drawing it.
const reduceTime = 10 * time.Second

// reduce leaves out values with all their reads, and then reads, as long as what is left is illegal.
func reduce(steps []porcupine.Operation) []porcupine.Operation {
	deadline := time.Now().Add(reduceTime)
	illegal := func(some []porcupine.Operation) bool { return judge(some, deadline) == porcupine.Illegal }
	steps = leaveOut(steps, func(o porcupine.Operation) int { return o.Input.(*step).value }, illegal)
	number := make(map[*step]int)
	for i, o := range steps {
		number[o.Input.(*step)] = i
	}
	// A write that is read cannot be left out alone: that read would be wrong for another reason.
	return leaveOut(steps, func(o porcupine.Operation) int {
		if s := o.Input.(*step); !s.write {
			return number[s]
		}
		return -1
	}, illegal)
}

// leaveOut leaves out groups of operations as long as what is left is illegal, first many groups at once; group -1
// stays.
func leaveOut(steps []porcupine.Operation, group func(porcupine.Operation) int,
	illegal func([]porcupine.Operation) bool) []porcupine.Operation {
	groups := make(map[int]bool)
	for _, o := range steps {
		if g := group(o); g >= 0 {
			groups[g] = true
		}
	}
	order := make([]int, 0, len(groups))
	for g := range groups {
		order = append(order, g)
	}
	slices.Sort(order)
	for size := max(len(order)/2, 1); len(order) > 0; {
		removed := false
		for at := 0; at < len(order); {
			without := make(map[int]bool)
			for _, g := range order[at:min(at+size, len(order))] {
				without[g] = true
			}
			var some []porcupine.Operation
			for _, o := range steps {
				if !without[group(o)] {
					some = append(some, o)
				}
			}
			if illegal(some) {
				steps, removed = some, true
				order = slices.Delete(order, at, min(at+size, len(order)))
			} else {
				at += size
			}
		}
		if size == 1 && !removed {
			break
		}
		size = max(size/2, 1)
	}
	return steps
}

const noOrder = "what was read of a key follows from no order of the operations on it"

// explain makes the finding of a small history that cannot be linearized, with porcupine's picture of it.
func (a *all) explain(key string, steps []porcupine.Operation) *finding {
	var involved []*history.Operation
	last := int64(math.MinInt64)
	for _, o := range steps {
		s := o.Input.(*step)
		if s.source != nil {
			involved = append(involved, s.source)
			last = max(last, s.source.Completed)
		}
	}
	found := a.violation(noOrder, key, involved, nil)
	shown := slices.Clone(steps)
	slices.SortFunc(shown, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
	for i := range shown {
		// One row each: an operation without an answer overlaps with its client's next ones.
		shown[i].ClientId = i
		shown[i].Call = max(shown[i].Call, shown[0].Call)
		shown[i].Return = min(shown[i].Return, last+1)
		if s := shown[i].Input.(*step); s.source == nil {
			shown[i].Call = min(0, last)
		}
	}
	found.violation.html = func(to io.Writer) error {
		_, info := porcupine.CheckOperationsVerbose(register, shown, reduceTime)
		return porcupine.Visualize(register, info, to)
	}
	return found
}

// Draw writes porcupine's picture of the violation as HTML; false if there is none to be drawn.
func (v *Violation) Draw(to io.Writer) (bool, error) {
	if v.html == nil {
		return false, nil
	}
	return true, v.html(to)
}

// version is what a key holds by one write.
type version struct {
	keys.ID
	// again is the revision at which a value of the data set was written during the load, else 0: each such write is
	// one of its own.
	again int64
}

// origin tells when a version was written that no write of the load made.
type origin int

const (
	earlier origin = iota // than the load
	during                // the load, by an earlier run whose write came late
	either
)

// others is what is known of versions that no write of the load made.
type others struct {
	oldest  int64              // the lowest revision of a linearizable answer, or of a version of this load
	dates   moments            // when clients knew of a revision, where that is of use
	origins map[version]origin // but for earlier ones
	unsure  map[string]bool    // keys that held one of either origin
	before  map[string]keys.ID // by key: the first one that a linearizable read found, but for late ones
}

// findOthers finds out of each such version when it was written.
//
// Revisions count the writes to all keys. So one of a higher revision than an answer, or than a version of this load,
// was written during the load. One of none of these was there before, if all answers about its key tell revisions.
// Otherwise a version of another run may be either. The data set is taken for what was there before unless its revision
// is a later one: nothing else tells one write of it from another, and without that no lost write would be found.
//
// Of the final state, a value that does not read as the name of a write is the data set's, or was what the key held
// before; so is one whose revision is not a later one. An empty one can only be what the key held before.
func (a *all) findOthers() {
	a.oldest, a.origins = math.MaxInt64, make(map[version]origin)
	a.unsure, a.before = make(map[string]bool), make(map[string]keys.ID)
	undated := make(map[string]bool) // keys about which an answer tells no revision
	for i := range a.operations {
		o := &a.operations[i]
		if o.Op != history.SerializableGet && !atEnd(o) {
			if o.Revision > 0 {
				a.oldest = min(a.oldest, o.Revision)
			} else if read(o) || o.Op != history.Get && o.Outcome <= history.Wrong {
				undated[o.Key] = true
			}
		}
		if read(o) && a.writes[o.Value] != nil && o.ModRevision > 0 {
			a.oldest = min(a.oldest, o.ModRevision)
		}
	}
	for i := range a.operations {
		o := &a.operations[i]
		if o.Content != history.Written || !read(o) || !a.other(o.Value) || o.Value == empty {
			continue
		}
		v := a.version(o)
		switch {
		case o.ModRevision > a.oldest:
			a.origins[v] = during
			continue
		case v.ID != (keys.ID{}) && (undated[o.Key] || o.ModRevision == 0) && a.origins[v] != during:
			a.origins[v], a.unsure[o.Key] = either, true
		case atEnd(o):
			o.Value = a.before[o.Key]
			continue
		}
		if _, known := a.before[o.Key]; !known && o.Op == history.Get && !atEnd(o) {
			a.before[o.Key] = o.Value
		}
	}
	if len(a.origins) > 0 {
		a.findDates()
	}
}

// findDates finds out when clients knew of revisions: at the latest when a write was acknowledged that a read tells one
// of, or when an answer had come that tells it.
func (a *all) findDates() {
	note := func(revision, completed int64) {
		if revision > 0 {
			a.dates = append(a.dates, moment{revision, completed})
		}
	}
	for i := range a.operations {
		o := &a.operations[i]
		note(max(o.Revision, o.ModRevision), o.Completed)
		if write := a.writes[o.Value]; read(o) && write != nil && write.Outcome <= history.Wrong {
			note(o.ModRevision, write.Completed)
		}
	}
	a.dates.sort()
}

// version tells which one a read found, or a write made.
func (a *all) version(o *history.Operation) version {
	if read(o) && o.Value == (keys.ID{}) && o.ModRevision > a.oldest {
		return version{again: o.ModRevision}
	}
	return version{ID: o.Value}
}

// moment is when a client knew of a revision.
type moment struct{ revision, completed int64 }

// moments are those by revision, once they are sorted; completed is the first one of a revision and all higher ones.
type moments []moment

func (m moments) sort() {
	slices.SortFunc(m, func(x, y moment) int { return cmp.Compare(x.revision, y.revision) })
	for i := len(m) - 2; i >= 0; i-- {
		m[i].completed = min(m[i].completed, m[i+1].completed)
	}
}

// reached tells by when the store had got to a revision; math.MaxInt64: that is not known, or it is 0.
func (m moments) reached(revision int64) int64 {
	next, _ := slices.BinarySearchFunc(m, revision, func(x moment, revision int64) int {
		return cmp.Compare(x.revision, revision)
	})
	if revision == 0 || next == len(m) {
		return math.MaxInt64
	}
	return m[next].completed
}
