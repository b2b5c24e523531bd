package transport

import (
	"fmt"
	"strings"
	"time"

	"containernet-env/benchmark_image/internal/store"
)

// maxErrorText bounds the length of one error text in a report, in bytes.
const maxErrorText = 300

// describe gives a failure in one line that names the member.
func describe(member string, f *store.Failure, timeout time.Duration) string {
	text := f.Text
	if f.Code == store.DeadlineExceeded && text == "" {
		text = fmt.Sprintf("no answer within %v", timeout)
	}
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "")
	}
	return fmt.Sprintf("%s: %v: %s", member, f.Code, text)
}
