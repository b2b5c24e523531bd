package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestTheProgramHasNoGRPCGo: it needs more memory than the rest of the program, whether or not it is used.
func TestTheProgramHasNoGRPCGo(t *testing.T) {
	for program, want := range map[string]bool{".": false, "../benchmark-client-grpc": true} {
		out, err := exec.Command("go", "list", "-deps", program).Output()
		if err != nil {
			t.Fatal(err)
		}
		if has := slices.Contains(strings.Fields(string(out)), "google.golang.org/grpc"); has != want {
			t.Errorf("%s: grpc-go is in it: %v, want %v", program, has, want)
		}
	}
}
