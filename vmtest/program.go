package vmtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// programLimit bounds the build of the program on the busiest of machines.
const programLimit = 20 * time.Minute

// Program builds cmd/sluice and returns where it is, in the module's folder bin, so that all tests
// that need it in guests share one: linking it takes as long as booting a guest does, and what is
// up to date is not linked again. Guests see it under the same name.
func Program(t Judge) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), programLimit)
	defer cancel()
	mod, err := output(ctx, "", "go", "env", "GOMOD")
	if err != nil {
		t.Fatalf("%v", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	dir := filepath.Join(root, "bin", "vmtest")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	unlock, err := lockFolder(ctx, dir)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer unlock()
	path := filepath.Join(dir, "sluice")
	if err := build(ctx, root, "./cmd/sluice", path); err != nil {
		t.Fatalf("%v", err)
	}
	return path
}
