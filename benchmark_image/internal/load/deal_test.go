package load

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTheDeal deals to clients that come in random order, those of one member much more often than the others.
func TestTheDeal(t *testing.T) {
	for _, c := range []struct{ members, clients, total int }{
		{1, 5, 100}, {3, 1, 100}, {3, 2, 101}, {3, 30, 1000}, {3, 31, 1000}, {5, 12, 12},
	} {
		random := rand.New(rand.NewPCG(1, 2))
		var d deal
		d.init(c.members, c.clients)
		pacer := ClosedLoop{Total: c.total}
		seen, shares := make([]bool, c.total), make([]int, c.members)
		for i := range c.total {
			client := random.IntN(c.clients)
			if random.IntN(4) > 0 {
				client -= client % c.members
			}
			number, _, more := d.next(client, pacer, 0, 0)
			if !more || number >= c.total || seen[number] {
				t.Fatalf("%+v: request %d has the number %d, %v", c, i, number, more)
			}
			if c.clients == 1 && number != i {
				t.Errorf("%+v: one client does not send in order: %d at %d", c, number, i)
			}
			seen[number] = true
			shares[number%c.members]++
			if most, least := slices.Max(shares), slices.Min(shares); most-least > c.clients {
				t.Fatalf("%+v: the members got %v", c, shares)
			}
		}
		if _, _, more := d.next(0, pacer, 0, 0); more {
			t.Errorf("%+v: more than all were dealt", c)
		}
	}
}

// TestClientsGoFromMemberToMember one after the other: what comes together is sent together, to one member.
func TestClientsGoFromMemberToMember(t *testing.T) {
	const members, clients = 3, 30
	var d deal
	d.init(members, clients)
	for round := range 50 {
		for home := range members {
			for client := home; client < clients; client += members {
				if number, _, _ := d.next(client, ClosedLoop{Total: 10_000}, 0, 0); number%members != (home+round)%members {
					t.Fatalf("client %d sends number %d in round %d", client, number, round)
				}
			}
		}
	}
}

// TestWhatAWarmupLeavesOut: numbers go on after the largest one that was dealt, at every member.
func TestWhatAWarmupLeavesOut(t *testing.T) {
	d := deal{dealt: []int{5, 2, 3}} // up to number 12
	if first := d.align(); first != 13 {
		t.Errorf("the next number is %d", first)
	}
	for member, want := range []int{15, 13, 14} {
		if got := d.number(member); got != want {
			t.Errorf("member %d goes on with number %d, want %d", member, got, want)
		}
	}
	var none deal
	if none.init(3, 3); none.align() != 0 || none.number(2) != 2 {
		t.Errorf("nothing was dealt, and the next numbers are %v", none.dealt)
	}
}
