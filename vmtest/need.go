package vmtest

import (
	"context"
	"errors"
	"os"

	"github.com/sluice-storage/sluice/errs"
)

// Judge is the part of *testing.T that decides about a test.
type Judge interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Keeper is the part of *testing.T that cleans up after it.
type Keeper interface {
	Cleanup(f func())
	Failed() bool
	Logf(format string, args ...any)
}

// TB is a *testing.T. This package names what it needs of it, so that programs can use guests
// without linking package testing.
type TB interface {
	Judge
	Keeper
}

// Need opens the lab with its defaults, or skips the test and says what the machine lacks. With
// SLUICE_VMTEST=must in the environment the test fails instead of being skipped; a lab that is
// there and does not work always fails it.
func Need(t Judge) *Lab {
	t.Helper()
	lab, err := Open(context.Background(), Options{})
	switch {
	case err == nil:
	case errors.Is(err, errs.Unsupported) && os.Getenv("SLUICE_VMTEST") != "must":
		t.Skipf("no virtual machines here: %v", err)
	default:
		t.Fatalf("the lab: %v", err)
	}
	return lab
}

// StartFor is Start for a test: it fails the test if the guest does not come up, ends the guest
// with the test, and shows the guest's console if the test has failed.
func (l *Lab) StartFor(t TB, c GuestConfig) *Guest {
	t.Helper()
	g, err := l.Start(context.Background(), c)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		g.Kill()
		if t.Failed() {
			t.Logf("console of %s:\n%s", g.Name(), g.Console())
		}
	})
	return g
}
