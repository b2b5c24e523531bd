package main

import (
	"os"
	"testing"
)

func TestWhatIsGeneratedIsCommitted(t *testing.T) {
	files, err := generated()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		if string(got) != want {
			t.Errorf("%s is stale: run %s", path, howToMake)
		}
	}
}
