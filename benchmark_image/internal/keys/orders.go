// Package keys makes the keys and the values of a load. Everything is a pure function of a seed and a
// number, so that clients share no state, runs can be repeated, and a reader knows what a writer wrote.
package keys

import (
	"bytes"
	"fmt"
	"math"
	"sort"
	"strings"
)

// alphabet is in ASCII order, so that keys sort as their numbers do.
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

const base = uint64(len(alphabet))

// Room is how many different keys fit into size bytes, at most the largest int.
func Room(size int) int {
	room := uint64(1)
	for range size {
		if room > math.MaxInt/base {
			return math.MaxInt
		}
		room *= base
	}
	return int(room)
}

// MinSize is the smallest size in bytes with at least n different keys.
func MinSize(n int) int {
	size := 1
	for Room(size) < n {
		size++
	}
	return size
}

// Append appends key number n (0 <= n < Room(size)) in exactly size bytes of digits and letters to dst.
func Append(dst []byte, n uint64, size int) []byte {
	start := len(dst)
	for range size {
		dst = append(dst, alphabet[0])
	}
	for i := len(dst) - 1; n > 0 && i >= start; i-- {
		dst[i] = alphabet[n%base]
		n /= base
	}
	return dst
}

// digits has the value of each character of the alphabet, -1 for all others.
var digits = func() (values [256]int8) {
	for c := range values {
		values[c] = int8(strings.IndexByte(alphabet, byte(c)))
	}
	return values
}()

// Number is the inverse of Append: the number of a key that is the prefix and size bytes; false for any other key.
func Number(key []byte, prefix string, size int) (n uint64, ok bool) {
	if len(key) != len(prefix)+size || string(key[:len(prefix)]) != prefix {
		return 0, false
	}
	for _, c := range key[len(prefix):] {
		digit := digits[c]
		if digit < 0 || n > (math.MaxInt-uint64(digit))/base {
			return 0, false
		}
		n = n*base + uint64(digit)
	}
	return n, true
}

// Before counts how many of the keys 0..space-1, each of them the prefix and size bytes, sort before a bound.
func Before(bound []byte, prefix string, size, space int) uint64 {
	key := []byte(prefix)
	return uint64(sort.Search(space, func(n int) bool {
		return bytes.Compare(Append(key[:len(prefix)], uint64(n), size), bound) >= 0
	}))
}

// Order tells which key a request uses: a number in 0..space-1.
type Order interface {
	// Key gives the key number of a request. It is safe for concurrent use.
	Key(request int) uint64
}

// NewOrder gives the sequential order, or a random one that follows from the seed. Both use each key of the
// space once before any is repeated, so a space as large as the number of requests makes every key
// different. space must be positive.
func NewOrder(space int, sequential bool, seed int64) Order {
	if sequential {
		return cyclic(space)
	}
	s := &shuffled{space: uint64(space), half: 1, seed: uint64(seed)}
	for uint64(1)<<(2*s.half) < s.space {
		s.half++
	}
	s.mask = 1<<s.half - 1
	return s
}

type cyclic uint64

func (c cyclic) Key(request int) uint64 { return uint64(request) % uint64(c) }

// shuffled is a random permutation of 0..space-1 that needs no table: a four-round Feistel network over
// the next even number of bits, applied again until the result is inside the space (cycle walking). Black and Rogaway,
// 'Ciphers with Arbitrary Finite Domains', CT-RSA 2002, section 4.
type shuffled struct {
	space uint64
	half  uint   // bits of each half
	mask  uint64 // of one half
	seed  uint64
}

func (s *shuffled) Key(request int) uint64 {
	round, n := uint64(request)/s.space, uint64(request)%s.space
	for {
		left, right := n>>s.half, n&s.mask
		for i := range uint64(4) {
			left, right = right, left^mix(s.seed+mix(round<<2|i)+right)&s.mask
		}
		if n = left<<s.half | right; n < s.space {
			return n
		}
	}
}

