package load

import (
	"errors"
	"sync"
)

// maxErrors bounds how many different error texts a report holds.
const maxErrors = 20

const otherErrors = "other errors"

// tally counts failures by their text. Only failures take its lock.
type tally struct {
	mu     sync.Mutex
	byText map[string]int
}

func (t *tally) add(err error) {
	text := err.Error()
	if errors.Is(err, ErrNotFound) {
		text = ErrNotFound.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byText == nil {
		t.byText = make(map[string]int)
	}
	if _, known := t.byText[text]; !known && len(t.byText) >= maxErrors {
		text = otherErrors
	}
	t.byText[text]++
}

// counts must not be called before the transport has returned.
func (t *tally) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byText == nil {
		return map[string]int{}
	}
	return t.byText
}
