// Package inputtest generates the inputs of fuzz targets in ordinary test runs, without the fuzzer's own build.
package inputtest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
)

const (
	// inputs is the variable with the number of inputs for each target.
	inputs = "CONTAINERNET_ENV_INPUTS"
	// replay is the variable with the seed of an earlier run.
	replay = "CONTAINERNET_ENV_SEED"
	// search is the variable with the length of the search, short by default.
	search = "CONTAINERNET_ENV_SEEDS"
)

// lengths of the search, in inputs.
var lengths = map[string]string{"": "1000", "long": "20000"}

// F is a fuzz target. Where the fuzzer does not run, it also gets mutations of its seeds, from a seed that is another
// one each time and is printed with a failure.
type F struct {
	*testing.F
	seeds [][]any
}

// Add is that of testing.F.
func (f *F) Add(input ...any) {
	f.Helper()
	f.seeds = append(f.seeds, input)
	f.F.Add(input...)
}

// Fuzz is that of testing.F.
func (f *F) Fuzz(target any) {
	f.Helper()
	if native := flag.Lookup("test.fuzz"); native == nil || native.Value.String() == "" {
		f.mutate()
	}
	f.F.Fuzz(target)
}

func (f *F) mutate() {
	f.Helper()
	count, err := strconv.Atoi(cmp.Or(os.Getenv(inputs), lengths[os.Getenv(search)]))
	seed := rand.Uint64()
	if err == nil && os.Getenv(replay) != "" {
		seed, err = strconv.ParseUint(os.Getenv(replay), 10, 64)
	}
	assert.OK(f, err)
	f.Logf("%s=%d %s=%d generates these inputs", replay, seed, inputs, count)
	name := fnv.New64a()
	_, _ = name.Write([]byte(f.Name()))
	m := mutator{rand.New(rand.NewPCG(seed, name.Sum64())), f.seeds}
	for range count {
		f.F.Add(m.input()...)
	}
}

// mutator makes inputs from others.
type mutator struct {
	*rand.Rand
	seeds [][]any
}

// input changes one argument of a seed, or several.
func (m *mutator) input() []any {
	input := slices.Clone(m.seeds[m.IntN(len(m.seeds))])
	for more := true; more; more = m.IntN(3) == 0 {
		i := m.IntN(len(input))
		switch old := input[i].(type) {
		case []byte:
			input[i] = m.bytes(old, i)
		case string:
			input[i] = string(m.bytes([]byte(old), i))
		case bool:
			input[i] = !old
		default: // an integer
			input[i] = reflect.ValueOf(m.number()).Convert(reflect.TypeOf(old)).Interface()
		}
	}
	return input
}

// number is often a small one, or near a power of two.
func (m *mutator) number() uint64 {
	near := uint64(1)<<m.IntN(64) + uint64(m.IntN(3)) - 1
	return []uint64{m.Uint64(), near, -near, uint64(m.IntN(256))}[m.IntN(4)]
}

// text is that of another seed, for the same argument.
func (m *mutator) text(i int) []byte {
	switch other := m.seeds[m.IntN(len(m.seeds))][i].(type) {
	case []byte:
		return other
	case string:
		return []byte(other)
	}
	return nil
}

// cut gives two places in a text, in order; mostly near each other.
func (m *mutator) cut(b []byte) (from, to int) {
	from = m.IntN(len(b) + 1)
	most := len(b) - from
	if m.IntN(4) > 0 {
		most = min(most, 8)
	}
	return from, from + m.IntN(most+1)
}

func (m *mutator) bytes(b []byte, i int) []byte {
	b = bytes.Clone(b)
	for range 1 << m.IntN(4) {
		from, to := m.cut(b)
		encoded := binary.BigEndian.AppendUint64(nil, m.number())[8-1<<m.IntN(4):]
		switch m.IntN(6) {
		case 0:
			b = slices.Delete(b, from, to)
		case 1:
			b = slices.Insert(b, m.IntN(len(b)+1), bytes.Clone(b[from:to])...)
		case 2:
			other := m.text(i)
			begin, end := m.cut(other)
			b = slices.Replace(b, from, to, other[begin:end]...)
		case 3:
			for at := from; at < to; at++ {
				b[at] ^= 1 << m.IntN(8)
			}
		case 4:
			b = slices.Insert(b, from, encoded...)
		case 5:
			copy(b[from:], encoded)
		}
	}
	return b
}