// mix is the finalizer of SplitMix64. Steele, Lea, Flood, 'Fast Splittable Pseudorandom Number
// Generators', OOPSLA 2014, figure 16.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Draw gives random numbers as a pure function of their index: streams of the same seed differ by their
// name.
type Draw struct{ seed uint64 }

// The streams of random numbers that a load draws from.
const (
	StreamKeys    = 1
	StreamArrival = 2
	StreamKinds   = 3
)

// NewDraw gives a stream of random numbers.
func NewDraw(seed int64, stream uint64) Draw { return Draw{mix(mix(uint64(seed)) + stream)} }

// bits53 is 2 to the power of a float64's precision in bits.
const bits53 = 1 << 53

// At gives number index of the stream, in (0, 1).
func (d Draw) At(index uint64) float64 {
	return (float64(mix(d.seed+mix(index))>>11) + 0.5) / bits53
}

// NewUniform gives an order in which every request uses a key drawn from the space, each with the same probability.
// space must be positive.
func NewUniform(space int, seed int64) Order {
	return &uniform{float64(space), uint64(space), NewDraw(seed, StreamKeys)}
}

type uniform struct {
	space float64
	count uint64
	draw  Draw
}

func (u *uniform) Key(request int) uint64 {
	return min(uint64(u.draw.At(uint64(request))*u.space), u.count-1)
}

// zipfian draws key k with a probability proportional to 1/(k+1)^exponent, by rejection-inversion: Hormann and
// Derflinger, 'Rejection-Inversion to Generate Variates from Monotone Discrete Distributions', ACM TOMACS 6 (1996).
// It needs no table and, on average, fewer than two draws.
type zipfian struct {
	space    float64
	exponent float64
	draw     Draw

	integralFirst, integralLast, shortcut float64
}

// NewZipfian gives an order in which every request uses a key drawn from the space: key 0 is the most frequent one,
// and key k comes (k+1)^exponent times less often. space and exponent must be positive.
func NewZipfian(space int, exponent float64, seed int64) Order {
	z := &zipfian{space: float64(space), exponent: exponent, draw: NewDraw(seed, StreamKeys)}
	z.integralFirst = z.integral(1.5) - 1
	z.integralLast = z.integral(z.space + 0.5)
	z.shortcut = 2 - z.inverse(z.integral(2.5)-z.density(2))
	return z
}

// attempts is how many draws are reserved for each request; that many consecutive rejections do not happen.
const attempts = 64

func (z *zipfian) Key(request int) uint64 {
	for i := range uint64(attempts) {
		u := z.integralLast + z.draw.At(uint64(request)*attempts+i)*(z.integralFirst-z.integralLast)
		x := z.inverse(u)
		k := min(max(math.Round(x), 1), z.space)
		if k-x <= z.shortcut || u >= z.integral(k+0.5)-z.density(k) {
			return uint64(k) - 1
		}
	}
	return 0
}

func (z *zipfian) density(x float64) float64 { return math.Exp(-z.exponent * math.Log(x)) }

// integral is the integral of the density, also where the exponent is 1 and the usual formula divides by zero.
func (z *zipfian) integral(x float64) float64 {
	logarithm := math.Log(x)
	return expRatio((1-z.exponent)*logarithm) * logarithm
}

func (z *zipfian) inverse(x float64) float64 {
	return math.Exp(logRatio(max(x*(1-z.exponent), -1)) * x)
}

// expRatio is (e^x - 1) / x, which is 1 at 0.
func expRatio(x float64) float64 {
	if math.Abs(x) < 1e-8 {
		return 1 + x/2
	}
	return math.Expm1(x) / x
}

// logRatio is log(1 + x) / x, which is 1 at 0.
func logRatio(x float64) float64 {
	if math.Abs(x) < 1e-8 {
		return 1 - x/2
	}
	return math.Log1p(x) / x
}

// poolSpan is how many different starting points values have inside the pool.
const poolSpan = 1 << 16

// Values gives the values of each key: size printable bytes without a pattern that a compressor could use. That of a
// data set depends only on the seed and the number of the key, and a version of it also on its writer, so that a reader
// can tell what every writer wrote. Values share one read-only pool, so making one costs no copy and no allocation.
type Values struct {
	pool []byte
	size int
	seed uint64
}

