package zookeeper

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"containernet-env/benchmark_image/internal/store"
)

// maxStatus bounds what a member says of its status, in bytes.
const maxStatus = 64 << 10

// Status implements store.StatusAsker: a member says who it is in answer to the word 'srvr', in place of the opening of
// a session. That word is the only one that members answer unless they were told otherwise (4lw.commands.whitelist).
func (*Protocol) Status(connection net.Conn, member string) (store.Answer, error) {
	if _, err := io.WriteString(connection, "srvr"); err != nil {
		return store.Answer{}, fmt.Errorf("ask for its status: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(connection, maxStatus))
	if err != nil && len(text) == 0 {
		return store.Answer{}, fmt.Errorf("ask for its status: %w", err)
	}
	return parseStatus(string(text), idOf(member))
}

// parseStatus reads an answer to 'srvr' of the member with that id.
func parseStatus(text string, id uint64) (store.Answer, error) {
	a := store.Answer{Member: id}
	if strings.Contains(text, "not currently serving requests") {
		return a, nil // it looks for a leader
	}
	mode := ""
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "Mode":
			mode = value
		case "Zxid":
			zxid, err := strconv.ParseUint(value, 0, 64)
			if err != nil {
				return store.Answer{}, fmt.Errorf("ask for its status: its zxid is %.40q", value)
			}
			a.Revision, a.Term = int64(zxid), zxid>>32
		}
	}
	switch mode {
	case "leader", "standalone":
		a.Leader = id
	case "follower", "observer", "read-only":
	default:
		first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		return store.Answer{}, fmt.Errorf("ask for its status: it answered %.100q to 'srvr', and not in which mode it is",
			first)
	}
	return a, nil
}
