package spec

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// PasswordVariable is the environment variable with the user's password, where no file has it. It is in no parameter,
// so that it is on no command line, and in no body, result or log.
const PasswordVariable = "BENCHMARK_PASSWORD"

// MaxSecret bounds a file with certificates, a key, a password or a token, in bytes.
const MaxSecret = 1 << 20

// suffixWithTLS is what the path of benchmark-client is followed by in that of the program with TLS.
const suffixWithTLS = "-tls"

// WithTLS is the path of the program that carries loads over TLS, by that of benchmark-client: it is beside it.
func WithTLS(client string) string { return client + suffixWithTLS }

// Secured tells whether connections are secured with TLS, which only the program with TLS can do.
func (s *Spec) Secured() bool { return s.CAFile != "" }

// files are the parameters that name files, in order.
func (s *Spec) files() []*Parameter {
	return []*Parameter{paramCAFile, paramCertFile, paramKeyFile, paramPasswordFile, paramTokenFile}
}

func (s *Spec) validateSecurity() *Problem {
	switch {
	case s.CertFile != "" && s.CAFile == "":
		return s.problem(paramCertFile, "only together with a CA: there is no TLS without one")
	case s.CertFile != "" && s.KeyFile == "":
		return s.problem(paramCertFile, "only together with its private key")
	case s.KeyFile != "" && s.CertFile == "":
		return s.problem(paramKeyFile, "only together with its certificate")
	case s.PasswordFile != "" && s.User == "":
		return s.problem(paramPasswordFile, "only together with a user")
	}
	if name, password, found := strings.Cut(s.User, ":"); found && password != "" {
		// The rest is most likely a password: it is not repeated.
		hidden := *s
		hidden.User = name + ":..."
		return hidden.problem(paramUser,
			"a name without a colon: the password is in a file, or in the environment variable "+PasswordVariable)
	} else if found {
		return s.problem(paramUser, paramUser.Allowed())
	}
	return nil
}

// Locate puts the files that a caller from elsewhere has named into a folder. It refuses names that lead out of it, and
// all of them if there is no folder: callers must not choose which files are read.
func (s *Spec) Locate(folder string) *Problem {
	for _, p := range s.files() {
		name := p.at(s).(*string)
		switch {
		case *name == "":
		case folder == "":
			return s.problem(p, "no files: the server was started without --credentials")
		case *name != filepath.Base(*name) || *name == "." || *name == "..":
			return s.problem(p, "the name of a file in the server's folder --credentials, without a slash")
		default:
			*name = filepath.Join(folder, *name)
		}
	}
	return nil
}

// ReadSecret gives the content of a file that a Spec names: certificates, a key or a password. It refuses those of more
// than MaxSecret bytes.
func ReadSecret(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = file.Close() // it was only read
	}()
	content, err := io.ReadAll(io.LimitReader(file, MaxSecret+1))
	if err == nil && len(content) > MaxSecret {
		err = fmt.Errorf("%s is larger than %d bytes", strings.ToValidUTF8(name, "?"), MaxSecret)
	}
	return content, err
}
