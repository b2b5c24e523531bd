package client

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"

	"containernet-env/benchmark_image/internal/http1"
	"containernet-env/benchmark_image/internal/spec"
	"containernet-env/benchmark_image/internal/store"
	"containernet-env/benchmark_image/internal/store/consul"
	"containernet-env/benchmark_image/internal/store/etcd"
	"containernet-env/benchmark_image/internal/store/keyvalue"
	"containernet-env/benchmark_image/internal/store/zookeeper"
)

// protocol is how the members that s names are spoken to.
func protocol(s *spec.Spec, secure Securer) (store.Protocol, error) {
	var secured store.Security // nil: connections are plain
	if s.Secured() {
		alpn := http1.ALPN
		if s.Store == spec.Etcd {
			alpn = etcd.ALPN
		}
		var err error
		if secured, err = secure(s, alpn); err != nil {
			return nil, err
		}
	}
	switch s.Store {
	case spec.ZooKeeper:
		return zookeeper.New(s.Chroot), nil
	case spec.Consul:
		token, err := token(s)
		return consul.Protocol{Secured: secured, Token: token, Default: s.Consistency == spec.Relaxed}, err
	case spec.HTTP:
		return &keyvalue.Protocol{Secured: secured, Put: s.PutPath, Get: s.GetPath, Written: s.WrittenCodes(),
			Found: s.FoundCodes(), Absent: s.AbsentKeyCodes()}, nil
	}
	user, err := user(s)
	return etcd.Protocol{Secured: secured, User: user}, err
}

// Securer gives what the connections of a load are secured with: it reads the files that s names. alpn is what members
// must agree to speak.
type Securer func(s *spec.Spec, alpn string) (store.Security, error)

// errNoTLS is of a load that the program without TLS is given where no other program can take it over.
var errNoTLS = errors.New("standard input: caFile: benchmark-client has no TLS; give this load to " +
	spec.WithTLS("benchmark-client"))

// execWithTLS replaces this process by the program with TLS, and returns only what keeps it from that.
func execWithTLS(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program with TLS: %w", err)
	}
	other := spec.WithTLS(self)
	err = syscall.Exec(other, append([]string{other}, args...), os.Environ())
	return fmt.Errorf("TLS is in a program of its own, %s: %w; put it there: ./build.sh builds it with benchmark-client",
		other, err)
}

// user is who a load of etcd logs in as, nil: there is none. The password is the first line of the file that s names, or
// what the environment has.
func user(s *spec.Spec) (*etcd.User, error) {
	if s.User == "" {
		return nil, nil
	}
	password := os.Getenv(spec.PasswordVariable)
	if s.PasswordFile != "" {
		var err error
		if password, err = firstLine(s.PasswordFile); err != nil {
			return nil, fmt.Errorf("read the password of %q: %w", s.User, err)
		}
	}
	if password == "" {
		return nil, fmt.Errorf("log in as %q: there is neither a password file nor the environment variable %s", s.User,
			spec.PasswordVariable)
	}
	return &etcd.User{Name: s.User, Password: password}, nil
}

// token is the first line of the file that s names; empty: it names none.
func token(s *spec.Spec) (string, error) {
	if s.TokenFile == "" {
		return "", nil
	}
	found, err := firstLine(s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	for _, c := range []byte(found) {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("read the token: the first line of %s has more than visible ASCII characters", s.TokenFile)
		}
	}
	return found, nil
}

// firstLine is that of a file with a secret; an empty one is an error.
func firstLine(path string) (string, error) {
	content, err := spec.ReadSecret(path)
	if err != nil {
		return "", err
	}
	line, _, _ := bytes.Cut(content, []byte("\n"))
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
		return "", fmt.Errorf("the first line of %s is empty", path)
	}
	return string(line), nil
}
