//go:build plumbing

package store

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"containernet-env/benchmark_image/internal/assert"
)

// TestTheProgramsAreSmall looks at what is linked into them: grpc-go alone doubles the memory of the client, and
// crypto/tls makes it a third larger.
func TestTheProgramsAreSmall(t *testing.T) {
	dependencies := func(names ...string) []string {
		list := exec.Command("go", append([]string{"list", "-deps"}, names...)...)
		list.Dir = root
		out := assert.Got(list.Output())(t)
		return strings.Fields(string(out))
	}
	grpc := func(name string) bool { return strings.HasPrefix(name, "google.golang.org/grpc") }
	crypto := func(name string) bool { return strings.HasPrefix(name, "crypto/") }
	client, server := dependencies("./cmd/benchmark-client"), dependencies("./cmd/benchmark-server")
	assert.That(t, !slices.ContainsFunc(client, grpc) && !slices.ContainsFunc(server, grpc),
		"grpc-go is linked into a program")
	for _, unwanted := range []string{"google.golang.org/protobuf/proto", "net/http"} {
		assert.That(t, !slices.Contains(client, unwanted), "%s is linked into the client", unwanted)
	}
	assert.That(t, !slices.ContainsFunc(client, crypto), "crypto is linked into the client")
	secured := dependencies("./cmd/benchmark-client-tls")
	assert.That(t, slices.Contains(secured, "crypto/tls") && !slices.ContainsFunc(secured, grpc),
		"the client with TLS has no crypto/tls, or has grpc-go")
	reference := dependencies("-test", "-tags=plumbing", "./internal/client")
	assert.That(t, slices.ContainsFunc(reference, grpc), "grpc-go is not found where it is")
}
