package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	benchmeta "github.com/sluice-storage/sluice/bench/meta"
	"github.com/sluice-storage/sluice/kv/pebblekv"
)

// metaBenchFlags are the choices of bench meta.
type metaBenchFlags struct {
	benchFlags
	dir            string
	by             []string
	providers      string
	figures        bool
	profile        string
	files, handles int
	clients        int
}

func newBenchMeta() *cobra.Command {
	var f metaBenchFlags
	cmd := &cobra.Command{
		Use:   "meta",
		Short: "Measure names: create, stat, list, rename, remove; against pebble alone",
		Long: `Starts a cluster with its data in a folder of its own and measures what names cost: by
requests to the metadata service, and by the client library as programs use it; one and many at
once, in one directory and in many, synced and not. What changes something is held against pebble
alone, which writes the same transactions in this process in the same run.

Beside each rate stand the processor time of client, service and I/O servers, and the requests to
each, for one operation. --clients N measures something else: what so many clients cost the service
that keep their sessions and do nothing, in memory and in processor time. Cases whose names begin
with big- need many files and minutes; they are measured only where --cases or --figures asks for
them.`,
		Example: `  sluice bench meta --quick
  sluice bench meta --cases 'write-.*,stat-d32' --by client
  sluice bench meta --cases 'big-.*' --files 1000000
  sluice bench meta --figures --files 100000 --handles 10000
  sluice bench meta --clients 1000 --figures`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(f.profile); err != nil {
				return err
			}
			return f.benchMeta()
		},
	}
	f.add(cmd)
	f.addCases()
	addBenchDir(cmd, &f.dir)
	flags := cmd.Flags()
	flags.StringSliceVar(&f.by, "by", nil, "only these `NAMES` of "+benchmeta.Service+","+
		benchmeta.Client)
	flags.StringVar(&f.providers, "providers", plainProvider,
		"how the cluster is reached: `NAMES` of what this host has, the best is taken")
	flags.BoolVar(&f.figures, "figures", false,
		"measure and print what is promised, beside what is promised")
	flags.IntVar(&f.files, "files", 1000000, "files of the cases big-directory and big-bytes")
	flags.IntVar(&f.handles, "handles", 100000, "handles of the case big-handles")
	flags.IntVar(&f.clients, "clients", 0, "measure only what this many idle clients cost the service")
	flags.StringVar(&f.profile, "profile", "", "write a processor profile of this process into `FILE`")
	return cmd
}

func (f *metaBenchFlags) check(files ...string) error {
	for _, name := range f.by {
		if name != benchmeta.Service && name != benchmeta.Client {
			return refuse("bench meta is not done by "+name, "Choose from: "+
				strings.Join([]string{benchmeta.Service, benchmeta.Client}, ","))
		}
	}
	if f.clients < 0 || f.clients > boundMeta().serve.MaxConns-crowdSpare {
		return refuse(fmt.Sprintf("--clients %d", f.clients), fmt.Sprintf("A metadata service takes %d "+
			"connections: choose up to %d", boundMeta().serve.MaxConns,
			boundMeta().serve.MaxConns-crowdSpare))
	}
	if f.files < 10 || f.handles < 3 {
		return refuse("--files or --handles is too small", "Choose at least 10 files and 3 handles")
	}
	return f.benchFlags.check(files...)
}

// patterns choose the cases: those of figures, those that were named, or all that are not big.
func (f *metaBenchFlags) patterns() []string {
	switch {
	case f.clients > 0:
		return benchmeta.ClientFigureCases()
	case f.figures:
		return benchmeta.FigureCases()
	}
	return f.cases
}

func (f *metaBenchFlags) benchMeta() (err error) {
	b := &benchmeta.Bench{By: f.by, Quick: f.quick && len(f.patterns()) == 0, Files: f.files,
		Handles: f.handles, Clients: f.clients}
	cases := b.Cases()
	if f.clients > 0 {
		cases = b.ClientCases()
	} else if f.list || len(f.patterns()) > 0 {
		cases = append(cases, b.BigCases()...)
	}
	if f.list {
		return f.writeCases(cases, f.patterns())
	}
	dir, remove, err := tempIn(f.dir)
	if err != nil {
		return err
	}
	defer remove()
	var site *metaSite
	b.Start = func(ctx context.Context) (*benchmeta.Site, error) {
		// The children end with the command, whatever becomes of the measurement.
		site, err = startMetaSite(f.cmd.Context(), filepath.Join(dir, "cluster"),
			&providersFlag{list: f.providers})
		if err != nil {
			return nil, err
		}
		return site.site()
	}
	b.OpenBare = func() (benchmeta.Bare, error) {
		sizes := boundMeta().kv
		sizes.Dir = filepath.Join(dir, "bare")
		return pebblekv.OpenBare(sizes)
	}
	done, err := profile(f.profile)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, b.Close(), done())
		if site != nil {
			err = errors.Join(err, site.stop())
		}
	}()
	return f.measureMeta(b, cases)
}

func (f *metaBenchFlags) measureMeta(b *benchmeta.Bench, cases []bench.Case) error {
	budget := benchmeta.Budget(f.quick)
	budget.All = len(f.patterns()) > 0
	promises := benchmeta.Promises()
	if f.clients > 0 {
		promises = b.ClientPromises()
	}
	rows, figures, err := f.run(budget, cases, f.patterns(), promises)
	if err != nil {
		return err
	}
	return f.report(rows, figures, f.figures)
}
