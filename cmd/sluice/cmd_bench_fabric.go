package main

import (
	"errors"

	"github.com/spf13/cobra"

	benchfabric "github.com/sluice-storage/sluice/bench/fabric"
)

func newBenchFabric() *cobra.Command {
	var f benchFlags
	var providers []string
	cmd := &cobra.Command{
		Use:   "fabric",
		Short: "Measure messages, one-sided writes and reads of each provider",
		Long: `Measures messages, one-sided writes and reads by size, each provider between two processes:
tcp (in the clear, under TLS, with authenticated frames) against plain Go TCP; verbs, where there
is an RDMA device, against ib_send_lat, ib_write_bw and ib_read_bw of perftest.`,
		Example: `  sluice bench fabric --quick
  sluice bench fabric --providers verbs --plot verbs.svg
  sluice bench fabric --cases 'rtt-8,write-.*' --providers tcp`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.benchFabric(providers)
		},
	}
	f.add(cmd)
	addProviders(cmd, &providers, fabricProviders())
	f.addCases()
	return cmd
}

func fabricProviders() []string {
	return []string{plainProvider, tlsProvider, framesProvider, verbsProvider}
}

// benchFabric measures every provider between this process and another one. Certificates for both
// are made for the time of the bench.
func (f *benchFlags) benchFabric(asked []string) (err error) {
	names, err := f.chooseProviders(asked, fabricProviders())
	if err != nil {
		return err
	}
	ca, err := newBenchCA()
	if err != nil {
		return err
	}
	p, err := ca.startPeer(f.cmd.Context())
	if err != nil {
		return err
	}
	defer p.stop()
	ours, err := ca.issue("bench")
	if err != nil {
		return err
	}
	b := &benchfabric.Bench{Providers: names, Open: benchOpener(ours), Peer: p.info,
		Quick: f.quick && len(f.cases) == 0, Note: f.note}
	defer func() { err = errors.Join(err, b.Close()) }()
	cases, err := b.Cases(f.cmd.Context())
	if err != nil {
		return err
	}
	if f.list {
		return f.writeCases(cases, f.cases)
	}
	return f.measure(benchfabric.Budget(f.quick), cases)
}
