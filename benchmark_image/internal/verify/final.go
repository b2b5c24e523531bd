package verify

import (
	"math"

	"containernet-env/benchmark_image/internal/history"
	"containernet-env/benchmark_image/internal/keys"
)

// noClient is the number of the client of reads of the final state.
const noClient = -1

// The values of a data set are digits and letters too, so they read as names of writes. These bounds are above what any
// load has in practice, and leave one of a thousand: 3 digits of 62 name a client, and 6 a request.
const (
	maxClients = 10_000
	maxNumber  = 1_000_000_000
)

// empty stands for an empty value: that of no write of any load with a history, nor of a data set that one may read.
var empty = keys.ID{Number: -1}

// atEnd tells whether an operation is a read of the final state.
func atEnd(o *history.Operation) bool { return o.Client == noClient }

// readAtEnd takes a store's final state for reads that were invoked when the load was over, one of each key that was
// written. It does nothing and returns false where one of these keys is missing. Of a value that no write of the load
// made, findOthers tells what becomes.
func (a *all) readAtEnd(state []history.Event) bool {
	held := make(map[string]history.Event, len(state))
	for _, e := range state {
		held[e.Key] = e
	}
	over := int64(math.MinInt64)
	var reads []history.Operation
	taken := make(map[string]bool, len(state))
	for i := range a.operations {
		o := &a.operations[i]
		over = max(over, o.Completed)
		if o.Op != history.Put && o.Op != history.Txn || taken[o.Key] {
			continue
		}
		e, there := held[a.prefix+o.Key]
		if !there {
			return false
		}
		taken[o.Key] = true
		reads = append(reads, finalRead(o.Key, e))
	}
	for i := range reads {
		reads[i].Invoked, reads[i].Completed = over+1, over+2
	}
	a.operations = append(a.operations, reads...)
	return true
}

func finalRead(key string, e history.Event) history.Operation {
	read := history.Operation{Client: noClient, Op: history.Get, Key: key, Content: history.Absent}
	if e.Absent {
		return read
	}
	read.Content, read.ModRevision = history.Written, e.Revision
	if e.Value == "" {
		read.Value = empty
		return read
	}
	id, err := keys.ParseID(e.Value[:min(len(e.Value), keys.NameSize)])
	if err == nil && id.Client < maxClients && id.Number < maxNumber {
		read.Value = id
	}
	return read
}
