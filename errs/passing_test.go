package errs

import (
	"context"
	"testing"
)

func TestPasses(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, row := range []struct {
		kind         Kind
		alive, after bool // with a context that lives, and with one that has ended
	}{
		{OK, false, false},
		{Disconnected, true, true},
		{Shutdown, true, true},
		{Again, true, true},
		{TimedOut, true, false},
		{Canceled, true, false},
		{Closed, false, false},
		{NotFound, false, false},
	} {
		err := New(row.kind, "op", "", nil)
		alive, after := Passes(context.Background(), err), Passes(ended, err)
		if alive != row.alive || after != row.after || row.kind.Passing() != row.alive {
			t.Errorf("%v: %v, %v", row.kind, alive, after)
		}
	}
}
