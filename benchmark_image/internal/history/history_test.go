package history

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/keys"
)

var someOperations = []Operation{
	{Client: 3, Op: Put, Value: keys.ID{Run: 9, Client: 3, Number: 7}, Revision: 12, Member: 1 << 63, Invoked: 5,
		Completed: 9},
	{Op: Get, Content: Written, ModRevision: 12, Revision: 13, Value: keys.ID{Run: 9, Client: 3, Number: 7}, Completed: 1},
	{Op: Get, Content: Written, ModRevision: 2, Revision: 13, Outcome: Wrong},
	{Op: SerializableGet, Content: Absent, Revision: 3, Outcome: Wrong},
	{Op: Get, Content: Foreign, Revision: 3, Outcome: Wrong},
	{Op: Get, Outcome: Unknown},
	{Op: Txn, Value: keys.ID{Run: 9, Number: 8}, Outcome: Failed, Client: 9999},
}

func written(t *testing.T, to io.Writer, operations []Operation) Footer {
	t.Helper()
	w := NewWriter(to, -time.Second, "p/", 4)
	for i, o := range operations {
		w.Add(Entry{Operation: o, KeyNumber: uint64(i)})
	}
	footer := assert.Got(w.Close())(t)
	return footer
}

func TestAHistoryIsReadAsItWasWritten(t *testing.T) {
	var file bytes.Buffer
	footer := written(t, &file, someOperations)
	assert.That(t, footer == (Footer{Operations: len(someOperations)}), "%+v", footer)
	var got, want []Operation
	for i, o := range someOperations {
		o.Key = string(keys.Append(nil, uint64(i), 4))
		o.Invoked, o.Completed = o.Invoked+1e9, o.Completed+1e9
		if o.Op == Put || o.Op == Txn {
			o.Content = Written
		}
		want = append(want, o)
	}
	header, err := Read(&file, func(o Operation) { got = append(got, o) })
	assert.That(t, err == nil && reflect.DeepEqual(got, want) && header.Prefix == "p/" && header.BeganNs == -1e9,
		"%+v, %v\n%+v\nwant\n%+v", header, err, got, want)
}

// TestAHistoryThatLacksOperationsIsRefused cuts one off everywhere, and has a writer that does not keep up.
func TestAHistoryThatLacksOperationsIsRefused(t *testing.T) {
	var file bytes.Buffer
	written(t, &file, slices.Repeat(someOperations, 100))
	whole := file.Bytes()
	for end := 0; end < len(whole); end += 97 {
		_, err := Read(bytes.NewReader(whole[:end]), func(Operation) {})
		assert.That(t, errors.Is(err, ErrIncomplete), "%d of %d bytes: %v", end, len(whole), err)
	}
	reader, writer := io.Pipe()
	w := NewWriter(writer, 0, "", 8)
	const many = (maxBatches + 5) * batchSize // the writer holds one, and one is being filled
	for range many {
		w.Add(Entry{Operation: Operation{Op: Put, Value: keys.ID{Run: 1}}})
	}
	closed := make(chan Footer, 1)
	go func() {
		footer, err := w.Close()
		assert.That(t, err == nil, "%v", err)
		writer.Close()
		closed <- footer
	}()
	_, err := Read(reader, func(Operation) {})
	footer := <-closed
	assert.That(t, errors.Is(err, ErrIncomplete) && footer.Lost != 0 && footer.Lost+footer.Operations == many, "%+v, %v",
		footer, err)
}

func TestWhatIsNoHistoryIsRefused(t *testing.T) {
	const header = `{"history":1}` + "\n"
	for name, file := range map[string]io.Reader{
		"not compressed":       strings.NewReader(`{"history":1,"began_ns":5}`),
		"another version":      packed(t, `{"history":2}`+"\n"),
		"an unknown operation": packed(t, header+`{"client":0,"op":"delete","outcome":"ok"}`+"\n"),
		"an unknown outcome":   packed(t, header+`{"client":0,"op":"put","outcome":"fine"}`+"\n"),
		"an unknown value":     packed(t, header+`{"client":0,"op":"put","outcome":"ok","value":"x"}`+"\n"),
		"a time alone":         packed(t, header+`{"client":0,"op":"get","outcome":"ok","invoked":5}`+"\n"),
		"no object":            packed(t, header+"[\n"),
	} {
		_, err := Read(file, func(Operation) {})
		assert.That(t, err != nil && !errors.Is(err, ErrIncomplete), "%s: %v", name, err)
	}
}

func TestAStoresHistoryIsWholeIfMarkedSo(t *testing.T) {
	const event = `{"revision":7,"key":"p/0001","value":"abc"}` + "\n"
	events := []Event{{Revision: 7, Key: "p/0001", Value: "abc"}}
	for text, want := range map[string]Log{
		event + `{"whole":true}` + "\n":               {Events: events, Whole: true},
		event + `{"whole":false}` + "\n":              {Events: events},
		event + `{"whole":false,"final":true}` + "\n": {Events: events, Final: true},
		`{"revision":0,"key":"p/0001","value":null}` + "\n" + `{"whole":false,"final":false}` + "\n": {
			Events: []Event{{Key: "p/0001", Absent: true}}},
		`{"revision":0,"key":"p/0001","value":""}` + "\n" + `{"whole":false,"final":false}` + "\n": {
			Events: []Event{{Key: "p/0001"}}},
		event: {Events: events},
	} {
		got := assert.Got(ReadLog(packed(t, text)))(t)
		assert.Equal(t, *got, want, "%q", text)
	}
}

func packed(t *testing.T, text string) io.Reader {
	t.Helper()
	var file bytes.Buffer
	w := newGzip(&file)
	_, err := io.WriteString(w, text)
	assert.OK(t, err, w.Close())
	return &file
}
