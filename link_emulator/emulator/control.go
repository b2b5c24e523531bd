package emulator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"containernet-env/link_emulator/input"
)

// maxLineBytes bounds a request; a longer line is refused and skipped.
const maxLineBytes = 1 << 20

// header is in every request.
type header struct {
	ID *int64 `json:"id"`
	Op string `json:"op"`
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

// Serve answers the requests that come on in, in order, until it ends; then it returns nil. Replies and events go to
// out, as whole lines. See the README for the protocol.
func (e *Emulator) Serve(in io.Reader, out io.Writer) error {
	failed := make(chan error, 1)
	go func() {
		for line := range e.lines {
			if _, err := out.Write(line); err != nil {
				failed <- fmt.Errorf("write to the control connection: %w", err)
				return
			}
		}
	}()
	lines := bufio.NewReaderSize(in, maxLineBytes)
	for {
		line, tooLong, err := readLine(lines)
		if len(bytes.TrimSpace(line)) > 0 || tooLong {
			select {
			case e.lines <- encode(e.answer(line, tooLong)):
			case err := <-failed:
				return unlessEnded(err)
			}
			e.tidy()
		}
		if err != nil {
			return unlessEnded(fmt.Errorf("read the control connection: %w", err))
		}
	}
}

// unlessEnded is nil for an error that means that the driver has closed the connection. A unix socket returns
// ECONNRESET instead of end of file if the other end was closed with unread data.
func unlessEnded(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	return err
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

func (e *Emulator) answer(line []byte, tooLong bool) reply {
	if tooLong {
		return reply{Error: fmt.Sprintf("the line is longer than %d bytes", maxLineBytes)}
	}
	// The header is read first, so that a refusal of anything else can carry the id.
	var request header
	if err := json.Unmarshal(line, &request); err != nil {
		return reply{Error: err.Error()}
	}
	if request.ID == nil {
		return reply{Error: "id: the field is missing"}
	}
	operation, known := operations[request.Op]
	if !known {
		names := slices.Sorted(maps.Keys(operations))
		return reply{ID: request.ID, Error: fmt.Sprintf("op: got %q, allowed: %s", request.Op, strings.Join(names, ", "))}
	}
	result, atNS, err := operation(e, line)
	if err != nil {
		return reply{ID: request.ID, Error: err.Error()}
	}
	if result == nil {
		result = struct{}{}
	}
	return reply{ID: request.ID, OK: true, AtNS: &atNS, Result: result}
}

func encode(message any) []byte {
	line, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("a message cannot be written as JSON: %v", err)) // types without NaN, channels or cycles
	}
	return append(line, '\n')
}

// operation carries out a request and returns its result, or nil for one without fields.
type operation func(e *Emulator, line []byte) (result any, atNS int64, err error)

// request makes an operation of a method that takes its request as a struct.
func request[Request any](method func(*Emulator, Request) (any, int64, error)) operation {
	return func(e *Emulator, line []byte) (any, int64, error) {
		var request Request
		if err := input.Decode(line, &request); err != nil {
			return nil, 0, err
		}
		return method(e, request)
	}
}
