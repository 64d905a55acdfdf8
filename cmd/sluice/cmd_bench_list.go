package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	benchlist "github.com/sluice-storage/sluice/bench/list"
	"github.com/sluice-storage/sluice/client"
)

// listFlags are those of bench list.
type listFlags struct {
	benchFlags
	providers        []string
	figures, explain bool
}

func newBenchList() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Measure files in pieces: one request for each, lists, vectors, allocation hints",
		Long: `Starts a cluster of four I/O servers in memory and moves pieces of files, by each
provider that works here:

  tiles of a picture on 2 x 2 displays of 1024 x 768 elements, of 24 bytes, and of 64 bytes with the
  whole picture in memory: a request for each row, lists of rows, vectors, vectors with the picture
  as an allocation hint, and in memory that servers reach by themselves;

  records of 47008 bytes of four ranks that take turns in one file (ior-hard of IO500), against a
  file for each rank (ior-easy).

requests is how many requests to I/O servers one tile, or one call of a rank, takes.`,
		Example: `  sluice bench list --quick
  sluice bench list --figures --markdown docs/figures/parallel.md
  sluice bench list --cases 'tile-read-.*' --providers shm --explain`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.benchList()
		},
	}
	f.add(cmd)
	addProviders(cmd, &f.providers, listProviders())
	f.addCases()
	cmd.Flags().BoolVar(&f.figures, "figures", false,
		"print what is promised, beside what was measured")
	cmd.Flags().BoolVar(&f.explain, "explain", false,
		"tell of each way which server got how many requests of how many pieces, and why so")
	return cmd
}

func listProviders() []string { return []string{plainProvider, shmProvider, verbsProvider} }

// benchList starts a cluster in memory, and a client for each provider.
func (f *listFlags) benchList() (err error) {
	names, err := f.chooseProviders(f.providers, listProviders())
	if err != nil {
		return err
	}
	b := &benchlist.Bench{}
	if f.list {
		for _, name := range names {
			b.By = append(b.By, benchlist.By{Provider: name})
		}
		return f.writeCases(b.Cases(), f.cases)
	}
	dir, remove, err := tempIn("")
	if err != nil {
		return err
	}
	defer remove()
	ctx := f.cmd.Context()
	cluster := filepath.Join(dir, "cluster")
	up, url, err := startBenchUp(ctx, cluster, []string{"up", "--mem", "--dir", cluster, "--listen",
		"127.0.0.1:0", "--iods", "4"})
	if err != nil {
		return err
	}
	defer stopChild(up)
	for _, name := range names {
		conn, err := f.dialOnly(ctx, cluster, url, name)
		if err != nil {
			return err
		}
		defer conn.close()
		b.By = append(b.By, benchlist.By{Provider: name, FS: conn.fs})
	}
	defer func() { err = errors.Join(err, b.Close(context.WithoutCancel(ctx))) }()
	if f.explain {
		b.Explain = func(text string) { fmt.Fprint(f.cmd.ErrOrStderr(), text) }
	}
	budget := f.budget()
	budget.All = len(f.cases) > 0
	rows, figures, err := f.run(budget, b.Cases(), f.cases, benchlist.Promises(names))
	if err != nil {
		return err
	}
	return f.report(rows, figures, f.figures)
}

// dialOnly is a client that reaches servers by one provider; tcp is what addresses are of.
func (f *listFlags) dialOnly(ctx context.Context, dir, url, provider string) (*connection, error) {
	list := provider
	if provider != plainProvider {
		list += "," + plainProvider
	}
	c, err := openCluster(dir)
	if err != nil {
		return nil, err
	}
	by := (&providersFlag{list: list}).within(c)
	return dialBy(ctx, url, by, client.Options{})
}
