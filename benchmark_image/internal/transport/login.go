package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/world"
)

// loginTimeout bounds a login while a load runs.
const loginTimeout = 10 * time.Second

// login lets the protocol's user log in at one of the members, over connections of its own. A member that refuses the
// user speaks for all.
func login(ctx context.Context, w world.World, protocol store.Protocol, members []string, permit Permit,
	attempt time.Duration) error {
	l, err := newLoop(w, protocol, members, statusTime(attempt), attempt, permit)
	if err != nil {
		return err
	}
	defer l.close()
	probes := l.probes(members)
	problem := errors.New("no member could be reached to log in")
	for {
		for _, c := range probes {
			if !c.isReady.Load() {
				continue
			}
			_, err := c.ask(ctx, store.Request{Operation: store.Login}, statusTime(attempt))
			if err == nil || !isPassing(err) {
				return err
			}
			if ctx.Err() == nil {
				problem = err
			}
		}
		timer := w.NewTimer(leaderPoll)
		select {
		case <-l.refused:
			timer.Stop()
			return l.refusal
		case <-ctx.Done():
			timer.Stop()
			return problem
		case <-timer.C():
		}
	}
}

// isPassing tells whether a request that failed so may succeed at another member, or later.
func isPassing(err error) bool {
	var asked *askedError
	if !errors.As(err, &asked) {
		return false
	}
	switch asked.code {
	case store.Unavailable, store.DeadlineExceeded, store.Canceled, store.ResourceExhausted, store.Unknown:
		return true
	}
	return false
}

// renew starts a job again behind a new login, if it was refused because the last one has expired. It keeps its
// deadline: the time that this takes is part of what the store took. false: the failure stands.
func (j *job) renew(failure *store.Failure) bool {
	l := j.conn.loop
	if !failure.LoggedOut || j.renewed {
		return false
	}
	j.renewed, j.queued = true, true
	l.await(j)
	j.conn.waiting.append(j)
	switch {
	case l.loggingIn:
	case j.login != l.logins: // there was a new login while it was under way
		j.conn.startWaiting()
	default:
		l.logIn()
	}
	return true
}

// logIn begins a login, for which all requests wait.
func (l *loop) logIn() {
	l.loggingIn = true
	go func() {
		ctx, cancel := l.world.WithTimeout(l.dialing, loginTimeout)
		defer cancel()
		err := login(ctx, l.world, l.protocol, l.members, l.permit, l.attempt)
		l.poller.post(func() { l.loggedIn(err) })
	}()
}

// loggedIn lets the requests go on that wait for a login, or fails them with what went wrong.
func (l *loop) loggedIn(err error) {
	l.loggingIn = false
	l.logins++
	for _, k := range l.links {
		if k == nil || k.conn.link != k {
			continue
		}
		if err != nil {
			k.conn.failWaiting(&store.Failure{Code: store.Unauthenticated, Text: fmt.Sprintf("a new login failed: %v", err)})
		}
		k.conn.startWaiting()
	}
}

// refuse notes that a member refuses connections, or has to be refused; the first reason counts.
func (l *loop) refuse(err error) {
	if l.refusal == nil {
		l.refusal = err
		close(l.refused)
	}
}

// refusedBy is the reason; nil: no member has.
func (l *loop) refusedBy() error {
	select {
	case <-l.refused:
		return l.refusal
	default:
		return nil
	}
}
