package transport

import (
	"context"
	"errors"
	"fmt"

	"containernet-env/benchmark_image/internal/store"
)

// rehearse asks whether the protocol's user may do what the load will do, of which these are samples. Only a member
// that refuses the user counts: what else goes wrong, the load will tell.
func (t *Transport) rehearse(ctx context.Context, samples []store.Request) error {
	if !t.protocol.NeedsLogin() && t.protocol.Security() == nil {
		return nil // a connection tells no user
	}
	for _, sample := range samples {
		sample.Rehearse = true
		for _, c := range t.connections {
			if !c.isReady.Load() {
				continue
			}
			_, err := c.ask(ctx, sample, statusTime(t.loop.attempt))
			var asked *askedError
			if errors.As(err, &asked) && asked.code == store.PermissionDenied {
				return fmt.Errorf("the user may not %s %q, so nothing of the load was sent: %w", name(sample), sample.Key, err)
			}
			if err == nil {
				break
			}
		}
	}
	return nil
}

func name(sample store.Request) string {
	switch sample.Operation {
	case store.Put:
		return "write"
	case store.Transaction:
		return "read and write"
	case store.Scan:
		return fmt.Sprintf("read the keys before %q from", sample.End)
	default:
		return "read"
	}
}
