package keys

import (
	"bytes"
	"testing"
)

func TestVersionsTellTheirWriters(t *testing.T) {
	for _, size := range []int{VersionSize, VersionSize + 1, 256, 1 << 20} {
		values := NewValues(size, 7)
		for _, id := range []ID{{Run: 1}, {Run: MaxRun, Client: 9999, Number: 9_999_999}, {Run: 5, Client: 3, Number: 1}} {
			head, tail := values.Version(nil, 17, id)
			value := append(bytes.Clone(head), tail...)
			if got, ok := values.Writer(17, value); !ok || got != id || len(value) != size {
				t.Errorf("%d bytes: %+v, %v, want %+v", len(value), got, ok, id)
			}
			if got, err := ParseID(id.String()); err != nil || got != id || id.String() != string(value[:NameSize]) {
				t.Errorf("%q: %+v, %v", id.String(), got, err)
			}
			if _, ok := values.Writer(18, value); ok {
				t.Errorf("%q is taken for a version of another key", value[:VersionSize])
			}
			if _, ok := NewValues(size, 8).Writer(17, value); ok {
				t.Errorf("%q is taken for a version of another seed", value[:VersionSize])
			}
			if _, ok := values.Writer(17, value[:size-1]); ok {
				t.Error("a version that is cut off is accepted")
			}
			for at := range min(size, 300) {
				own := value[at]
				for _, c := range []byte{0, '0', 'z'} {
					value[at] = c
					if got, ok := values.Writer(17, value); ok && c != own {
						t.Errorf("with %q at byte %d it is taken for %+v", c, at, got)
					}
				}
				value[at] = own
			}
		}
	}
}

func TestValuesOfADataSetHaveNoWriter(t *testing.T) {
	for _, size := range []int{0, 8, VersionSize, 256} {
		values := NewValues(size, 7)
		if id, ok := values.Writer(3, values.At(3)); !ok || id != (ID{}) || id.String() != "=" {
			t.Errorf("%d bytes: %+v, %v", size, id, ok)
		}
	}
	if id, err := ParseID("="); err != nil || id != (ID{}) {
		t.Errorf("%+v, %v", id, err)
	}
	for _, name := range []string{"", "-", "00000000000000", "0000000000000000", "000000000000000", "00000100000000-"} {
		if id, err := ParseID(name); err == nil {
			t.Errorf("%q is %+v", name, id)
		}
	}
}

func TestVersionsDoNotAllocate(t *testing.T) {
	values := NewValues(1000, 1)
	var room [VersionSize]byte
	value := make([]byte, 0, 1000)
	if n := testing.AllocsPerRun(1000, func() {
		head, tail := values.Version(room[:0], 5, ID{Run: 9, Client: 2, Number: 77})
		value = append(append(value[:0], head...), tail...)
		if _, ok := values.Writer(5, value); !ok {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