// NewValues prepares values of exactly size bytes (0 or more).
func NewValues(size int, seed int64) *Values {
	v := &Values{pool: make([]byte, poolSpan+size), size: size, seed: mix(uint64(seed))}
	for i := range v.pool {
		v.pool[i] = alphabet[mix(v.seed+uint64(i))%base]
	}
	return v
}

// At gives the value of a key in a data set. The caller must not change it. It is safe for concurrent use.
func (v *Values) At(key uint64) []byte {
	start := mix(v.seed^key) % poolSpan
	return v.pool[start : start+uint64(v.size) : start+uint64(v.size)]
}

// How many digits of the alphabet each part of an ID takes, and the check after it.
const (
	runDigits    = 6
	clientDigits = 3
	numberDigits = 6
	checkDigits  = 5
)

const (
	// NameSize is the length of an ID as text, in bytes.
	NameSize = runDigits + clientDigits + numberDigits
	// VersionSize is how many bytes at the start of a value tell which write it comes from; no smaller value does.
	VersionSize = NameSize + checkDigits
	// MaxRun is the largest number of a run.
	MaxRun = 62*62*62*62*62*62 - 1
	// checks is how many different checks there are.
	checks = 62 * 62 * 62 * 62 * 62
)

// ID names the write that a value comes from. The zero value is that of a data set: a value that is the same whoever
// writes it.
type ID struct {
	Run    uint64 // 1..MaxRun, drawn for each run
	Client int
	Number int // of the request within its run
}

// String gives NameSize digits and letters, or "=" for a data set's value.
func (id ID) String() string {
	if id == (ID{}) {
		return "="
	}
	return string(id.append(make([]byte, 0, NameSize)))
}

func (id ID) append(dst []byte) []byte {
	dst = Append(dst, id.Run, runDigits)
	dst = Append(dst, uint64(id.Client), clientDigits)
	return Append(dst, uint64(id.Number), numberDigits)
}

// ParseID is the inverse of String.
func ParseID(name string) (ID, error) {
	if name == "=" {
		return ID{}, nil
	}
	if id, ok := parseID([]byte(name)); ok && len(name) == NameSize {
		return id, nil
	}
	return ID{}, fmt.Errorf("%.50q is not the name of a write", name)
}

// parseID reads the ID that a text begins with.
func parseID(text []byte) (id ID, ok bool) {
	if len(text) < NameSize {
		return ID{}, false
	}
	run, ok := Number(text[:runDigits], "", runDigits)
	client, ok2 := Number(text[runDigits:runDigits+clientDigits], "", clientDigits)
	number, ok3 := Number(text[runDigits+clientDigits:NameSize], "", numberDigits)
	return ID{Run: run, Client: int(client), Number: int(number)}, ok && ok2 && ok3 && run > 0
}

// Version gives the value that a write makes of a key, in two parts: its ID with a check, and what fills it up, which
// follows from key and ID. head is appended to dst; the caller must not change tail. It panics where values are smaller
// than VersionSize.
func (v *Values) Version(dst []byte, key uint64, id ID) (head, tail []byte) {
	mark := mix(mix(mix(v.seed^mix(key))^id.Run<<18^uint64(id.Client)) ^ uint64(id.Number))
	start := mark % poolSpan
	return Append(id.append(dst), mark%checks, checkDigits), v.pool[start : start+uint64(v.size-VersionSize)]
}

// Writer tells which write of the key a value comes from; false where no write made it.
func (v *Values) Writer(key uint64, value []byte) (id ID, ok bool) {
	if bytes.Equal(value, v.At(key)) {
		return ID{}, true
	}
	if len(value) != v.size || v.size < VersionSize {
		return ID{}, false
	}
	if id, ok = parseID(value); !ok {
		return ID{}, false
	}
	var room [VersionSize]byte
	head, tail := v.Version(room[:0], key, id)
	if !bytes.Equal(value[:VersionSize], head) || !bytes.Equal(value[VersionSize:], tail) {
		return ID{}, false
	}
	return id, true
}
