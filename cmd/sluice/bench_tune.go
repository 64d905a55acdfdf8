package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/msg/tune"
)

// benchTune measures where one protocol of package msg gives way to the next, on this machine.
func (f *benchFlags) benchTune(cmd *cobra.Command, note func(string)) (err error) {
	names, err := chooseNet(f.providers, note)
	if err != nil {
		return err
	}
	if f.store.dir != "" {
		if _, err := openCluster(f.store.dir); err != nil {
			return err
		}
	}
	p, err := startPeer(cmd.Context())
	if err != nil {
		return err
	}
	defer p.stop()
	n := &bench.Net{Providers: names, Open: openNet(), Control: p.info.Control}
	defer func() { err = errors.Join(err, n.Close()) }()
	opts := tune.Options{Calls: 201}
	if f.quick {
		opts.Calls = 51
	}
	results, err := n.Tune(cmd.Context(), opts)
	if err != nil {
		return err
	}
	if err := f.keepTuning(cmd, results); err != nil {
		return err
	}
	if f.json {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(results)
	}
	return bench.WriteTuning(cmd.OutOrStdout(), results)
}

// keepTuning writes the limits where that was asked for.
func (f *benchFlags) keepTuning(cmd *cobra.Command, results []bench.TuneResult) error {
	t := bench.Tuning{
		Format: 1, Made: time.Now().UTC().Truncate(time.Second), Machine: bench.Machine(),
		Limits: map[string]msg.Limits{},
	}
	for _, r := range results {
		t.Limits[r.Provider] = r.Limits
	}
	files := []string{f.save}
	if f.store.dir != "" {
		files = append(files, filepath.Join(f.store.dir, bench.TuningFile))
	}
	for _, name := range files {
		if name == "" {
			continue
		}
		if err := t.Save(name); err != nil {
			return err
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "sluice: bench tune: written: "+name)
	}
	return nil
}

// loadTuning is what bench tune has left in a cluster's folder, for msg.Options.Limits; nil if it
// was never run. A file that makes no sense is an error, which names it.
func loadTuning(dir string) (map[string]msg.Limits, error) {
	limits, err := bench.LoadTuning(filepath.Join(dir, bench.TuningFile))
	if err != nil {
		return nil, hint(err, "Repair the file, make it anew with: sluice bench tune --dir %s   "+
			"or remove it", dir)
	}
	return limits, nil
}
