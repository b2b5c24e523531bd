package load

import (
	"bytes"
	"fmt"

	"containernet-env/benchmark_image/internal/keys"
)

// Puts writes generated keys, each in a put or in a transaction. The value of a key is a function of the key's number.
type Puts struct {
	Prefix  string
	KeySize int
	Order   keys.Order
	Values  *keys.Values
	Txn     bool // write a key only if it holds the value already that it gets
}

// Target implements Targeter.
func (p *Puts) Target(r *Request) {
	number, key := r.Number, r.Key
	r.clear()
	r.Number, r.Kind, r.keyNumber = number, Put, p.Order.Key(number)
	r.Key = keys.Append(append(key[:0], p.Prefix...), r.keyNumber, p.KeySize)
	r.Value = p.Values.At(r.keyNumber)
	if p.Txn {
		r.Kind = Txn
	}
}

// Reads asks for one key or one span of keys over and over, or, when Order is set, for one generated
// key after the other.
type Reads struct {
	Span Request // what every request has in common

	Prefix  string
	KeySize int
	Order   keys.Order
	Verify  *keys.Values // if set, answers must hold what Puts with these values wrote; only with Order

}

// Target implements Targeter.
func (g *Reads) Target(r *Request) {
	number, key := r.Number, r.Key
	r.clear()
	r.Number, r.Kind = number, Range
	r.Key, r.End, r.Limit = g.Span.Key, g.Span.End, g.Span.Limit
	r.Serializable, r.CountOnly, r.KeysOnly = g.Span.Serializable, g.Span.CountOnly, g.Span.KeysOnly
	if g.Order != nil {
		r.keyNumber, r.values = g.Order.Key(number), g.Verify
		r.Key = keys.Append(append(key[:0], g.Prefix...), r.keyNumber, g.KeySize)
	}
}

// Mixed sends puts and reads of generated keys in random order.
type Mixed struct {
	Puts  *Puts
	Reads *Reads
	Ratio float64 // share of the puts, 0..1
	Draw  func(number uint64) float64
}

// Target implements Targeter.
func (m *Mixed) Target(r *Request) {
	if m.Draw(uint64(r.Number)) < m.Ratio {
		m.Puts.Target(r)
	} else {
		m.Reads.Target(r)
	}
}

// clear forgets what the request asked for, not when it starts.
func (r *Request) clear() {
	r.Key, r.Value, r.End, r.values, r.keyNumber = nil, nil, nil, nil, 0
	r.Limit, r.Serializable, r.CountOnly, r.KeysOnly = 0, false, false, false
}

// WrongAnswerError is an answer that does not hold what was written.
type WrongAnswerError struct{ Text string }

// Error implements error.
func (e *WrongAnswerError) Error() string { return e.Text }

// Checked tells whether Check wants to see the keys and values of the answer.
func (r *Request) Checked() bool { return r.values != nil }

// CheckCounts holds that an answer to a range has as many keys as there are: keys is how many it holds, count how many it
// says there are in the span, with those that a limit leaves out. The error is a *WrongAnswerError.
func (r *Request) CheckCounts(keys, count int64) error {
	if r.Kind != Range {
		return nil
	}
	want := count
	switch {
	case r.CountOnly:
		want = 0
	case r.Limit > 0:
		want = min(count, r.Limit)
	}
	if count < 0 || keys != want || len(r.End) == 0 && count > 1 {
		return &WrongAnswerError{fmt.Sprintf("an answer held %d keys of %d, expected were %d", keys, count, want)}
	}
	return nil
}

// Check compares one key and value of the answer with what a writer of the same seed, key size and value size
// writes. The error is a *WrongAnswerError, whose text is the same for all keys.
func (r *Request) Check(key, value []byte) error {
	if !bytes.Equal(key, r.Key) {
		return &WrongAnswerError{"an answer held another key than the one that was asked for"}
	}
	want := r.values.At(r.keyNumber)
	if len(value) != len(want) {
		return &WrongAnswerError{fmt.Sprintf("an answer held a value of %d bytes, written were %d", len(value), len(want))}
	}
	if !bytes.Equal(value, want) {
		return &WrongAnswerError{"an answer held another value than the one that was written"}
	}
	return nil
}
