package jute

import (
	"bytes"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/inputtest"
	"containernet-env/benchmark_image/internal/store"
)

// TestKnownBytes compares requests with what ZooKeeper's own client sends.
func TestKnownBytes(t *testing.T) {
	write := func(operation Operation) []byte {
		b := AppendWrite([]byte("before"), 7, operation, "", []byte("k"), 3)
		return AppendWriteEnd(append(b, "val"...), operation)[len("before"):]
	}
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"connect": {AppendConnect(nil, 10_000), "0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010" +
			"00000000000000000000000000000000 00"},
		"ping":          {AppendPing(nil), "00000008 fffffffe 0000000b"},
		"close":         {AppendClose(nil, 9), "00000008 00000009 fffffff5"},
		"sync":          {AppendSync(nil, 9), "0000000d 00000009 00000009 00000001 2f"},
		"getData":       {AppendGet(nil, 9, "", []byte("k")), "0000000f 00000009 00000004 00000002 2f6b 00"},
		"getData below": {AppendGet(nil, 9, "/c/d", []byte("/")), "00000015 00000009 00000004 00000008 2f632f64 2f253246 00"},
		"create": {write(Create), "00000034 00000007 00000001 00000002 2f6b 00000003 76616c" +
			"00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000"},
		"setData": {write(SetData), "00000019 00000007 00000005 00000002 2f6b 00000003 76616c ffffffff"},
		"multi": {write(SetIfExists), "0000003e 00000007 0000000e" +
			"0000000d 00 ffffffff 00000002 2f6b ffffffff" +
			"00000005 00 ffffffff 00000002 2f6b 00000003 76616c ffffffff" +
			"ffffffff 01 ffffffff"},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
		assert.That(t, err == nil && bytes.Equal(c.got, want), "%s: %x, want %s (%v)", name, c.got, c.want, err)
	}
}

func TestTheLargestValueFits(t *testing.T) {
	const largest, maxPacket = 1_000_000, 1<<20 - 1 // the latter is what a member takes (jute.maxbuffer)
	key := bytes.Repeat([]byte{0xff}, 4096+1024)    // the longest prefix and key
	chroot := strings.Repeat("/c", 256)
	for _, operation := range []Operation{Create, SetData, SetIfExists} {
		b := AppendWriteEnd(AppendWrite(nil, 1, operation, chroot, key, largest), operation)
		size := len(b) - LengthSize + largest
		assert.That(t, size <= maxPacket, "operation %d: a packet of %d bytes", operation, size)
	}
}

func TestPathsOfKeys(t *testing.T) {
	for key, want := range map[string]string{
		"k": "/k", "a b": "/a b", "a/b": "/a%2Fb", "50%": "/50%25", "\x00\x1f\x7f": "/%00%1F%7F", ".": "/%2E", "..": "/%2E.",
		"...": "/...", ".a": "/.a", "ü": "/%C3%BC", "\xff": "/%FF", "zookeeper": "/%7Aookeeper", "zookeepers": "/zookeepers",
		"": "/",
	} {
		got := pathOf([]byte(key))
		assert.That(t, got == want, "%q: %s, want %s", key, got, want)
	}
}

// pathOf is the path of a key's znode below the root.
func pathOf(key []byte) string { return string(appendPath(nil, "", key)[LengthSize:]) }

func FuzzPath(native *testing.F) {
	f := inputtest.F{F: native}
	for _, key := range []string{"", "key", "..", "zookeeper", "a/%\x00ü\xff"} {
		f.Add([]byte(key))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		path := pathOf(key)
		back, err := url.PathUnescape(path[1:])
		assert.That(t, err == nil && back == string(key), "%q: %s, and back %q, %v", key, path, back, err)
		for _, c := range path[1:] {
			assert.That(t, c >= ' ' && c <= '~' && c != '/', "%q: %s has %q in it", key, path, c)
		}
	})
}

// FuzzAnswer reads what no member sends. What is read must have been there.
func FuzzAnswer(native *testing.F) {
	f := inputtest.F{F: native}
	stat := bytes.Repeat([]byte{0}, StatSize)
	data := append(append([]byte{0, 0, 0, 3}, "val"...), stat...)
	data[len(data)-13] = 3
	f.Add(data, 0)
	f.Add(append([]byte{0xff, 0xff, 0xff, 0xff}, stat...), 0)
	f.Add(append(append([]byte{0, 0, 0, 13, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 5, 0, 0xff, 0xff, 0xff, 0xff}, stat...),
		0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff), 0)
	f.Add(append(make([]byte, 19), 16), 0)
	f.Fuzz(func(t *testing.T, b []byte, hole int) {
		if _, body, err := ReadHeader(b); err == nil && len(body)+HeaderSize != len(b) {
			t.Errorf("a body of %d bytes in %d", len(body), len(b))
		}
		if timeout, err := ReadConnect(b); err == nil && timeout < 0 {
			t.Errorf("a timeout of %d", timeout)
		}
		if hole = max(hole, 0) % (1 << 20); hole >= 0 {
			if value, _, err := ReadData(b, hole); err == nil && len(value)+LengthSize+StatSize != len(b) {
				t.Errorf("data of %d bytes in %d", len(value), len(b))
			}
		}
		for _, operation := range []Operation{Create, SetData, Sync} {
			err := CheckWritten(b, operation)
			assert.That(t, err != nil || len(b) >= LengthSize, "%d bytes are the answer to operation %d", len(b), operation)
		}
		_, fault := ReadMulti(b)
		assert.That(t, fault != nil || len(b) >= 3*9+2*4, "%d bytes are the answer to two parts", len(b))
	})
}

func TestCodes(t *testing.T) {
	for code, want := range map[Code]store.Failure{
		NoNode: {Code: store.NotFound, Text: "ZooKeeper: no node"},
		-4:     {Code: store.Unavailable, Text: "ZooKeeper: connection loss", Unknown: true},
		-999:   {Code: store.Unknown, Text: "ZooKeeper: error -999"},
		-99:    {Code: store.Unknown, Text: "ZooKeeper: error -99", Unknown: true},
	} {
		got := *code.Failure()
		assert.That(t, got == want, "%+v, want %+v", got, want)
	}
}
