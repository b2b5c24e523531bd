package wire

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers are those of etcd's api/etcdserverpb/rpc.proto.
const (
	userName, userPassword = 1, 2
	authenticateToken      = 2
)

// ErrNoToken is the problem of an answer to Authenticate.
var ErrNoToken = errors.New("the answer to a login holds no token")

// AppendAuthenticate appends the encoding of an AuthenticateRequest.
func AppendAuthenticate(b []byte, name, password string) []byte {
	return appendBytes(appendBytes(b, userName, []byte(name)), userPassword, []byte(password))
}

// Token reads the answer to Authenticate, which must be complete.
func (r *Reader) Token() (string, error) {
	var token string
	err := eachField(r.value, func(field protowire.Number, _ uint64, content []byte) error {
		if field == authenticateToken {
			token = string(content)
		}
		return nil
	})
	if err == nil && token == "" {
		err = ErrNoToken
	}
	return token, err
}
