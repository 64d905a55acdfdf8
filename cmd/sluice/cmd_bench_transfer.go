package main

import (
	"errors"

	"github.com/spf13/cobra"

	benchtransfer "github.com/sluice-storage/sluice/bench/transfer"
)

func newBenchTransfer() *cobra.Command {
	var f caseFlags
	cmd := &cobra.Command{
		Use:   "transfer",
		Short: "Measure messages between two processes by every driver",
		Long: `Measures what sluice transfer stands on: messages from memory to memory of two processes,
by shared memory, verbs, tcp and plain sockets, by size, four at once, with the processor time of
both processes (s/GiB); and messages of 1 MiB in 16 pieces against contiguous ones of that length.`,
		Example: `  sluice bench transfer --quick
  sluice bench transfer --figures
  sluice bench transfer --cases 'write-.*' --providers shm,tcp --json > transfer.json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(f.profile); err != nil {
				return err
			}
			return f.benchTransfer()
		},
	}
	f.add(cmd, netProviders())
	return cmd
}

// benchTransfer measures package exio between this process and another one.
func (f *caseFlags) benchTransfer() (err error) {
	names, err := f.chooseProviders(f.providers, netProviders())
	if err != nil {
		return err
	}
	b := &benchtransfer.Bench{Providers: names, Open: benchOpener(nil), Quick: f.brief()}
	if f.list {
		return f.listCases(b.Cases(), benchtransfer.FigureCases())
	}
	p, err := startPeer(f.cmd.Context(), f.peerArgs()...)
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
	return f.measure(benchtransfer.Budget(f.quick, f.figures), b.Cases(),
		benchtransfer.FigureCases(), benchtransfer.Promises())
}
