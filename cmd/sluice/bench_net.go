package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	rdma "github.com/sluice-storage/sluice/fabric/verbs" // the tests have verbs of their own
)

const shmProvider = "shm"

// netProviders are those that bench net knows.
func netProviders() []string { return []string{plainProvider, shmProvider, verbsProvider} }

// benchNet measures package msg between this process and another one.
func benchNet(ctx context.Context, b bench.Budget, flags *benchFlags) (rows []bench.Row,
	err error) {
	names, err := chooseNet(flags.providers, b.Note)
	if err != nil {
		return nil, err
	}
	var args []string
	if flags.profile != "" {
		args = []string{"--profile", flags.profile + ".peer"}
	}
	p, err := startPeer(ctx, args...)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	done, err := profile(flags.profile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	n := &bench.Net{
		Providers: names, Open: openNet(), Control: p.info.Control, Plain: p.info.Plain,
		Unix: p.info.Unix, Quick: flags.quick && len(flags.cases) == 0 && !flags.figures,
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	cases := n.Cases()
	if slices.Contains(names, plainProvider) {
		more, done := cacheCases(&p.info)
		defer func() { err = errors.Join(err, done()) }()
		cases = append(cases, more...)
	}
	if cases, err = flags.chooseCases(cases); err != nil {
		return nil, err
	}
	return bench.RunAll(ctx, b, cases)
}

// profile writes a processor profile of this process into a file until done is called; nothing if
// the file has no name.
func profile(name string) (done func() error, err error) {
	if name == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

// chooseCases are those that were asked for.
func (f *benchFlags) chooseCases(all []bench.Case) ([]bench.Case, error) {
	patterns := f.cases
	if f.figures {
		patterns = bench.FigureCases()
	}
	chosen, err := bench.Choose(all, patterns)
	if err != nil {
		return nil, hint(err, "See: sluice bench net --list")
	}
	return chosen, nil
}

// listNet lists the cases.
func (f *benchFlags) listNet(cmd *cobra.Command) error {
	names, err := chooseNet(f.providers, func(string) {})
	if err != nil {
		return err
	}
	cases := (&bench.Net{Providers: names, Quick: f.quick}).Cases()
	more, _ := cacheCases(&peerInfo{})
	if cases, err = f.chooseCases(append(cases, more...)); err != nil {
		return err
	}
	return bench.WriteCases(cmd.OutOrStdout(), cases)
}

// chooseNet are the providers that were asked for, or all that work here.
func chooseNet(asked []string, note func(string)) ([]string, error) {
	for _, name := range asked {
		if !slices.Contains(netProviders(), name) {
			return nil, refuse("bench net has no provider "+name,
				"Choose from: "+strings.Join(netProviders(), ","))
		}
	}
	names := asked
	if len(names) == 0 {
		names = netProviders()
	}
	if why := verbsMissing(); why != "" && slices.Contains(names, verbsProvider) {
		if len(asked) > 0 {
			return nil, errs.Newf(errs.Unsupported, "bench net", verbsProvider, "%s", why)
		}
		note("verbs is left out: " + why)
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
			return n == verbsProvider
		})
	}
	return names, nil
}

// rdmaPlace is an address at the first device that is up.
func rdmaPlace(d fabric.Domain) (string, error) {
	dev, err := fabric.UpDevice(d.Connector())
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(dev.Addrs[0], "0"), nil
}

// openNet opens providers for bench net, each time anew.
func openNet() bench.NetOpener {
	var names atomic.Uint64 // of places in shared memory
	return func(provider string) (bench.NetDomain, error) {
		var d bench.NetDomain
		var err error
		switch provider {
		case plainProvider:
			d.Listen = net.JoinHostPort("127.0.0.1", "0")
			d.Domain, err = tcp.Open(tcp.Options{})
		case shmProvider:
			arenas := shm.NewArenas()
			d.Source = arenas
			d.Listen = fmt.Sprintf("unix:@sluice-bench-%d-%d", os.Getpid(), names.Add(1))
			d.Domain, err = shm.Open(shm.Options{Arenas: arenas})
		case verbsProvider:
			d.Domain, err = rdma.Open(rdma.Options{})
			if err == nil {
				d.Listen, err = rdmaPlace(d.Domain)
			}
		default:
			err = errs.Newf(errs.Invalid, "bench net", provider, "no such provider")
		}
		return d, err
	}
}
