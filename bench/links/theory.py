"""What a link can carry and how long a round trip takes, from the headers alone: nothing is measured here.

A frame counts as the TAP shows it: 14 bytes of Ethernet header and at most ``MTU_BYTES`` of IP, without checksum,
preamble or gap (link_emulator/README.md, "The model"; HTB counts the same). With the IP header (20 bytes, RFC 791),
the TCP header (20, RFC 9293) and the time stamps that Linux puts into every segment (12 with their padding, RFC 7323):

    segment = MTU - 20 - 20 - 12                = 1448 bytes of payload
    frame   = 14 + MTU                          = 1514 bytes
    TCP goodput, one way = rate * segment / frame                       = 0.95641 rate
    TCP goodput, both ways at once, a connection each way:
        a direction then also carries the other direction's ACKs, 14 + 20 + 20 + 12 = 66 bytes for every second
        segment (RFC 9293, 3.8.6.3): rate * 2 segment / (2 frame + 66)  = 0.93601 rate
    UDP goodput = rate * (MTU - 20 - 8) / frame                         = 0.97226 rate

Where a link counts an overhead for each frame (24 bytes for preamble, checksum and gap), frame and ACK are so much
longer: 1538 bytes, and 0.94148 of the rate.
"""

from __future__ import annotations

MTU_BYTES = 1500
ETHERNET_BYTES = 14
IP_BYTES = 20
TCP_BYTES = 20
TIMESTAMPS_BYTES = 12
UDP_BYTES = 8
SEGMENTS_PER_ACK = 2

FRAME_BYTES = ETHERNET_BYTES + MTU_BYTES
SEGMENT_BYTES = MTU_BYTES - IP_BYTES - TCP_BYTES - TIMESTAMPS_BYTES
DATAGRAM_BYTES = MTU_BYTES - IP_BYTES - UDP_BYTES
ACK_BYTES = ETHERNET_BYTES + IP_BYTES + TCP_BYTES + TIMESTAMPS_BYTES


def tcp_goodput_bps(rate_bps: int, *, both_ways: bool = False, overhead_bytes: int = 0) -> float:
    """Bits of payload per second and direction of TCP over a link of ``rate_bps`` (more than 0)."""
    frame, ack = FRAME_BYTES + overhead_bytes, ACK_BYTES + overhead_bytes
    if not both_ways:
        return rate_bps * SEGMENT_BYTES / frame
    return rate_bps * SEGMENTS_PER_ACK * SEGMENT_BYTES / (SEGMENTS_PER_ACK * frame + ack)


def udp_goodput_bps(rate_bps: int) -> float:
    """Bits of payload per second of UDP datagrams that fill their frames, over a link of ``rate_bps``."""
    return rate_bps * DATAGRAM_BYTES / FRAME_BYTES


def rtt_ns(delay_ns: int) -> int:
    """Round trip host - switch - host and back over links of ``delay_ns`` each way, without a rate: four links."""
    return 4 * delay_ns


def offered_pps(rate_bps: int, excess_ratio: float = 0.2) -> float:
    """Full frames per second that exceed ``rate_bps`` by ``excess_ratio``: the link is then never idle."""
    return rate_bps * (1 + excess_ratio) / (8 * FRAME_BYTES)
