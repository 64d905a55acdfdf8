package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

const usage = `lab runs a command in a virtual machine with a stock kernel and an RDMA device.

  go run ./vmtest/lab [flags] -- COMMAND [ARGUMENT...]

The machine's files are this machine's, read-only; what the command writes goes to memory and is
gone with the machine, except in /host-rw. The RDMA device is rxe0 (Soft-RoCE) on eth0. In the
environment are LAB_SELF and, with two guests, LAB_PEER: the guests' addresses.

Output comes as it is printed, and lab ends with the command's exit code: 124 if its time was over,
125 if there is no machine. (go run turns every code but 0 into 1; go build -o bin/lab ./vmtest/lab
makes a program that does not.)

Machines are emulated where there is no KVM, and 10 to 50 times slower than the host: compare what
is measured there with nothing but itself.

`

// options are what the command line says.
type options struct {
	guests  int
	memory  int // MiB
	cpus    int
	timeout time.Duration
	share   string // "" is a temporary folder
	peer    string // a script for the second guest
	console bool
	prepare bool
	command []string
}

// parse reads a command line. flag.ErrHelp says that the help was asked for, and printed.
func parse(args []string, help io.Writer) (options, error) {
	var o options
	set := flag.NewFlagSet("lab", flag.ContinueOnError)
	set.SetOutput(io.Discard) // errors are told once, by the caller
	set.IntVar(&o.guests, "guests", 1, "`1|2` machines on one wire; the command runs in the first")
	set.IntVar(&o.memory, "memory", 2048, "memory of each, in `MiB`")
	set.IntVar(&o.cpus, "cpus", 1, "processors of each")
	set.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long the command may take")
	set.StringVar(&o.share, "share", "",
		"a `folder` of the host, seen as /host-rw and written by the machines")
	set.StringVar(&o.peer, "peer", "",
		"a `script` that runs in the second machine meanwhile; it ends with the command")
	set.BoolVar(&o.console, "console", false, "print what the machines' kernels print")
	set.BoolVar(&o.prepare, "prepare", false,
		"only get the kernel and make what machines boot from; no command")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(help, usage)
			set.SetOutput(help)
			set.PrintDefaults()
		}
		return o, err
	}
	o.command = set.Args()
	if o.share != "" {
		path, err := filepath.Abs(o.share)
		if err != nil {
			return o, err
		}
		o.share = path
	}
	return o, o.validate()
}

func (o options) validate() error {
	switch {
	case o.prepare && len(o.command) > 0:
		return errors.New("--prepare takes no command")
	case !o.prepare && len(o.command) == 0:
		return errors.New("no command: lab [flags] -- COMMAND")
	case o.guests != 1 && o.guests != 2:
		return fmt.Errorf("--guests %d; 1 or 2", o.guests)
	case o.peer != "" && o.guests != 2:
		return errors.New("--peer needs --guests 2")
	case o.memory < 256:
		return fmt.Errorf("--memory %d; at least 256 MiB", o.memory)
	case o.cpus < 1 || o.cpus > 64:
		return fmt.Errorf("--cpus %d; 1 to 64", o.cpus)
	case o.timeout <= 0:
		return fmt.Errorf("--timeout %v is not positive", o.timeout)
	}
	return nil
}

// quote makes a line for a shell that has the same words again.
func quote(words []string) string {
	var b strings.Builder
	for i, word := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("'" + strings.ReplaceAll(word, "'", `'\''`) + "'")
	}
	return b.String()
}
