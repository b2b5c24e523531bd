package store

// Code says why a request failed, whatever the store. Numbers and names are those of gRPC's status codes
// (https://grpc.github.io/grpc/core/md_doc_statuscodes.html), and Check, which is ours.
type Code uint8

// The codes.
const (
	OK Code = iota
	Canceled
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
	Check // an answer came, but does not hold what it must
)

var codeNames = [...]string{
	"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
	"ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable",
	"DataLoss", "Unauthenticated", "Check",
}

// String gives the name of the code.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return codeNames[Unknown]
}

// Failure is how a request ended that did not succeed.
type Failure struct {
	Code Code
	Text string
	// Unknown tells that the request may have been carried out all the same: the member has it as a whole, and has not
	// said that it leaves it alone.
	Unknown bool
	// LoggedOut tells that the member carries out nothing until there is a new Login: the last one has expired.
	LoggedOut bool
}
