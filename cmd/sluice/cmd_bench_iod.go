package main

import (
	"errors"

	"github.com/spf13/cobra"

	benchiod "github.com/sluice-storage/sluice/bench/iod"
	benchnet "github.com/sluice-storage/sluice/bench/net"
	benchstore "github.com/sluice-storage/sluice/bench/store"
	"github.com/sluice-storage/sluice/msg"
)

func newBenchIod() *cobra.Command {
	var f caseFlags
	var where string
	cmd := &cobra.Command{
		Use:   "iod",
		Short: "Measure an I/O server against its network, its store and servers without a cache",
		Long: `Measures an I/O server in a process of its own, over tcp and shared memory: cached, direct,
by size, depth, size of the cache, members, in pieces; against
servers without a cache of their own, and against the network and the store alone, by the cases of
bench net and bench store in the same run.`,
		Example: `  sluice bench iod --quick
  sluice bench iod --figures --dir /srv
  sluice bench iod --cases 'cached-read-.*' --providers tcp`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(f.profile); err != nil {
				return err
			}
			return f.benchIod(where)
		},
	}
	f.add(cmd, iodProviders())
	addBenchDir(cmd, &where)
	return cmd
}

// iodProviders are those that bench iod knows: both have ceilings on every host.
func iodProviders() []string { return []string{plainProvider, shmProvider} }

// iodLimits are those that a cluster has without tuning, see network.untuned.
func iodLimits() map[string]msg.Limits {
	return map[string]msg.Limits{shmProvider: {EagerMax: -1}}
}

// benchIod measures I/O servers of another process.
func (f *caseFlags) benchIod(where string) (err error) {
	names, err := f.chooseProviders(f.providers, iodProviders())
	if err != nil {
		return err
	}
	s := &storeBench{bytes: 512 << 20, log: 128 << 20}
	if f.quick || f.within > 0 {
		s.bytes, s.log = 128<<20, 16<<20
	}
	b := &benchiod.Bench{Providers: names, Limits: iodLimits(), Bytes: s.bytes, Quick: f.brief(),
		Net:   &benchnet.Bench{Providers: names, Open: benchOpener(nil)},
		Store: &benchstore.Bench{Open: s.open, Bytes: s.bytes, LogBytes: s.log}}
	if f.list {
		return f.listCases(b.Cases(), benchiod.FigureCases())
	}
	dir, remove, err := tempIn(where)
	if err != nil {
		return err
	}
	defer remove()
	s.dir = dir
	p, err := startPeer(f.cmd.Context(), f.peerArgs("--dir", dir)...)
	if err != nil {
		return err
	}
	defer p.stop()
	b.Net.Peer = p.info
	done, err := profile(f.profile)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.Close(), b.Net.Close(), b.Store.Close(), done())
	}()
	return f.measure(benchiod.Budget(f.quick, f.figures), b.Cases(), benchiod.FigureCases(),
		benchiod.Promises())
}
