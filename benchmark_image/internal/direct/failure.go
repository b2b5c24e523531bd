package direct

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"containernet-env/benchmark_image/internal/h2"
	"containernet-env/benchmark_image/internal/load"
)

// callError is a failed request as the run records it.
func callError(member string, f *h2.Failure, timeout time.Duration) *load.CallError {
	code := load.Code(f.Code)
	return &load.CallError{
		Code: code, Unknown: f.Unknown && !(f.Answered && load.Refused(code, f.Text)), Text: describe(member, f, timeout),
	}
}

// maxErrorText bounds the length of one error text in a report, in bytes.
const maxErrorText = 300

// describe gives a failure in one line that names the member.
func describe(member string, f *h2.Failure, timeout time.Duration) string {
	text := f.Text
	if f.Code == codes.DeadlineExceeded && text == "" {
		text = fmt.Sprintf("no answer within %v", timeout)
	}
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "")
	}
	return fmt.Sprintf("%s: %v: %s", member, f.Code, text)
}
