// Package segment is segmentation offload of TCP: it splits what a kernel hands over in one piece into the frames that
// a network card would send, and joins frames that a host gets at the same time into what a card hands over (GRO).
//
// Between the two, every frame is one of its own. Its TCP checksum may be left to the receiving kernel: a partial frame
// has only the sum of the pseudo-header in its checksum field (CHECKSUM_PARTIAL of Linux), which Complete finishes.
package segment

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// HeaderBytes is the length of the struct virtio_net_hdr before each frame that is read from or written to a TAP with
// IFF_VNET_HDR (VIRTIO 1.2, 5.1.6). Its numbers have the machine's byte order.
const HeaderBytes = 10

const (
	needsChecksum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	gsoTCP4       = 1 // VIRTIO_NET_HDR_GSO_TCPV4
	gsoTCP6       = 4 // VIRTIO_NET_HDR_GSO_TCPV6
)

const (
	ethernetBytes  = 14
	tagBytes       = 4
	ipv6Bytes      = 40
	tcpBytes       = 20
	protocolTCP    = 6
	checksumOffset = 16 // in a TCP header
	maxIPBytes     = 1<<16 - 1
)

// TCP flags.
const (
	fin = 0x01
	psh = 0x08
	ack = 0x10
)

// MaxHeaders is more than the headers of a frame that can be joined take: Ethernet with two tags, IPv4 and TCP with all
// options.
const MaxHeaders = ethernetBytes + 2*tagBytes + 60 + 60

// leastSize is less than the payload of any segment that Linux makes (tcp_min_snd_mss); a host that sends by a packet
// socket may name less.
const leastSize = 32

// MaxFrames bounds the frames that are joined, as the kernel bounds those that it hands over in one piece.
const MaxFrames = 64

// headers are where the parts of a TCP frame begin.
type headers struct{ ip, tcp, payload int }

// parse reports whether a frame is TCP over IP that is no fragment, without IPv6 extension headers or padding.
func parse(frame []byte) (at headers, version int, ok bool) {
	at.ip = ethernetBytes
	if len(frame) < at.ip {
		return at, 0, false
	}
	kind := binary.BigEndian.Uint16(frame[at.ip-2:])
	for tags := 0; tags < 2 && (kind == 0x8100 || kind == 0x88a8) && len(frame) >= at.ip+tagBytes; tags++ {
		at.ip += tagBytes
		kind = binary.BigEndian.Uint16(frame[at.ip-2:])
	}
	ip := frame[at.ip:]
	switch {
	case kind == 0x0800 && len(ip) >= 20 && ip[0]>>4 == 4 && ip[9] == protocolTCP &&
		binary.BigEndian.Uint16(ip[6:])&0x3fff == 0 && int(binary.BigEndian.Uint16(ip[2:])) == len(ip):
		at.tcp, version = at.ip+int(ip[0]&15)*4, 4
		ok = ip[0]&15 >= 5
	case kind == 0x86dd && len(ip) >= ipv6Bytes && ip[0]>>4 == 6 && ip[6] == protocolTCP &&
		int(binary.BigEndian.Uint16(ip[4:])) == len(ip)-ipv6Bytes:
		at.tcp, version, ok = at.ip+ipv6Bytes, 6, true
	}
	if !ok || len(frame) < at.tcp+tcpBytes {
		return at, version, false
	}
	at.payload = at.tcp + int(frame[at.tcp+12]>>4)*4
	return at, version, at.payload >= at.tcp+tcpBytes && at.payload <= len(frame)
}

// Piece is what a TAP hands over at once: one frame, or a TCP segment to be split. Make it with Read.
type Piece struct {
	frame   []byte
	partial bool
	size    int // payload bytes of each frame; 0: it is one frame, already returned if frame is nil
	at      headers
	version int
	next    int // where the payload of the next frame begins
	// A checksum is to be completed: what it covers begins at start, and itself offset behind that.
	completes     bool
	start, offset int
}

