package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	benchnet "github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
)

// rung is one step of a ladder as it is shown.
type rung struct {
	Provider string `json:"provider"`
	Addr     string `json:"addr,omitempty"`
	Outcome  string `json:"outcome"`         // taken, not taken or not needed
	Known    string `json:"known,omitempty"` // how the server is known there
	Why      string `json:"why,omitempty"`
}

// benchLadder dials a server and shows by which provider it is reached, and why not by others.
func (f *caseFlags) benchLadder(addr string) error {
	ctx := f.cmd.Context()
	var secret secretFlag
	if addr == "" {
		secret.trust = true // a peer of this bench has no cluster
		p, err := startPeer(ctx)
		if err != nil {
			return err
		}
		defer p.stop()
		b := &benchnet.Bench{Peer: p.info}
		defer b.Close()
		if addr, err = b.ServeLadder(ctx, ladderSteps(), plainProvider); err != nil {
			return err
		}
	}
	addr = strings.TrimRight(strings.TrimPrefix(addr, scheme+"//"), "/")
	by := providersFlag{list: strings.Join(f.providers, ","), secret: secret}
	rungs, err := climb(ctx, addr, &by)
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(f.cmd, rungs)
	}
	return writeLadder(f.cmd.OutOrStdout(), rungs)
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
func climb(ctx context.Context, addr string, by *providersFlag) ([]rung, error) {
	providers, err := openClient(by, scheme+"//"+addr, nil)
	if err != nil {
		return nil, err
	}
	defer providers.Close()
	net, err := peer.New(providers, msg.Options{})
	if err != nil {
		return nil, err
	}
	defer net.Close()
	ctx, cancel := context.WithTimeout(ctx, toolMax)
	defer cancel()
	conn, err := net.Dial(ctx, addr)
	if errs.KindOf(err) == errs.Perm {
		return nil, by.secret.explainProof(err, addr)
	}
	if err != nil {
		return nil, hint(err, "Is there a server at %s? Addresses are HOST:PORT, or "+
			"tcp:HOST:PORT,shm:/PATH", addr)
	}
	return rungsOf(net, conn), nil
}

// rungsOf shows all steps from the best one down: those that were tried, at each of their places,
// and those below the one that was taken.
func rungsOf(net *peer.Network, conn *msg.Conn) []rung {
	var all []rung
	steps, server := net.Ladder(conn), net.Known(conn)
	taken := ""
	for _, name := range peer.Names() {
		tried := len(all)
		for _, s := range steps {
			if s.Provider != name {
				continue
			}
			r := rung{Provider: name, Addr: s.Addr, Outcome: "taken"}
			if s.Err != nil {
				r.Outcome, r.Why = "not taken", s.Err.Error()
			} else {
				taken, r.Known = name, knownAs(server.Proof, server.Name)
			}
			all = append(all, r)
		}
		if len(all) == tried {
			all = append(all, rung{Provider: name, Outcome: "not needed",
				Why: taken + " is better and works"})
		}
	}
	return all
}

func writeLadder(w io.Writer, rungs []rung) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROVIDER\tOUTCOME\tADDRESS\tKNOWN BY\tWHY NOT")
	for _, r := range rungs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Provider, r.Outcome, r.Addr, r.Known, r.Why)
	}
	return t.Flush()
}
