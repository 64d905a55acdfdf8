package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
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
func (f *benchFlags) benchLadder(cmd *cobra.Command, addr string) error {
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
	addr = strings.TrimRight(strings.TrimPrefix(addr, scheme+"//"), "/")
	rungs, err := climb(ctx, addr, f.providers)
	if err != nil {
		return err
	}
	if f.json {
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

// climb dials as every client does.
func climb(ctx context.Context, addr string, providers []string) ([]rung, error) {
	n, err := openClient(&providersFlag{list: strings.Join(providers, ",")}, nil)
	if err != nil {
		return nil, err
	}
	defer n.close()
	node, err := n.node()
	if err != nil {
		return nil, err
	}
	defer node.Close()
	ctx, cancel := context.WithTimeout(ctx, toolMax)
	defer cancel()
	conn, err := node.Dial(ctx, addr)
	if err != nil {
		return nil, hint(err, "Is there a server at %s? Addresses are HOST:PORT, or "+
			"tcp:HOST:PORT,shm:/PATH", addr)
	}
	return rungsOf(conn.Ladder()), nil
}

// rungsOf shows all steps from the best one down: those that were tried, and those below the one
// that was taken.
func rungsOf(steps []msg.Step) []rung {
	var all []rung
	taken := ""
	for _, name := range ladder() {
		r := rung{Provider: name, Outcome: "not needed", Why: taken + " is better and works"}
		for _, s := range steps {
			if s.Provider != name {
				continue
			}
			r = rung{Provider: name, Addr: s.Addr, Outcome: "taken"}
			if s.Err != nil {
				r.Outcome, r.Why = "not taken", s.Err.Error()
			} else {
				taken = name
			}
		}
		all = append(all, r)
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
