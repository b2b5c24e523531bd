package keys

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

// Unique tells whether values have room for the name of their writer.
func (v *Values) Unique() bool { return v.size >= VersionSize }
