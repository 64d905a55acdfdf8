// Command sluice is everything in one program: the servers, the tools, the mount, the block exports
// and the measurements. This package is the only one that wires: it chooses providers and engines,
// starts processes, and turns errors into advice.
//
// Read main.go first, then cluster.go (what lies in a cluster's folder), host.go (how one is run,
// for sluice up and sluice serve) and any cmd_<verb>.go. A copy is cmd_cp.go, copy.go (the walk),
// copyfile.go (one file), copydata.go (its data) and tree.go (both sides).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	product "github.com/sluice-storage/sluice/internal/version"
)

// version is set by the linker; it is a variable because the linker knows nothing else.
var version = "unversioned"

func main() {
	do := run
	if isHelper(os.Args[0]) {
		do = runHelper
	}
	os.Exit(do(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main with its surroundings as arguments.
func run(args []string, in io.Reader, out, problems io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	keepReadyPipe()
	product.Set(version)
	root := rootFor(args)
	root.SetArgs(singleDash(root, args))
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(problems)
	err := root.ExecuteContext(ctx)
	var exit *exitError
	if errors.As(err, &exit) && exit.err == nil {
		return exit.code
	}
	if err != nil {
		fmt.Fprintln(problems, "sluice: "+explain(err))
	}
	switch {
	case exit != nil:
		return exit.code
	case err != nil:
		return 1
	}
	return 0
}

// exitError is an end with another exit code than 1. Without an error in it, all was said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }
