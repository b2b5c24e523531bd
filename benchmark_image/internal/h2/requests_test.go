package h2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// TestTheTokenOfALoginIsSent changes the token again and again, with tables that hold all fields, some, or none.
func TestTheTokenOfALoginIsSent(t *testing.T) {
	for _, table := range []uint32{0, 500, tableSize} {
		p := newPeer(t, Options{Secure: true})
		p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: table}))
		p.reader.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(tableSize)
		p.must(p.feed())
		var want, got []string
		for round := range 100 {
			token := ""
			if round > 0 {
				token = fmt.Sprintf("token-%d%s", round, strings.Repeat("x", 7*round))
				p.conn.SetToken(token)
			}
			for _, call := range []int{put, put, get, put, get} {
				p.start(&Stream{Owner: &outcomes{}}, call, 1, 1)
				want = append(want, "https "+methods[call]+" "+token)
			}
		}
		p.frames(func(f http2.Frame) {
			headers, ok := f.(*http2.MetaHeadersFrame)
			if !ok {
				return
			}
			fields := make(map[string]string)
			for _, field := range headers.Fields {
				fields[field.Name] += field.Value
			}
			got = append(got, fields[":scheme"]+" "+fields[":path"]+" "+fields["token"])
		})
		if !slices.Equal(got, want) {
			t.Errorf("table of %d bytes: %d requests arrived, of %d", table, len(got), len(want))
		}
	}
}

func TestRequestsReachTheMember(t *testing.T) {
	for _, table := range [][]uint32{nil, {0}, {100}, {1000}, {65536}, {0, 4096}, {4096, 0}} {
		p := newPeer(t, Options{})
		calls := []int{put, put, get, put, get, txn, status, status, put}
		next := 0
		for round := range 2 {
			if round == 1 {
				for _, size := range table {
					p.must(p.framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: size}))
					// A decoder does not care if the connection uses less of the table than allowed.
					p.reader.ReadMetaHeaders.SetAllowedMaxDynamicTableSize(max(size, tableSize))
				}
				p.must(p.feed())
			}
			for i, call := range calls {
				p.start(&Stream{Owner: &outcomes{}}, call, i, 100*i)
			}
			p.frames(func(f http2.Frame) {
				switch f := f.(type) {
				case *http2.MetaHeadersFrame:
					want := fmt.Sprintf("POST http %s member:2379 application/grpc trailers", methods[calls[next%len(calls)]])
					value := func(name string) string {
						for _, field := range f.Fields {
							if field.Name == name {
								return field.Value
							}
						}
						return ""
					}
					got := strings.Join([]string{
						value(":method"), value(":scheme"), value(":path"), value(":authority"), value("content-type"), value("te"),
					}, " ")
					if got != want || f.StreamID != uint32(2*next+1) || f.StreamEnded() {
						t.Errorf("table %v: stream %d: %s, want %s", table, f.StreamID, got, want)
					}
				case *http2.DataFrame:
					i := next % len(calls)
					want := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(101*i)),
						strings.Repeat("h", i)+strings.Repeat("t", 100*i)...)
					if !bytes.Equal(f.Data(), want) || !f.StreamEnded() {
						t.Errorf("table %v: stream %d: data %q", table, f.StreamID, f.Data())
					}
					next++
				}
			})
		}
		if next != 2*len(calls) {
			t.Errorf("table %v: %d requests arrived", table, next)
		}
	}
}

func TestRequestsThatWereNotSentAsAWhole(t *testing.T) {
	for name, end := range map[string]func(*peer, *Stream) bool{
		"lost":      func(p *peer, _ *Stream) bool { p.conn.Lost("gone"); return false },
		"cancelled": func(p *peer, s *Stream) bool { return p.conn.Cancel(s) },
		"answered": func(p *peer, _ *Stream) bool {
			p.headers(1, true, ":status", "200", "content-type", "application/grpc", "grpc-status", "13")
			p.must(p.feed())
			return false
		},
		"reset": func(p *peer, _ *Stream) bool {
			p.must(p.framer.WriteRSTStream(1, http2.ErrCodeInternal))
			p.must(p.feed())
			return false
		},
	} {
		p := newPeer(t, Options{})
		var got outcomes
		blocked := &Stream{Owner: &got}
		p.start(blocked, put, 0, 100_000)
		p.written()
		if unknown := end(p, blocked); unknown || len(got.failures) == 1 && got.failures[0].Unknown {
			t.Errorf("%s: the request may have happened", name)
		}
		if name == "answered" && p.written() != "RST_STREAM:CANCEL" {
			t.Errorf("%s: the stream stays open", name)
		}
		if p.conn.firstBlocked != nil || blocked.Active() {
			t.Errorf("%s: the request still waits", name)
		}
	}
	// Sent completely, but not a byte of it written.
	p := newPeer(t, Options{})
	p.written()
	var got outcomes
	first, second := &Stream{Owner: &got}, &Stream{Owner: &got}
	p.start(first, put, 10, 0)
	n := len(p.conn.Output())
	p.start(second, put, 10, 0)
	p.conn.Wrote(n + 5)
	p.conn.Lost("gone")
	if len(got.failures) != 2 || got.failures[0].Unknown == got.failures[1].Unknown {
		t.Errorf("one of two requests was written: %+v", got.failures)
	}
}
