package jute

import "fmt"

// Code is the error of an answer, as in KeeperException.java.
type Code int32

// The codes that are named here.
const (
	OK                   Code = 0
	SystemError          Code = -1
	RuntimeInconsistency Code = -2
	DataInconsistency    Code = -3
	ConnectionLoss       Code = -4
	Unimplemented        Code = -6
	OperationTimeout     Code = -7
	BadArguments         Code = -8
	APIError             Code = -100
	NoNode               Code = -101
	NoAuth               Code = -102
	BadVersion           Code = -103
	NodeExists           Code = -110
	SessionExpired       Code = -112
	InvalidACL           Code = -114
	AuthFailed           Code = -115
	SessionMoved         Code = -118
	NotReadOnly          Code = -119
	RequestTimeout       Code = -122
	QuotaExceeded        Code = -125
	Throttled            Code = -127
)

var names = map[Code]string{
	SystemError: "system error", RuntimeInconsistency: "runtime inconsistency", DataInconsistency: "data inconsistency",
	ConnectionLoss: "connection loss", Unimplemented: "unimplemented", OperationTimeout: "operation timeout",
	BadArguments: "bad arguments", NoNode: "no node", NoAuth: "not authorized", BadVersion: "bad version",
	NodeExists: "node exists", SessionExpired: "session expired", InvalidACL: "invalid ACL",
	AuthFailed: "authentication failed", SessionMoved: "session moved", NotReadOnly: "the member is read-only",
	RequestTimeout: "request timeout", QuotaExceeded: "quota exceeded", Throttled: "throttled",
}

// String names the error.
func (c Code) String() string {
	if name := names[c]; name != "" {
		return name
	}
	return fmt.Sprintf("error %d", int32(c))
}

// DidNotHappen tells whether a member that answers a request with this error says that it did not carry it out. Errors
// from APIError on are verdicts on the request. The others are of the member itself, at whatever stage.
func (c Code) DidNotHappen() bool {
	return c < APIError && c != RequestTimeout || c == Unimplemented || c == BadArguments
}

// EndsSession tells whether nothing more can be had on the session.
func (c Code) EndsSession() bool { return c == SessionExpired || c == SessionMoved || c == AuthFailed }
