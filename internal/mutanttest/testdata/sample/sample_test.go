package sample

import (
	"os"
	"testing"
)

func TestLarger(t *testing.T) {
	if Larger(2, 1) != 2 {
		t.Error("2 is larger than 1")
	}
}

func TestNothing(*testing.T) {}

// TestChecked fails where it is told to, whatever is planted.
func TestChecked(t *testing.T) {
	if os.Getenv("SAMPLE_FAILS") != "" {
		t.Error("as I was told")
	}
}
