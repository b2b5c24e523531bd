// Package control speaks the control protocol: one JSON object per line, requests in, replies and events out.
// README.md describes it with an example of every operation; a test runs them.
package control

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/emulator"
)

// maxLineBytes bounds a request; a longer line is refused and skipped.
const maxLineBytes = 1 << 20

// Server answers requests for one emulator. Make it with New; its emulator must be given PortDown.
type Server struct {
	version  string
	emulator *emulator.Emulator

	mutex   sync.Mutex // guards the three below
	output  io.Writer
	pending []emulator.PortDown
	wake    chan struct{}
}

// New makes a server that answers on output. version is what hello reports.
func New(version string, output io.Writer) *Server {
	return &Server{version: version, output: output, wake: make(chan struct{}, 1)}
}

type reply struct {
	ID     *int64 `json:"id"` // null where the request had none that could be read
	OK     bool   `json:"ok"`
	AtNS   *int64 `json:"at_ns,omitempty"`
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

type event struct {
	Event  string `json:"event"`
	Port   string `json:"port"`
	Reason string `json:"reason"`
	AtNS   int64  `json:"at_ns"`
}

// PortDown queues an event. It never blocks on the output, so the data thread may call it.
func (s *Server) PortDown(down emulator.PortDown) {
	s.mutex.Lock()
	s.pending = append(s.pending, down)
	s.mutex.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Serve answers the requests that come on input, in order, until it ends; then it returns nil.
func (s *Server) Serve(e *emulator.Emulator, input io.Reader) error {
	s.emulator = e
	writer := make(chan []byte, 64)
	failed := make(chan error, 1)
	go s.write(writer, failed)
	lines := bufio.NewReaderSize(input, maxLineBytes)
	for {
		line, tooLong, err := readLine(lines)
		if len(bytes.TrimSpace(line)) > 0 || tooLong {
			select {
			case writer <- s.Answer(line, tooLong):
			case err := <-failed:
				if gone(err) {
					return nil
				}
				return err
			}
			e.Tidy()
		}
		switch {
		case err == nil:
		case gone(err):
			return nil
		default:
			return fmt.Errorf("read the control connection: %w", err)
		}
	}
}

// gone reports whether an error of the connection means that the driver has closed it. A unix socket returns ECONNRESET
// instead of end of file if the other end was closed with unread data.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// write is the only writer of the output. It writes replies and events as whole lines.
func (s *Server) write(replies <-chan []byte, failed chan<- error) {
	for {
		var line []byte
		select {
		case line = <-replies:
		case <-s.wake:
			line = s.takeEvents()
		}
		if _, err := s.output.Write(line); err != nil {
			failed <- fmt.Errorf("write to the control connection: %w", err)
			return
		}
	}
}

func (s *Server) takeEvents() []byte {
	s.mutex.Lock()
	downs := s.pending
	s.pending = nil
	s.mutex.Unlock()
	var lines []byte
	for _, down := range downs {
		lines = append(lines, encode(event{Event: "port_down", Port: down.Port, Reason: down.Reason, AtNS: down.AtNS})...)
	}
	return lines
}

// readLine returns one line without its end. A line beyond the buffer is skipped to its end and reported as too long.
func readLine(lines *bufio.Reader) (line []byte, tooLong bool, err error) {
	line, err = lines.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		tooLong = true
		_, err = lines.ReadSlice('\n')
	}
	if tooLong {
		return nil, true, err
	}
	return line, false, err
}

// Answer carries out one request and returns the reply as a line.
func (s *Server) Answer(line []byte, tooLong bool) []byte {
	if tooLong {
		return refused(nil, fmt.Errorf("the line is longer than %d bytes", maxLineBytes))
	}
	// The header is read first, so that a refusal of anything else can carry the id.
	var request header
	if err := json.Unmarshal(line, &request); err != nil {
		return refused(nil, err)
	}
	if request.ID == nil {
		return refused(nil, errors.New("id: the field is missing"))
	}
	op, known := operations[request.Op]
	if !known {
		return refused(request.ID, fmt.Errorf("op: there is no operation %q", request.Op))
	}
	result, atNS, err := op(s, line)
	if err != nil {
		return refused(request.ID, err)
	}
	return encode(reply{ID: request.ID, OK: true, AtNS: &atNS, Result: result})
}

func refused(id *int64, err error) []byte { return encode(reply{ID: id, Error: err.Error()}) }

func encode(message any) []byte {
	line, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("control: a message cannot be written as JSON: %v", err)) // types without NaN, channels or cycles
	}
	return append(line, '\n')
}
