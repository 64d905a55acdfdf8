package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	rdma "github.com/sluice-storage/sluice/fabric/verbs" // the tests have verbs of their own
	"github.com/sluice-storage/sluice/msg"
)

// rung is one step of a ladder as it is shown.
type rung struct {
	Provider string `json:"provider"`
	Addr     string `json:"addr,omitempty"`
	Outcome  string `json:"outcome"` // taken, not taken or not needed
	Why      string `json:"why,omitempty"`
}

// benchLadder dials a server and shows by which provider it is reached, and why not by others.
func benchLadder(cmd *cobra.Command, addr string, asJSON bool) error {
	ctx := cmd.Context()
	if addr == "" {
		p, err := startPeer(ctx)
		if err != nil {
			return err
		}
		defer p.stop()
		n := &bench.Net{Control: p.info.Control}
		defer n.Close()
		if addr, err = n.ServeLadder(ctx, ladderSteps(), plainProvider); err != nil {
			return err
		}
	}
	rungs, err := climb(ctx, strings.TrimRight(strings.TrimPrefix(addr, scheme+"//"), "/"))
	if err != nil {
		return hint(err, "Is there a server at %s? Addresses are HOST:PORT, or "+
			"tcp:HOST:PORT,shm:/PATH", addr)
	}
	if asJSON {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(rungs)
	}
	return writeLadder(cmd.OutOrStdout(), rungs)
}

// ladderSteps are the steps above tcp that work here, best first.
func ladderSteps() []string {
	steps := []string{shmProvider}
	if verbsMissing() == "" {
		steps = append(steps, verbsProvider)
	}
	return steps
}

// climb dials with every provider that works here.
func climb(ctx context.Context, addr string) ([]rung, error) {
	var opts msg.Options
	open := func(name string, fn func() (fabric.Domain, error)) {
		d, err := fn()
		if err != nil {
			opts.Missing = append(opts.Missing, msg.Step{Provider: name, Err: err})
			return
		}
		opts.Domains = append(opts.Domains, d)
	}
	defer func() {
		for _, d := range opts.Domains {
			_ = d.Close() // what was to be seen has been seen
		}
	}()
	open(shmProvider, func() (fabric.Domain, error) {
		return shm.Open(shm.Options{Arenas: shm.NewArenas()})
	})
	open(verbsProvider, func() (fabric.Domain, error) { return rdma.Open(rdma.Options{}) })
	open(plainProvider, func() (fabric.Domain, error) { return tcp.Open(tcp.Options{}) })
	node, err := msg.NewNode(opts)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	ctx, cancel := context.WithTimeout(ctx, toolMax)
	defer cancel()
	conn, err := node.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return rungsOf(conn.Ladder(), opts.Domains), nil
}

// rungsOf shows steps, and those below the one that was taken.
func rungsOf(steps []msg.Step, domains []fabric.Domain) []rung {
	var all []rung
	taken := ""
	for _, s := range steps {
		r := rung{Provider: s.Provider, Addr: s.Addr, Outcome: "not taken"}
		if s.Err == nil {
			r.Outcome, taken = "taken", s.Provider
		} else {
			r.Why = s.Err.Error()
		}
		all = append(all, r)
	}
	for _, d := range domains {
		name := d.Caps().Provider
		if !slices.ContainsFunc(all, func(r rung) bool { return r.Provider == name }) {
			all = append(all, rung{
				Provider: name, Outcome: "not needed", Why: taken + " is better and works",
			})
		}
	}
	return all
}

func writeLadder(w io.Writer, rungs []rung) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROVIDER\tOUTCOME\tADDRESS\tWHY")
	for _, r := range rungs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.Provider, r.Outcome, r.Addr, r.Why)
	}
	return t.Flush()
}
