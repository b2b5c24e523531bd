package load

import "time"

// deal hands out the numbers of a closed loop's requests, each once. A client stays with one member, at first that of
// its own number modulo theirs, until that is ahead of another one by a round of its clients. Then it moves to the one
// that is furthest behind: a slower member has more clients, so that all get the same share. What one connection brings
// at once is still answered over the same connection: dealt strictly in turn, requests to three members took half as
// much CPU time again.
type deal struct {
	dealt []int // of each member; with n of them, its next request has the number of the member + n * dealt
	ahead int   // a round of a member's clients
	home  []int // the member of each client
}

func (d *deal) init(members, clients int) {
	d.dealt = make([]int, members)
	d.ahead = max(clients/members, 1)
	d.home = make([]int, clients)
	for client := range d.home {
		d.home[client] = client % members
	}
}

// next gives the client a request that the pacer lets start. first is the number of the pacer's own first request.
func (d *deal) next(client int, pacer Pacer, first int, elapsed time.Duration) (number int, start time.Duration, more bool) {
	slowest := 0
	for member, dealt := range d.dealt {
		if dealt < d.dealt[slowest] {
			slowest = member
		}
	}
	if member := d.home[client]; d.dealt[member] < d.dealt[slowest]+d.ahead {
		if number, start, more = d.take(member, pacer, first, elapsed); more {
			return number, start, true
		}
	} else if len(d.home) >= len(d.dealt) { // fewer clients go from member to member
		d.home[client] = slowest
	}
	// Its number is the smallest of all: if it may not start, none may.
	return d.take(slowest, pacer, first, elapsed)
}

func (d *deal) take(member int, pacer Pacer, first int, elapsed time.Duration) (number int, start time.Duration, more bool) {
	number = d.number(member)
	if start, more = pacer.Pace(number-first, elapsed); more {
		d.dealt[member]++
	}
	return number, start, more
}

func (d *deal) number(member int) int { return member + len(d.dealt)*d.dealt[member] }

// align makes the number after the largest one that was dealt the smallest one to come, and gives it.
func (d *deal) align() (first int) {
	for member, dealt := range d.dealt {
		if dealt > 0 {
			first = max(first, d.number(member)-len(d.dealt)+1)
		}
	}
	for member := range d.dealt {
		for d.number(member) < first {
			d.dealt[member]++
		}
	}
	return first
}
