package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/supervise"
)

// downMax is how long a cluster may take to stop: whoever runs it insists after stopMax.
const downMax = stopMax + 20*time.Second

func newDown() *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a cluster: unmount it, then stop its servers",
		Long: `Stops the cluster in a folder in order: its mount first, then its servers, which write
what they have to their disks. Data stays, unless the cluster keeps it in memory. A cluster that is
not running is fine.`,
		Example: "  sluice down\n  sluice down --dir ./c",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := openCluster(dir)
			if err != nil {
				return err
			}
			stopped, err := c.down(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, downInfo{Dir: c.dir, Stopped: stopped, DataLost: stopped && c.cfg.Mem})
			}
			text := "The cluster in " + c.dir + " is not running."
			again := "start it again with: " + os.Args[0] + " up --dir " + dir
			switch {
			case stopped && c.cfg.Mem:
				text = "The cluster in " + c.dir + " is down. Its data was in memory and is gone; " + again +
					"   It will be empty."
			case stopped:
				text = "The cluster in " + c.dir + " is down. Its data stays; " + again
			}
			fmt.Fprintln(cmd.OutOrStdout(), text)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	addJSON(cmd, &asJSON, downInfo{})
	return cmd
}

// downInfo is what `sluice down --json` prints.
type downInfo struct {
	Dir      string `json:"dir"`
	Stopped  bool   `json:"stopped"`   // it was running
	DataLost bool   `json:"data_lost"` // it was in memory
}

// down asks the supervising process to stop and waits until it is gone.
func (c *cluster) down(ctx context.Context) (stopped bool, err error) {
	held, err := supervise.Held(c.lockFile())
	if err != nil || !held {
		return false, err
	}
	state, err := supervise.ReadState(c.stateFile())
	if err != nil {
		return false, hint(err, "It is starting this moment: try again in a second")
	}
	err = syscall.Kill(state.PID, syscall.SIGTERM)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, downMax)
	defer cancel()
	for {
		if held, err := supervise.Held(c.lockFile()); err != nil || !held {
			return err == nil, err
		}
		select {
		case <-ctx.Done():
			return false, hint(errs.Newf(errs.TimedOut, "down", c.dir, "process %d goes on", state.PID),
				"See its output in %s; end it with: kill -9 %d", c.logFile("up"), state.PID)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
