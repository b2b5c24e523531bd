//go:build plumbing

package store

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestTheProgramsAreSmall looks at what is linked into them: grpc-go alone doubles the memory of the client, and
// crypto/tls makes it a third larger.
func TestTheProgramsAreSmall(t *testing.T) {
	dependencies := func(names ...string) []string {
		list := exec.Command("go", append([]string{"list", "-deps"}, names...)...)
		list.Dir = root
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	grpc := func(name string) bool { return strings.HasPrefix(name, "google.golang.org/grpc") }
	crypto := func(name string) bool { return strings.HasPrefix(name, "crypto/") }
	client, server := dependencies("./cmd/benchmark-client"), dependencies("./cmd/benchmark-server")
	if slices.ContainsFunc(client, grpc) || slices.ContainsFunc(server, grpc) {
		t.Error("grpc-go is linked into a program")
	}
	for _, unwanted := range []string{"google.golang.org/protobuf/proto", "net/http"} {
		if slices.Contains(client, unwanted) {
			t.Errorf("%s is linked into the client", unwanted)
		}
	}
	if i := slices.IndexFunc(client, crypto); i >= 0 {
		t.Errorf("%s is linked into the client", client[i])
	}
	if secured := dependencies("./cmd/benchmark-client-tls"); !slices.Contains(secured,
		"crypto/tls") || slices.ContainsFunc(secured, grpc) {
		t.Error("the client with TLS has no crypto/tls, or has grpc-go")
	}
	if reference := dependencies("-test", "-tags=plumbing", "./internal/client"); !slices.ContainsFunc(reference, grpc) {
		t.Error("grpc-go is not found where it is")
	}
}
