package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/supervise"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta/store"
)

func newMetaLoad() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "load FILE",
		Short: "Restore the metadata of a cluster that is down from a dump",
		Long: `Restores what sluice meta dump has written, from a file or, if FILE is -, from standard
input. The cluster must be down and must have no metadata: move what is in DIR/meta aside first. A
dump that is damaged or not complete is refused, and leaves nothing behind.

What was made, changed or removed after the dump is as it was then. Stripe objects of files that the
dump does not know stay at the I/O servers, and new files get other numbers.`,
		Example: "  sluice down --dir ./c\n  mv ./c/meta ./c/meta.old\n" +
			"  sluice meta load --dir ./c backup",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCluster(dir)
			if err != nil {
				return err
			}
			from := io.Reader(cmd.InOrStdin())
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				from = f
			}
			return loadMeta(cmd, c, bufio.NewReaderSize(from, 1<<20))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	return cmd
}

// loadMeta restores into a folder beside, which takes the place of the metadata when all is there.
func loadMeta(cmd *cobra.Command, c *cluster, from io.Reader) error {
	if held, err := supervise.Held(c.lockFile()); err != nil || held {
		return errors.Join(err, refuse("the cluster in "+c.dir+" is running",
			"Stop it first, with sluice down --dir "+c.dir))
	}
	some, err := os.ReadDir(c.metaDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(some) > 0 {
		return refuse(c.metaDir()+" is not empty",
			"Move it aside: mv "+c.metaDir()+" "+c.metaDir()+".old")
	}
	fresh := c.metaDir() + ".load-" + time.Now().UTC().Format("20060102T150405.000")
	n, err := loadInto(cmd, fresh, from)
	if err == nil {
		if err = os.Remove(c.metaDir()); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = os.Rename(fresh, c.metaDir())
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := syncDir(c.dir); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(),
		"%d records are restored. Start the cluster with: sluice up --dir %s\n", n, c.dir)
	return nil
}

func loadInto(cmd *cobra.Command, dir string, from io.Reader) (n uint64, err error) {
	db, err := pebblekv.Open(pebblekv.Options{Dir: dir, Log: newLogger()})
	if err != nil {
		return 0, err
	}
	line := newStatusLine(cmd, false)
	n, err = store.Load(cmd.Context(), db, from, store.LoadOptions{
		Progress: func(n uint64) { line.show("%d records", n) },
		Report: func(problem string) {
			line.end()
			fmt.Fprintln(cmd.OutOrStdout(), "as it was dumped:", problem)
		},
	})
	line.end()
	err = errors.Join(err, db.Close())
	switch {
	case errors.Is(err, context.Canceled):
	case errs.KindOf(err) == errs.Corrupt:
		err = hint(err, "The dump is damaged or not complete. Nothing was changed: take another one")
	}
	return n, err
}
