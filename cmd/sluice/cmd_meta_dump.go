package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/dump"
	"github.com/sluice-storage/sluice/meta/store"
)

func newMetaDump() *cobra.Command {
	var f urlFlag
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "dump FILE",
		Short: "Back up the metadata of a cluster, also while it runs",
		Long: `Writes all metadata as of one moment to a file, or to standard output if FILE is -. Clients
go on meanwhile. The file has a form of its own, with checksums, and can be restored with sluice
meta load. It holds names, attributes and where data lies, not the data.

The file gets its name when it is complete and on disk. With --offline the metadata of a cluster
that is down are read from its folder.`,
		Example: "  sluice meta dump backup-$(date +%F)\n  sluice meta dump - | zstd > backup.zst",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source := func(w io.Writer) (uint64, error) { return dumpRunning(cmd, &f, w) }
			if cmd.Flags().Changed("offline") {
				source = func(w io.Writer) (uint64, error) { return dumpOffline(dir, w) }
			}
			if args[0] == "-" {
				_, err := source(cmd.OutOrStdout())
				return err
			}
			n, err := writeWhole(args[0], source)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, dumped{File: args[0], Records: n})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d records\n", args[0], n)
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&dir, "offline", "", "read the folder of this cluster, which must be down")
	addJSON(cmd, &asJSON, dumped{})
	return cmd
}

// dumped is what `sluice meta dump --json` prints, unless the dump itself goes there.
type dumped struct {
	File    string `json:"file"`
	Records uint64 `json:"records"`
}

// writeWhole writes a file that gets its name when it is complete and on disk.
func writeWhole(name string, fill func(io.Writer) (uint64, error)) (n uint64, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".part-")
	if err != nil {
		return 0, err
	}
	n, err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err == nil {
		return n, syncDir(filepath.Dir(name))
	}
	return 0, errors.Join(err, os.Remove(f.Name()))
}

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func dumpOffline(dir string, to io.Writer) (uint64, error) {
	c, err := openCluster(dir)
	if err != nil {
		return 0, err
	}
	db, err := pebblekv.Open(pebblekv.Options{Dir: c.metaDir(), Log: newLogger()})
	if err != nil {
		return 0, metaAdvice(err, dir)
	}
	snap := db.Snapshot()
	n, err := store.DumpSnapshot(snap, to, time.Now().UnixNano())
	return n, errors.Join(err, snap.Close(), db.Close())
}

// dumpRunning asks the service page by page. A view that the service has forgotten, by a restart,
// cannot be gone on with: then the dump fails, and can be begun again.
func dumpRunning(cmd *cobra.Command, f *urlFlag, to io.Writer) (uint64, error) {
	conn, err := dialMeta(cmd.Context(), f.base(), &f.by)
	if err != nil {
		return 0, f.by.unreached(err, f.base(), "Is the cluster running at "+f.base()+"? Of one that is "+
			"down: sluice meta dump --offline DIR")
	}
	defer conn.close()
	line := newStatusLine(cmd, false)
	defer line.end()
	n, err := dumpPages(cmd.Context(), conn.meta, to, func(n uint64) { line.show("%d records", n) })
	if errs.KindOf(err) == errs.Stale {
		err = hint(err, "The metadata service was restarted meanwhile: run it again")
	}
	return n, err
}

func dumpPages(ctx context.Context, service meta.Upkeep, to io.Writer, progress func(uint64)) (
	uint64, error) {

	view := 1 + rand.Uint64N(1<<63)
	var w *dump.Writer
	for page := (meta.DumpPage{}); !page.End; {
		var err error
		if page, err = service.Dump(ctx, processCaller(), view, page.Last); err != nil {
			return 0, err
		}
		if w == nil {
			if w, err = beginDump(to, &page); err != nil {
				return 0, err
			}
		}
		if err := w.Write(page.Records); err != nil {
			return 0, err
		}
		progress(w.Count())
	}
	return w.Count(), w.Close()
}

// beginDump writes the header, which the first page tells.
func beginDump(to io.Writer, page *meta.DumpPage) (*dump.Writer, error) {
	var format []byte
	_, _, err := dump.Each(page.Records, nil, func(r dump.Record) error {
		if string(r.Key) == store.FormatKey {
			format = bytes.Clone(r.Value)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	h, err := store.DumpHeader(format, page.Version, time.Now().UnixNano())
	if err != nil {
		return nil, err
	}
	return dump.NewWriter(to, h)
}
