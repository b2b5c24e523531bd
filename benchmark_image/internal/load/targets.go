package load

import "containernet-env/benchmark_image/internal/keys"

// Puts writes generated keys.
type Puts struct {
	Prefix  string
	KeySize int
	Order   keys.Order
	Values  *keys.Values
}

// Target implements Targeter.
func (p *Puts) Target(r *Request) {
	r.Kind = Put
	r.Key = keys.Append(append(r.Key[:0], p.Prefix...), p.Order.Key(r.Number), p.KeySize)
	r.Value = p.Values.At(r.Number)
}

// Reads asks for one key or one span of keys over and over, or, when Order is set, for one generated
// key after the other.
type Reads struct {
	Span Request // what every request has in common

	Prefix  string
	KeySize int
	Order   keys.Order
}

// Target implements Targeter.
func (g *Reads) Target(r *Request) {
	number, key := r.Number, r.Key
	*r = g.Span
	r.Number, r.Kind = number, Range
	if g.Order != nil {
		r.Key = keys.Append(append(key[:0], g.Prefix...), g.Order.Key(number), g.KeySize)
	}
}
