package main

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	benchnet "github.com/sluice-storage/sluice/bench/net"
	"github.com/sluice-storage/sluice/bench/tune"
	"github.com/sluice-storage/sluice/msg"
	measure "github.com/sluice-storage/sluice/msg/tune"
)

// tuneFlags are the choices of bench tune, which prints limits, not rows.
type tuneFlags struct {
	benchFlags
	providers []string
	dir, save string
}

func newBenchTune() *cobra.Command {
	var f tuneFlags
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Find where one protocol of requests gives way to the next on this machine",
		Long: `Measures where one protocol of requests gives way to the next on this machine: data within
the message, through a slot of the server's, or moved by the server. --dir keeps the limits for a
cluster, whose servers and mounts take them when they start.`,
		Example: `  sluice bench tune --dir .sluice
  sluice bench tune --quick --save limits.json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(f.save); err != nil {
				return err
			}
			return f.benchTune()
		},
	}
	f.cmd = cmd
	cmd.Flags().BoolVar(&f.quick, "quick", false, "measure each size less often")
	addProviders(cmd, &f.providers, netProviders())
	cmd.Flags().StringVar(&f.dir, "dir", "", "the cluster's `FOLDER` that keeps the limits")
	cmd.Flags().StringVar(&f.save, "save", "", "write the limits into this `FILE`")
	addJSON(cmd, &f.json, []tune.Result{})
	return cmd
}

// benchTune measures where one protocol of package msg gives way to the next, on this machine.
func (f *tuneFlags) benchTune() (err error) {
	names, err := f.chooseProviders(f.providers, netProviders())
	if err != nil {
		return err
	}
	if f.dir != "" {
		if _, err := openCluster(f.dir); err != nil {
			return err
		}
	}
	p, err := startPeer(f.cmd.Context())
	if err != nil {
		return err
	}
	defer p.stop()
	b := &benchnet.Bench{Providers: names, Open: benchOpener(nil), Peer: p.info}
	defer func() { err = errors.Join(err, b.Close()) }()
	opts := measure.Options{Calls: 201}
	if f.quick {
		opts.Calls = 51
	}
	results, err := b.Tune(f.cmd.Context(), opts)
	if err != nil {
		return err
	}
	if err := f.keep(results); err != nil {
		return err
	}
	if f.json {
		return printJSON(f.cmd, results)
	}
	return tune.Write(f.cmd.OutOrStdout(), results)
}

// keep writes the limits where that was asked for.
func (f *tuneFlags) keep(results []tune.Result) error {
	t := tune.Tuning{
		Format: 1, Made: time.Now().UTC().Truncate(time.Second), Machine: bench.Machine(),
		Limits: map[string]msg.Limits{},
	}
	for _, r := range results {
		t.Limits[r.Provider] = r.Limits
	}
	files := []string{f.save}
	if f.dir != "" {
		files = append(files, filepath.Join(f.dir, tune.File))
	}
	for _, name := range files {
		if name == "" {
			continue
		}
		if err := t.Save(name); err != nil {
			return err
		}
		f.note("written: " + name)
	}
	return nil
}

// loadTuning is what bench tune has left in a cluster's folder, for msg.Options.Limits; nil if it
// was never run. A file that makes no sense is an error, which names it.
func loadTuning(dir string) (map[string]msg.Limits, error) {
	limits, err := tune.Load(filepath.Join(dir, tune.File))
	if err != nil {
		return nil, hint(err, "Repair the file, make it anew with: sluice bench tune --dir %s   "+
			"or remove it", dir)
	}
	return limits, nil
}
