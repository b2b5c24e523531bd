package load

import "time"

// deal hands out the numbers of a closed loop's requests, each once. Each client goes from member to member, so all
// members get the same share. What one connection brings at once is answered over one other connection: dealt to
// members by their number alone, requests to three of them took half as much CPU time again.
type deal struct {
	dealt []int // of each member; with n of them, its next request has the number of the member + n * dealt
	turn  []int // the member of each client's next request
}

func (d *deal) init(members, clients int) {
	d.dealt = make([]int, members)
	d.turn = make([]int, clients)
	for client := range d.turn {
		d.turn[client] = client % members
	}
}

// next gives the client a request that the pacer lets start. first is the number of the pacer's own first request.
func (d *deal) next(
	client int, pacer Pacer, first int, elapsed time.Duration,
) (number int, start time.Duration, more bool) {
	member := d.turn[client]
	if number, start, more = d.take(member, pacer, first, elapsed); more {
		d.turn[client] = (member + 1) % len(d.dealt)
		return number, start, true
	}
	slowest := 0
	for member, dealt := range d.dealt {
		if dealt < d.dealt[slowest] {
			slowest = member
		}
	}
	// Its number is the smallest of all: if it may not start, none may.
	return d.take(slowest, pacer, first, elapsed)
}

func (d *deal) take(
	member int, pacer Pacer, first int, elapsed time.Duration,
) (number int, start time.Duration, more bool) {
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
