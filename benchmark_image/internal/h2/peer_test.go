package h2

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"containernet-env/benchmark_image/internal/assert"
	"containernet-env/benchmark_image/internal/store"
)

// peer is the member's side of a connection, written with an implementation that is not ours.
type peer struct {
	t       testing.TB
	conn    *Conn
	toConn  bytes.Buffer
	framer  *http2.Framer // writes to toConn
	encoder *hpack.Encoder
	encoded bytes.Buffer
	reading bytes.Buffer
	reader  *http2.Framer // reads what the connection wrote
	begun   bool
	got     outcomes // of the calls
}

func newPeer(t testing.TB, o Options, settings ...http2.Setting) *peer {
	p := &peer{t: t, conn: NewConn("member:2379", methods, o)}
	p.framer = http2.NewFramer(&p.toConn, nil)
	p.framer.AllowIllegalWrites = true
	p.encoder = hpack.NewEncoder(&p.encoded)
	p.reader = http2.NewFramer(nil, &p.reading)
	p.reader.ReadMetaHeaders = hpack.NewDecoder(tableSize, nil)
	p.reader.SetMaxReadFrameSize(largestMaxFrame)
	p.must(p.framer.WriteSettings(settings...))
	assert.OK(t, p.feed())
	return p
}

func (p *peer) must(err error) {
	p.t.Helper()
	assert.OK(p.t, err)
}

// feed passes what was written to the connection.
func (p *peer) feed() error {
	b := bytes.Clone(p.toConn.Bytes())
	p.toConn.Reset()
	return p.conn.Feed(b)
}

func (p *peer) fed() {
	p.t.Helper()
	p.must(p.feed())
}

// frames takes all that the connection wrote; each frame is given to see, and is valid only there.
func (p *peer) frames(see func(http2.Frame)) {
	p.t.Helper()
	p.reading.Write(p.conn.Output())
	p.conn.Wrote(len(p.conn.Output()))
	if !p.begun {
		p.begun = true
		got := string(p.reading.Next(len(preface)))
		assert.Must(p.t, got == preface, "the connection begins with %q", got)
	}
	for {
		f, err := p.reader.ReadFrame()
		if errors.Is(err, io.EOF) {
			return
		}
		p.must(err)
		see(f)
	}
}

// written lists what the connection wrote, one word for each frame.
func (p *peer) written() string {
	p.t.Helper()
	var words []string
	p.frames(func(f http2.Frame) {
		word := f.Header().Type.String()
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			word += ":" + f.ErrCode.String()
		case *http2.SettingsFrame:
			if f.IsAck() {
				word += ":ack"
			}
		case *http2.PingFrame:
			if f.IsAck() {
				word += ":ack:" + string(f.Data[:])
			}
		}
		words = append(words, word)
	})
	return strings.Join(words, " ")
}

func (p *peer) fields(fields ...string) []byte {
	p.encoded.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.must(p.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(p.encoded.Bytes())
}

// block sends a header block in parts.
func (p *peer) block(id uint32, ends bool, parts ...[]byte) {
	last := len(parts) - 1
	p.must(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: parts[0], EndStream: ends,
		EndHeaders: last == 0}))
	for i, part := range parts[1:] {
		p.must(p.framer.WriteContinuation(id, i+1 == last, part))
	}
}

func (p *peer) headers(id uint32, ends bool, fields ...string) {
	p.block(id, ends, p.fields(fields...))
}

func (p *peer) begin(id uint32) {
	p.headers(id, false, ":status", "200", "content-type", "application/grpc")
}
func (p *peer) ping()                               { p.must(p.framer.WritePing(false, [8]byte([]byte("pingpong")))) }
func (p *peer) reset(id uint32, code http2.ErrCode) { p.must(p.framer.WriteRSTStream(id, code)) }
func (p *peer) window(id, more uint32)              { p.must(p.framer.WriteWindowUpdate(id, more)) }
func (p *peer) set(id http2.SettingID, value uint32) {
	p.must(p.framer.WriteSettings(http2.Setting{ID: id, Val: value}))
}

// goAway says which stream was the last that is carried out.
func (p *peer) goAway(last uint32, code http2.ErrCode) {
	p.must(p.framer.WriteGoAway(last, code, []byte("bye")))
}

func (p *peer) end(id uint32)            { p.headers(id, true, "grpc-status", "0", "grpc-message", "") }
func (p *peer) data(id uint32, b []byte) { p.must(p.framer.WriteData(id, false, b)) }
func (p *peer) answer(id uint32)         { p.send(id, message(okAnswer)) }
func (p *peer) send(id uint32, b []byte) { p.begin(id); p.data(id, b); p.end(id) }

// methods are the paths that the tests call.
var methods = []string{
	"/package.Service/Put", "/package.Service/Get", "/package.Service/Txn", "/package.Other/Status", "/package.Other/List",
}

const put, get, txn, status = 0, 1, 2, 3

var (
	okAnswer = []byte("good")
	// Answers that an owner cannot read: it returns the error at once, or at the end.
	brokenAnswer, shortAnswer = []byte("b\xffd"), []byte("shor\xfe")
)

func message(b []byte) []byte { return append([]byte{0, 0, 0, byte(len(b) >> 8), byte(len(b))}, b...) }

// outcomes records the answers and outcomes of calls, and may start others.
type outcomes struct {
	body     []byte
	failures []*store.Failure
	again    func(*Stream)
}

func (o *outcomes) Feed(b []byte, last bool) error {
	o.body = append(o.body, b...)
	if last && bytes.HasSuffix(o.body, []byte{0xfe}) {
		return errors.New("cut off")
	}
	if bytes.IndexByte(b, 0xff) >= 0 {
		return errors.New("a broken byte")
	}
	return nil
}

func (o *outcomes) Finished(s *Stream, f *store.Failure) {
	o.failures = append(o.failures, f)
	if o.again != nil {
		o.again(s)
	}
}

// succeeded is for what is sent to the connection now, after which so many calls have ended well.
func (p *peer) succeeded(calls int) {
	p.t.Helper()
	p.fed()
	assert.Equal(p.t, p.got.failures, make([]*store.Failure, calls), "outcomes")
}

// call starts a call whose outcome is one of the peer's.
func (p *peer) call(method, head, tail int) *Stream {
	s := &Stream{Owner: &p.got}
	p.start(s, method, head, tail)
	return s
}

// start sends a request whose message has the given length, at least that of the prefix.
func (p *peer) start(s *Stream, method int, head, tail int) {
	b := append(AppendPrefix(nil), bytes.Repeat([]byte("h"), head)...)
	p.conn.Start(s, method, b, bytes.Repeat([]byte("t"), tail))
	clear(b)
}
