package report

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/bits"
	"sync"
	"time"
)

// A histogram is in the form of HdrHistogram (https://hdrhistogram.org), its V2 encoding, compressed: that is what its
// libraries in all languages add up. It is written here and not by one of them so that the counts of several series are
// added up while they are encoded, and a percentile finds the latencies of its slot. Values up to 2^11 have a slot
// each; each further power of two is divided into 2^10 slots, which makes 3 significant digits.
const (
	histogramCookie           = 0x1c849303 | 0x10
	histogramCompressedCookie = 0x1c849304 | 0x10

	halfBits = 10 // bits of the number of slots in the upper half of a power of two
)

// Bounds of the values in a histogram, in ns; what is larger counts as the largest.
const (
	histogramMin    = 1
	histogramMax    = int64(48 * time.Hour)
	histogramDigits = 3
)

// slot is the index of a value, 0 or more, among the counts.
func slot(value int64) int {
	power := max(bits.Len64(uint64(value))-halfBits-1, 0)
	return power<<halfBits + int(value>>power)
}

// appendCount appends a number in the V2 encoding: zigzag, 7 bits per byte, 8 in the ninth.
func appendCount(b []byte, n int64) []byte {
	rest := uint64(n<<1) ^ uint64(n>>63)
	for range 8 {
		if rest < 0x80 {
			return append(b, byte(rest))
		}
		b = append(b, byte(rest)|0x80)
		rest >>= 7
	}
	return append(b, byte(rest))
}

// slotEnd is the largest value of a slot.
func slotEnd(at int) time.Duration {
	power := max(at>>halfBits-1, 0)
	return time.Duration(at-power<<halfBits+1)<<power - 1
}

// appendCounts appends the counts up to the last that is not zero. A negative number stands for that many zeros.
func appendCounts(b []byte, of latencies) []byte {
	next := 0 // the slot after the last one that is written
	low, high := of.slots()
	for at := low; at <= high; at++ {
		count := of.countAt(at)
		if count == 0 {
			continue
		}
		switch zeros := int64(at - next); zeros {
		case 0:
		case 1:
			b = append(b, 0)
		default:
			b = appendCount(b, -zeros)
		}
		b = appendCount(b, int64(count))
		next = at + 1
	}
	return b
}

func clampedSlot(latency time.Duration) int {
	return slot(min(max(int64(latency), histogramMin), histogramMax))
}

// encoders are reused, because each needs more memory than the histograms of a report.
var encoders = sync.Pool{New: func() any { return new(encoder) }}

// encoder compresses histograms.
type encoder struct {
	counts     []byte
	compressed bytes.Buffer
	zlib       *zlib.Writer
}

// encode gives the histogram of latencies, of which there is at least one.
func (e *encoder) encode(of latencies) string {
	e.counts = appendCounts(e.counts[:0], of)
	const header = 40
	b := binary.BigEndian.AppendUint32(make([]byte, 0, header+len(e.counts)), histogramCookie)
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.counts)))
	b = binary.BigEndian.AppendUint32(b, 0) // offset of the counts
	b = binary.BigEndian.AppendUint32(b, histogramDigits)
	b = binary.BigEndian.AppendUint64(b, histogramMin)
	b = binary.BigEndian.AppendUint64(b, uint64(histogramMax))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(1)) // ratio of its integers to real values
	b = append(b, e.counts...)

	e.compressed.Reset()
	if e.zlib == nil {
		e.zlib = zlib.NewWriter(&e.compressed)
	} else {
		e.zlib.Reset(&e.compressed)
	}
	// Writing to memory does not fail.
	_, _ = e.zlib.Write(b)
	_ = e.zlib.Close()
	b = binary.BigEndian.AppendUint32(b[:0], histogramCompressedCookie)
	b = binary.BigEndian.AppendUint32(b, uint32(e.compressed.Len()))
	return base64.StdEncoding.EncodeToString(append(b, e.compressed.Bytes()...))
}
