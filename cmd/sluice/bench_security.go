package main

import (
	"errors"

	benchnet "github.com/sluice-storage/sluice/bench/net"
)

// benchSecurity measures what it costs that peers prove who they are, between this process and
// another one. Certificates for both are made for the time of the bench.
func (f *caseFlags) benchSecurity() (err error) {
	names, err := f.chooseProviders(f.providers, benchnet.Securities())
	if err != nil {
		return err
	}
	ca, err := newBenchCA()
	if err != nil {
		return err
	}
	ours, err := ca.issue("bench")
	if err != nil {
		return err
	}
	b := &benchnet.Bench{Providers: names, Open: benchOpener(ours), Quick: f.brief()}
	if f.list {
		return f.listCases(b.SecurityCases(), benchnet.SecurityFigures())
	}
	p, err := ca.startPeer(f.cmd.Context(), f.peerArgs()...)
	if err != nil {
		return err
	}
	defer p.stop()
	b.Peer = p.info
	done, err := profile(f.profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(), done()) }()
	return f.measure(benchnet.Budget(f.quick, f.figures), b.SecurityCases(),
		benchnet.SecurityFigures(), benchnet.SecurityPromises())
}
