package main

import (
	"errors"
	"os"
	"runtime/pprof"
	"strings"

	"github.com/spf13/cobra"

	benchnet "github.com/sluice-storage/sluice/bench/net"
)

func newBenchNet() *cobra.Command {
	var f caseFlags
	var ladder, security bool
	cmd := &cobra.Command{
		Use:   "net [--ladder [ADDRESS]]",
		Short: "Measure requests with their data between two processes",
		Long: `Measures requests with their data between two processes, over tcp, shared memory and verbs:
round trips, many small and few large requests, memory in pieces, and what each layer adds; against
plain Go TCP, unix sockets and a copy through shared memory.

--security measures something else: what it costs over tcp that peers prove who they are, by the
same requests in the clear, as authenticated plaintext and under TLS, in turns, with their ratios.

--ladder measures nothing: it shows by which provider a server at ADDRESS, or the bench's own, is
reached, and why not by a better one.`,
		Example: `  sluice bench net --quick
  sluice bench net --figures
  sluice bench net --json > net.json
  sluice bench net --cases 'rtt-8,bulk-.*' --providers shm
  sluice bench net --security --markdown security.md
  sluice bench net --ladder 127.0.0.1:9400`,
		Args: func(cmd *cobra.Command, args []string) error {
			if ladder {
				return cobra.MaximumNArgs(1)(cmd, args)
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if ladder {
				return f.benchLadder(strings.Join(args, ""))
			}
			if err := f.check(f.profile); err != nil {
				return err
			}
			if security {
				return f.benchSecurity()
			}
			return f.benchNet()
		},
	}
	f.add(cmd, netProviders())
	cmd.Flags().BoolVar(&ladder, "ladder", false,
		"show how a server at ADDRESS, or the bench's own, is reached, and why not better")
	cmd.Flags().BoolVar(&security, "security", false,
		"compare tcp in the clear, as authenticated plaintext, and under TLS")
	cmd.MarkFlagsMutuallyExclusive("ladder", "security")
	return cmd
}

// netProviders are those that bench net knows.
func netProviders() []string { return []string{plainProvider, shmProvider, verbsProvider} }

// benchNet measures package msg between this process and another one.
func (f *caseFlags) benchNet() (err error) {
	names, err := f.chooseProviders(f.providers, netProviders())
	if err != nil {
		return err
	}
	b := &benchnet.Bench{Providers: names, Open: benchOpener(nil), Quick: f.brief(),
		Sweeps: f.sweeps}
	if f.list {
		return f.listCases(b.Cases(), benchnet.FigureCases())
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
	return f.measure(benchnet.Budget(f.quick, f.figures), b.Cases(), benchnet.FigureCases(),
		benchnet.Promises())
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
