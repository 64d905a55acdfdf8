package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/vmtest"
)

// codeTime is how a command ends whose time was over, as timeout(1) has it.
const codeTime = 124

// marginLimit is what a guest may exist longer than its command may run: boot and set-up.
const marginLimit = 10 * time.Minute

// session is one command in its machines.
type session struct {
	options
	lab           *vmtest.Lab
	out, problems io.Writer

	wire   *vmtest.Wire
	guests []*vmtest.Guest
}

// run boots, runs and ends. The code is the command's.
func (s *session) run(ctx context.Context) (int, error) {
	defer func() {
		for _, g := range s.guests {
			if err := g.Stop(); err != nil {
				fmt.Fprintf(s.problems, "lab: %v\n", err)
			}
		}
	}()
	if err := s.boot(ctx); err != nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, errs.Wrap("lab", "", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var peer sync.WaitGroup
	defer peer.Wait()
	defer cancel() // ends the peer, then waits for it
	if s.peer != "" {
		peer.Go(func() { s.assist(ctx, dir) })
	}
	res, err := s.guests[0].Exec(ctx, vmtest.Command{
		Script: "exec " + quote(s.command), Dir: dir, Env: s.environment(0), Limit: s.timeout,
		OutputMax: 1, Stdout: s.out, Stderr: s.problems,
	})
	if errors.Is(err, errs.TimedOut) {
		fmt.Fprintf(s.problems, "lab: killed, because it took longer than --timeout %v\n", s.timeout)
		return codeTime, nil
	}
	return res.Code, err
}

// boot starts all the guests at once, with their devices.
func (s *session) boot(ctx context.Context) error {
	s.wire = s.lab.NewWire(vmtest.WireOptions{})
	s.guests = make([]*vmtest.Guest, s.options.guests)
	failures := make([]error, s.options.guests)
	var all sync.WaitGroup
	for i := range s.guests {
		all.Go(func() { s.guests[i], failures[i] = s.start(ctx, i) })
	}
	all.Wait()
	up := s.guests[:0]
	for _, g := range s.guests {
		if g != nil {
			up = append(up, g)
		}
	}
	s.guests = up
	return errors.Join(failures...)
}

func (s *session) start(ctx context.Context, i int) (*vmtest.Guest, error) {
	c := vmtest.GuestConfig{
		Name: fmt.Sprintf("guest%d", i+1), Memory: s.memory, CPUs: s.cpus, Share: s.share,
		Wires: []*vmtest.Wire{s.wire}, LifeLimit: s.timeout + marginLimit,
	}
	if s.console {
		c.Console = s.problems
	}
	g, err := s.lab.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	_, err = g.SoftRoCE(ctx, s.wire)
	return g, err
}

// environment tells the programs of a guest who is there.
func (s *session) environment(i int) []string {
	env := []string{fmt.Sprintf("LAB_SELF=%v", s.guests[i].Addr(s.wire))}
	if len(s.guests) == 2 {
		env = append(env, fmt.Sprintf("LAB_PEER=%v", s.guests[1-i].Addr(s.wire)))
	}
	return env
}

// assist runs the peer's script until the command has ended.
func (s *session) assist(ctx context.Context, dir string) {
	to := &prefixed{to: s.problems, prefix: "peer: "}
	res, err := s.guests[1].Exec(ctx, vmtest.Command{
		Script: s.peer, Dir: dir, Env: s.environment(1), Limit: s.timeout,
		OutputMax: 1, Stdout: to, Stderr: to,
	})
	to.flush()
	switch {
	case ctx.Err() != nil: // as it is meant to end
	case err != nil:
		fmt.Fprintf(s.problems, "lab: the peer: %v\n", err)
	case res.Code != 0:
		fmt.Fprintf(s.problems, "lab: the peer ended with %d\n", res.Code)
	}
}

// locked lets several machines write to one place.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// prefixed puts a word before every line.
type prefixed struct {
	to     io.Writer
	prefix string
	line   []byte // the beginning of a line that is not complete
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.line = append(p.line, b...)
	for {
		i := bytes.IndexByte(p.line, '\n')
		if i < 0 {
			return len(b), nil
		}
		if _, err := fmt.Fprintf(p.to, "%s%s\n", p.prefix, p.line[:i]); err != nil {
			return 0, err
		}
		p.line = p.line[i+1:]
	}
}

func (p *prefixed) flush() {
	if len(p.line) > 0 {
		fmt.Fprintf(p.to, "%s%s\n", p.prefix, p.line)
		p.line = nil
	}
}
