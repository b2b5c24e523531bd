//go:build plumbing

package main

import (
	"os"
	"os/exec"
	"testing"

	"containernet-env/link_emulator/hang"
)

// TestMain is the prober itself where TestProberEndsWithItsCaller has started this program.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_PROBER") != "" {
		os.Exit(run([]string{"rtt", "--life-fd", "3"}, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestProberEndsWithItsCaller(t *testing.T) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	prober := exec.Command(os.Args[0])
	prober.Env = []string{"BE_THE_PROBER=1"}
	prober.ExtraFiles = []*os.File{theirs}
	// It waits for a request that does not come.
	if _, err := prober.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := prober.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	ended := make(chan error, 1)
	go func() { ended <- prober.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("ended before its caller: %v", err)
	default:
	}
	ours.Close()
	select {
	case <-ended:
	case <-hang.After():
		prober.Process.Kill()
		t.Fatal("still runs after the end of its caller")
	}
}
