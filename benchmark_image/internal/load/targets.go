package load

import (
	"containernet-env/benchmark_image/internal/keys"
	"containernet-env/benchmark_image/internal/store"
)

// Puts writes generated keys, each in a put or in a transaction. The value of a key is a function of the key's number,
// and if it is to be unique, also of the request.
type Puts struct {
	Prefix   string
	KeySize  int
	Order    keys.Order
	Values   *keys.Values
	Txn      bool // write a key only if it exists
	Unique   bool // no two requests write the same value
	Promises *Promises
}

// Target implements Targeter.
func (p *Puts) Target(r *Request) {
	number, key := r.Number, r.Key
	r.clear()
	keyNumber := p.Order.Key(number)
	r.Number, r.Kind, r.Operation = number, Put, store.Put
	r.Key = keys.Append(append(key[:0], p.Prefix...), keyNumber, p.KeySize)
	r.keyNumber, r.unique = keyNumber, p.Unique
	if p.Unique {
		r.Head, r.Value = p.Values.Version(r.head[:0], keyNumber, keys.ID{Run: r.run, Client: r.client, Number: number})
		p.Promises.begin(r)
	} else {
		r.Value = p.Values.At(keyNumber)
	}
	if p.Txn {
		r.Kind, r.Operation = Txn, store.Transaction
	}
}

// Reads reads the same key or span of keys in each request or, when Order is set, one generated key, or range
// scan of such keys, after the other.
type Reads struct {
	Span store.Request // what every request has in common

	Prefix  string // of the generated keys, as in Puts
	KeySize int
	Order   keys.Order
	// with Order: range scan of this many keys from the one in order, up to the last of Space; 0: only that one
	SpanKeys int
	Space    int // how many generated keys there are

	Verify      *keys.Values // if set, answers must hold what Puts with these values wrote, and no other key
	Promises    *Promises    // with Verify: what the same load has written; nil if it writes nothing
	Complete    bool         // with Verify: Puts wrote every key that is read
	First, Last uint64       // with Verify, without Order: numbers of the first key in Span, and of the one after the last
}

// Target implements Targeter.
func (g *Reads) Target(r *Request) {
	number, key := r.Number, r.Key
	r.clear()
	r.Number, r.Kind, r.Request = number, Range, g.Span
	first, last := g.First, g.Last
	if g.Order != nil {
		first = g.Order.Key(number)
		last = first + 1
		r.Key = keys.Append(append(key[:0], g.Prefix...), first, g.KeySize)
		if g.SpanKeys > 0 {
			last = min(first+uint64(g.SpanKeys), uint64(g.Space))
			// The span ends directly after its last key: keys of other sizes may lie before the next one.
			r.end = append(keys.Append(append(r.end[:0], g.Prefix...), last-1, g.KeySize), 0)
			r.End = r.end
		}
	}
	if r.Operation = store.Scan; len(r.End) == 0 {
		r.Operation = store.Get
	}
	r.keyNumber = first
	r.expected = expected{
		promises: g.Promises, values: g.Verify, prefix: g.Prefix, keySize: g.KeySize, first: first, next: first,
		last: last, complete: g.Complete,
	}
}

// Mixed sends puts and reads of generated keys in random order.
type Mixed struct {
	Puts  *Puts
	Reads *Reads
	Ratio float64 // share of the puts, 0..1
	Draw  func(number uint64) float64
}

// Kind is that of a request, by its number.
func (m *Mixed) Kind(number int) Kind {
	if m.Draw(uint64(number)) < m.Ratio {
		return Put
	}
	return Range
}

// Target implements Targeter.
func (m *Mixed) Target(r *Request) {
	if m.Kind(r.Number) == Put {
		m.Puts.Target(r)
	} else {
		m.Reads.Target(r)
		r.expected.mixed = m
	}
}

func (m *Mixed) wrote(number int, key uint64) bool {
	return m.Draw(uint64(number)) < m.Ratio && m.Puts.Order.Key(number) == key
}

// clear resets what the request does, not when it starts.
func (r *Request) clear() {
	r.Request, r.expected = store.Request{}, expected{}
	r.keyNumber, r.unique, r.revision, r.member, r.found = 0, false, 0, 0, found{}
}
