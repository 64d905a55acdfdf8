// Command lab runs a program in a virtual machine that has an RDMA device, as a person would:
//
//	go run ./vmtest/lab -- bin/sluice bench fabric
//	go run ./vmtest/lab --guests 2 --peer 'ib_send_lat -d rxe0 -x 1' -- \
//	    bash -c 'until ib_send_lat -d rxe0 -x 1 $LAB_PEER; do sleep 1; done'
//
// The guest sees the host's files, read-only, at the same paths, and the program runs in the folder
// that lab was called in. What it prints comes at once; its exit code is lab's. Nothing that it
// writes stays, but for what it puts into /host-rw (see --share).
//
// It is for people and scripts; tests use package vmtest. Read options.go first, then session.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluice-storage/sluice/vmtest"
)

// Exit codes of lab itself; others are the command's.
const (
	codeFailed = 125 // no guest, or no answer from it
	codeUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is main with its surroundings as arguments.
func run(ctx context.Context, args []string, out, problems io.Writer) int {
	o, err := parse(args, problems)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(problems, "lab: %v\nlab --help tells more\n", err)
		return codeUsage
	}
	lab, err := vmtest.Open(ctx, vmtest.Options{})
	if err != nil {
		fmt.Fprintf(problems, "lab: no virtual machines here: %v\n", err)
		return codeFailed
	}
	if o.prepare {
		return 0
	}
	s := &session{options: o, lab: lab, out: out, problems: &locked{to: problems}}
	code, err := s.run(ctx)
	if err != nil {
		fmt.Fprintf(problems, "lab: %v\n", err)
		return codeFailed
	}
	return code
}
