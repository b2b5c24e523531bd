package jute

import (
	"encoding/binary"
	"strconv"
)

// reserved is the one name below the root that is ZooKeeper's own.
const reserved = "zookeeper"

// plain has the bytes that stand for themselves in the name of a znode: printable ASCII without the slash, which
// separates names, and without the percent sign. ZooKeeper refuses control characters, and some of what is beyond ASCII
// (PathUtils.validatePath).
var plain = func() (set [256]bool) {
	for c := ' '; c <= '~'; c++ {
		set[c] = c != '/' && c != '%'
	}
	return set
}()

// appendPath appends the path of a key's znode, with its length in front: the path of the znode that all of them are
// below (nothing for the root), a slash and the key, of which every byte that is not plain is a percent sign and two
// hexadecimal digits. Of the keys '.', '..' and 'zookeeper' the first byte is escaped too: these names have a meaning
// of their own.
func appendPath(b []byte, chroot string, key []byte) []byte {
	start := len(b)
	b = append(append(append(b, 0, 0, 0, 0), chroot...), '/')
	const digits = "0123456789ABCDEF"
	special := string(key) == "." || string(key) == ".." || string(key) == reserved
	for _, c := range key {
		if plain[c] && !special {
			b = append(b, c)
			continue
		}
		b = append(b, '%', digits[c>>4], digits[c&15])
		special = false
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// Path is the path of a key's znode below the root.
func Path(key []byte) string { return string(appendPath(nil, "", key)[4:]) }

// Key is the key whose znode below the root has this path; false: no key has.
func Key(path string) (key []byte, ok bool) {
	if path == "" || path[0] != '/' {
		return nil, false
	}
	for name := path[1:]; name != ""; {
		c, used := name[0], 1
		if c == '%' {
			n, err := strconv.ParseUint(name[1:min(3, len(name))], 16, 8)
			if err != nil || len(name) < 3 {
				return nil, false
			}
			c, used = byte(n), 3
		}
		key, name = append(key, c), name[used:]
	}
	return key, Path(key) == path
}