// Read is the piece in what was read from a TAP, a header and a frame, which the piece goes on to use. false: it is
// malformed, and only Bytes may be called.
func Read(data []byte) (piece Piece, ok bool) {
	if len(data) < HeaderBytes {
		return piece, false
	}
	flags, gso := data[0], data[1]
	size := int(binary.NativeEndian.Uint16(data[4:]))
	start, offset := int(binary.NativeEndian.Uint16(data[6:])), int(binary.NativeEndian.Uint16(data[8:]))
	piece.frame = data[HeaderBytes:]
	at, version, isTCP := parse(piece.frame)
	piece.at, piece.version = at, version
	if flags&needsChecksum != 0 {
		if piece.partial = isTCP && start == at.tcp && offset == checksumOffset; !piece.partial {
			if start+offset+2 > len(piece.frame) {
				return piece, false
			}
			piece.completes, piece.start, piece.offset = true, start, offset
		}
	}
	if gso == 0 || piece.partial && len(piece.frame) == at.payload {
		return piece, true
	}
	piece.size, piece.next = size, at.payload
	known := gso == gsoTCP4 && version == 4 || gso == gsoTCP6 && version == 6
	return piece, known && piece.partial && size >= leastSize
}

// Bytes is the frame as the kernel has it: with all of the segment.
func (p *Piece) Bytes() []byte { return p.frame }

// Partial reports whether the frames of the piece are partial.
func (p *Piece) Partial() bool { return p.partial }

// MostBytes is the length of its longest frame.
func (p *Piece) MostBytes() int {
	if p.size == 0 {
		return len(p.frame)
	}
	return min(len(p.frame), p.at.payload+p.size)
}

// Next writes the next frame into room, which has MostBytes, and returns its part of it; nil after the last one. Where
// a checksum is not that of TCP, it is completed: only those stay partial. As by the kernel's own segmentation
// (tcp_gso_segment of Linux), only the last frame has FIN and PSH, and the identification of IPv4 counts.
func (p *Piece) Next(room []byte) []byte {
	if p.size == 0 {
		if p.frame == nil {
			return nil
		}
		frame := room[:copy(room, p.frame)]
		if p.completes {
			complete(frame, p.start, p.offset)
		} else if p.partial {
			setPseudo(frame, p.at, p.version) // a receiver trusts it
		}
		p.frame = nil
		return frame
	}
	if p.next >= len(p.frame) {
		return nil
	}
	end := min(p.next+p.size, len(p.frame))
	frame := room[:p.at.payload+end-p.next]
	copy(frame, p.frame[:p.at.payload])
	copy(frame[p.at.payload:], p.frame[p.next:end])
	tcp, done := frame[p.at.tcp:], p.next-p.at.payload
	binary.BigEndian.PutUint32(tcp[4:], binary.BigEndian.Uint32(tcp[4:])+uint32(done))
	if end < len(p.frame) {
		tcp[13] &^= fin | psh
	}
	if ip := frame[p.at.ip:]; p.version == 4 {
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(done/p.size))
	}
	setLength(frame, p.at, p.version, len(frame)-p.at.ip)
	p.next = end
	return frame
}

// setLength writes the length of the IP packet into its headers, and the sums that depend on it; the TCP checksum is
// partial then.
func setLength(frame []byte, at headers, version, ipBytes int) {
	ip := frame[at.ip:]
	if version == 4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(ipBytes))
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], Checksum(ip[:at.tcp-at.ip]))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(ipBytes-ipv6Bytes))
	}
	setPseudo(frame, at, version)
}

// setPseudo writes the sum of the pseudo-header into the checksum of TCP.
func setPseudo(frame []byte, at headers, version int) {
	ip := frame[at.ip:]
	addresses, ipBytes := ip[12:20], int(binary.BigEndian.Uint16(ip[2:]))
	if version == 6 {
		addresses, ipBytes = ip[8:40], int(binary.BigEndian.Uint16(ip[4:]))+ipv6Bytes
	}
	pseudo := sum(addresses) + protocolTCP + uint64(ipBytes-(at.tcp-at.ip))
	binary.BigEndian.PutUint16(frame[at.tcp+checksumOffset:], fold(pseudo))
}

// Complete finishes the checksum of a partial frame.
func Complete(frame []byte) {
	if at, _, ok := parse(frame); ok {
		complete(frame, at.tcp, checksumOffset)
	}
}

func complete(frame []byte, start, offset int) {
	checksum := Checksum(frame[start:])
	if checksum == 0 {
		checksum = 0xffff // of UDP: there is one (RFC 768); of TCP the same number
	}
	binary.BigEndian.PutUint16(frame[start+offset:], checksum)
}

