package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
)

func newBench() *cobra.Command {
	var quick, asJSON bool
	cmd := &cobra.Command{
		Use:   "bench net|fs|nbd",
		Short: "Measure against what this machine can do without sluice",
		Long: `Measures and prints, next to each figure, its ceiling, measured in turns in the same run:

  net   requests and reads over the network against plain Go TCP between two processes
  fs    the client library against plain Go TCP, the mount against a FUSE file system in memory
  nbd   a block device in memory against nbdkit's memory plugin (needs fio and nbdkit)

Everything runs in processes and folders of its own; a running cluster is not touched.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"net", "fs", "nbd"},
		RunE: func(cmd *cobra.Command, args []string) error {
			b := bench.Full()
			if quick {
				b = bench.Quick()
			}
			rows, err := runBench(cmd.Context(), args[0], b)
			if err != nil {
				return err
			}
			if asJSON {
				return bench.WriteJSON(cmd.OutOrStdout(), rows)
			}
			return bench.WriteTable(cmd.OutOrStdout(), rows)
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "end within 30 seconds")
	addJSON(cmd, &asJSON)
	return cmd
}

// runBench gives the bench a folder for its sockets and files.
func runBench(ctx context.Context, name string, b bench.Budget) ([]bench.Row, error) {
	dir, err := os.MkdirTemp("", "sluice-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	switch name {
	case "net":
		return benchNet(ctx, b)
	case "fs":
		return benchFS(ctx, b, dir)
	case "nbd":
		return benchNBD(ctx, b, dir)
	}
	return nil, fmt.Errorf("no bench %q", name)
}

func runCases(ctx context.Context, b bench.Budget, cases []bench.Case) ([]bench.Row, error) {
	var rows []bench.Row
	for _, c := range cases {
		r, err := c.Run(ctx, b)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r...)
	}
	return rows, nil
}
