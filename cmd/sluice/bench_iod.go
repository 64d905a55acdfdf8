package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
)

// iodProviders are those that bench iod knows: both have ceilings on every host.
func iodProviders() []string { return []string{plainProvider, shmProvider} }

// iodLimits are those that a cluster has without tuning, see network.untuned.
func iodLimits() map[string]msg.Limits {
	return map[string]msg.Limits{shmProvider: {EagerMax: -1}}
}

// chooseIod are the providers that were asked for, or all.
func chooseIod(asked []string) ([]string, error) {
	for _, name := range asked {
		if !slices.Contains(iodProviders(), name) {
			return nil, refuse("bench iod has no provider "+name,
				"Choose from: "+strings.Join(iodProviders(), ","))
		}
	}
	if len(asked) > 0 {
		return asked, nil
	}
	return iodProviders(), nil
}

// benchIod measures I/O servers of another process.
func benchIod(ctx context.Context, b bench.Budget, flags *benchFlags) (rows []bench.Row,
	err error) {
	names, err := chooseIod(flags.providers)
	if err != nil {
		return nil, err
	}
	where := flags.store.dir
	if where == "" {
		where = "."
	}
	dir, err := os.MkdirTemp(where, "sluice-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	args := []string{"--iod", dir}
	if flags.profile != "" {
		args = append(args, "--profile", flags.profile+".peer")
	}
	p, err := startPeer(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	loop, err := startPeer(ctx, "--loop")
	if err != nil {
		return nil, err
	}
	defer loop.stop()
	done, err := profile(flags.profile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	suite, end := iodSuite(names, flags, dir)
	suite.Net.Control, suite.Loop = p.info.Control, loop.info.Loop
	defer func() { err = errors.Join(err, end()) }()
	cases, err := flags.chooseIodCases(suite.Cases())
	if err != nil {
		return nil, err
	}
	return bench.RunAll(ctx, b, cases)
}

// iodSuite is the bench without the other processes. end closes what its cases have opened.
func iodSuite(names []string, flags *benchFlags, dir string) (suite *bench.Iod, end func() error) {
	s := &storeBench{dir: dir, bytes: 512 << 20, log: 128 << 20}
	if flags.quick || flags.within > 0 {
		s.bytes, s.log = 128<<20, 16<<20
	}
	net := &bench.Net{Providers: names, Open: openNet()}
	store := &bench.Store{Open: s.open, Bytes: s.bytes, LogBytes: s.log}
	suite = &bench.Iod{Providers: names, Net: net, Store: store, Limits: iodLimits(), Bytes: s.bytes,
		Quick: flags.quick && len(flags.cases) == 0 && !flags.figures}
	return suite, func() error { return errors.Join(suite.Close(), net.Close(), store.Close()) }
}

// chooseIodCases are those that were asked for.
func (f *benchFlags) chooseIodCases(all []bench.Case) ([]bench.Case, error) {
	patterns := f.cases
	if f.figures {
		patterns = bench.IodFigureCases()
	}
	chosen, err := bench.Choose(all, patterns)
	if err != nil {
		return nil, hint(err, "See: sluice bench iod --list")
	}
	return chosen, nil
}

// listIod lists the cases.
func (f *benchFlags) listIod(cmd *cobra.Command) error {
	names, err := chooseIod(f.providers)
	if err != nil {
		return err
	}
	suite, _ := iodSuite(names, f, "")
	suite.Loop = "none" // so that its case is in the list
	cases, err := f.chooseIodCases(suite.Cases())
	if err != nil {
		return err
	}
	return bench.WriteCases(cmd.OutOrStdout(), cases)
}

// peerIod is the other process of bench iod: it starts servers that are asked for, in a folder.
func peerIod(cmd *cobra.Command, dir string) error {
	note := func(err error) {
		fmt.Fprintln(cmd.ErrOrStderr(), "sluice: bench-peer: "+err.Error())
	}
	info := peerInfo{}
	sites := &iodSites{dir: dir, open: openNet()}
	ln, err := serveLoopback(&info.Control, func(ln net.Listener) {
		bench.ServeIod(cmd.Context(), ln, sites.open, sites.start, note)
	})
	if err != nil {
		return err
	}
	defer ln.Close()
	if err := tell(cmd, info); err != nil {
		return err
	}
	<-cmd.Context().Done()
	return sites.wait()
}

// peerLoop is the third process of bench iod.
func peerLoop(cmd *cobra.Command) error {
	info := peerInfo{}
	ln, err := serveLoopback(&info.Loop, bench.ServeLoop)
	if err != nil {
		return err
	}
	defer ln.Close()
	if err := tell(cmd, info); err != nil {
		return err
	}
	<-cmd.Context().Done()
	return nil
}

// peerEnd is how long servers of a bench may take to close when it ends.
const peerEnd = 10 * time.Second

// errPeerEnd is what is said of those that took longer.
func errPeerEnd(n int) error {
	return errs.Newf(errs.TimedOut, "bench-peer", "", "%d servers did not close", n)
}
