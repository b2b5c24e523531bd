package rtt

import (
	"bytes"
	"encoding/binary"

	"containernet-env/link_emulator/probe"
	"containernet-env/link_emulator/segment"
)

// ICMP types (RFC 792).
const (
	typeEchoReply   = 0
	typeEchoRequest = 8
)

const icmpHeaderBytes = 8

// encode fills message, an ICMP message of its final length, as an echo request. Its payload begins with the mark.
func encode(m probe.Mark, message []byte) {
	clear(message[:icmpHeaderBytes])
	message[0] = typeEchoRequest
	binary.BigEndian.PutUint16(message[4:], uint16(m.Run))
	binary.BigEndian.PutUint16(message[6:], uint16(m.Number))
	m.Encode(message[icmpHeaderBytes:])
	binary.BigEndian.PutUint16(message[2:], segment.Checksum(message))
}

// decodeReply reads the mark of an echo reply out of an IPv4 packet as a raw socket gives it; false for anything else.
func decodeReply(packet []byte) (probe.Mark, bool) {
	if len(packet) < 1 {
		return probe.Mark{}, false
	}
	header := int(packet[0]&0x0f) * 4
	if len(packet) < header+icmpHeaderBytes+probe.MarkBytes {
		return probe.Mark{}, false
	}
	message := packet[header:]
	if message[0] != typeEchoReply || segment.Checksum(message) != 0 {
		return probe.Mark{}, false
	}
	return probe.DecodeMark(message[icmpHeaderBytes:]), true
}

// payloadFill is a pattern that is easy to recognize in a capture.
func payloadFill(bytesWanted int) []byte {
	return bytes.Repeat([]byte("rtt."), bytesWanted/4+1)[:bytesWanted]
}