// Checksum is the Internet checksum (RFC 1071) of data; 0 where data contains the right one.
func Checksum(data []byte) uint16 { return ^fold(sum(data)) }

// sum is that of the 16-bit numbers of data (RFC 1071), not yet folded.
func sum(data []byte) (total uint64) {
	carry := uint64(0)
	for ; len(data) >= 8; data = data[8:] {
		total, carry = bits.Add64(total, binary.BigEndian.Uint64(data), carry)
	}
	total, carry = bits.Add64(total, 0, carry)
	total += carry
	total = total>>32 + total&0xffffffff
	for ; len(data) >= 2; data = data[2:] {
		total += uint64(binary.BigEndian.Uint16(data))
	}
	if len(data) == 1 {
		total += uint64(data[0]) << 8
	}
	return total
}

func fold(total uint64) uint16 {
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}

// Ends reports whether nothing may be joined behind a partial frame, the last of those that begin with first.
func Ends(first, last []byte) bool {
	at, _, ok := parse(last)
	return !ok || len(last) < len(first) || last[at.tcp+13] != ack
}

// Begins reports whether a partial frame has a payload that further frames may continue.
func Begins(frame []byte) bool {
	at, _, ok := parse(frame)
	return ok && len(frame) > at.payload && frame[at.tcp+13] == ack
}

// Continues reports whether next may be joined with frames that begin with first and end with last and have totalBytes
// together: the conditions of tcp_gro_receive in Linux. All are partial; Begins holds for first.
func Continues(first, last, next []byte, totalBytes int) bool {
	at, version, ok := parse(next)
	if !ok || len(next) == at.payload || len(last) != len(first) || len(next) > len(first) ||
		totalBytes+len(next)-at.payload-at.ip > maxIPBytes {
		return false
	}
	ip, tcp := at.ip, at.tcp
	if version == 4 {
		id := binary.BigEndian.Uint16(last[ip+4:]) + 1
		if !bytes.Equal(last[:ip+2], next[:ip+2]) || binary.BigEndian.Uint16(next[ip+4:]) != id ||
			!bytes.Equal(last[ip+6:ip+10], next[ip+6:ip+10]) || !bytes.Equal(last[ip+12:tcp+4], next[ip+12:tcp+4]) {
			return false
		}
	} else if !bytes.Equal(last[:ip+4], next[:ip+4]) || !bytes.Equal(last[ip+6:tcp+4], next[ip+6:tcp+4]) {
		return false
	}
	sequence := binary.BigEndian.Uint32(last[tcp+4:]) + uint32(len(last)-at.payload)
	return binary.BigEndian.Uint32(next[tcp+4:]) == sequence &&
		bytes.Equal(last[tcp+8:tcp+13], next[tcp+8:tcp+13]) && last[tcp+13] == ack && next[tcp+13]&^(fin|psh) == ack &&
		bytes.Equal(last[tcp+14:tcp+16], next[tcp+14:tcp+16]) &&
		bytes.Equal(last[tcp+18:at.payload], next[tcp+18:at.payload])
}

// Join writes into head what comes before the payloads of partial frames that are joined, or of one frame: the header
// of the TAP and those of the frame. It returns its length, and where the payload begins in each frame.
func Join(head []byte, frames [][]byte) (headBytes, payloadAt int) {
	clear(head[:HeaderBytes])
	first, last := frames[0], frames[len(frames)-1]
	at, version, ok := parse(first)
	if !ok {
		return HeaderBytes, 0
	}
	head[0] = needsChecksum
	binary.NativeEndian.PutUint16(head[2:], uint16(at.payload))
	binary.NativeEndian.PutUint16(head[6:], uint16(at.tcp))
	binary.NativeEndian.PutUint16(head[8:], checksumOffset)
	if len(frames) == 1 {
		return HeaderBytes, 0
	}
	head[1] = gsoTCP4
	if version == 6 {
		head[1] = gsoTCP6
	}
	binary.NativeEndian.PutUint16(head[4:], uint16(len(first)-at.payload))
	whole := head[HeaderBytes : HeaderBytes+at.payload]
	copy(whole, first)
	ipBytes := at.payload - at.ip
	for _, frame := range frames {
		ipBytes += len(frame) - at.payload
	}
	whole[at.tcp+13] = last[at.tcp+13]
	setLength(whole, at, version, ipBytes)
	return HeaderBytes + at.payload, at.payload
}
