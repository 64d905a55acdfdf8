package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench"
	benchstore "github.com/sluice-storage/sluice/bench/store"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/logstore"
	"github.com/sluice-storage/sluice/wire"
)

// storeBenchFlags are the choices of bench store.
type storeBenchFlags struct {
	benchFlags
	dir, device, overwrite string
	asked                  bool
}

func newBenchStore() *cobra.Command {
	var f storeBenchFlags
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Measure the local store of an I/O server against plain io_uring",
		Long: `Measures the local store of an I/O server against plain io_uring with direct I/O on the
same file system or device: sizes, depths, durability, members, checksums, write amplification, and
how long a restart with a full log takes.`,
		Example: `  sluice bench store --quick
  sluice bench store --asked --dir /srv
  sluice bench store --device /dev/sdx --overwrite /dev/sdx`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.benchStore()
		},
	}
	f.add(cmd)
	addBenchDir(cmd, &f.dir)
	cmd.Flags().StringVar(&f.device, "device", "",
		"a block `DEVICE` in place of a folder; what is on it is lost, see --overwrite")
	cmd.Flags().StringVar(&f.overwrite, "overwrite", "",
		"confirms --device: the same `DEVICE` once more")
	cmd.Flags().BoolVar(&f.asked, "asked", false,
		"only what the project promises, each with its limit and whether it is kept")
	return cmd
}

func addBenchDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", ".", "the `FOLDER` in which a temporary one is made")
}

func (f *storeBenchFlags) check() error {
	switch {
	case f.cmd.Flags().Changed("dir") && f.device != "":
		return refuse("--dir and --device are given", "Choose one of them")
	case f.device != f.overwrite:
		return refuse("bench store --device "+f.device+" overwrites the device",
			"If it holds nothing of worth, add: --overwrite "+f.device)
	case f.device != "" && !isBlockDevice(f.device):
		return refuse(f.device+" is no block device", "Use --dir for a folder")
	}
	return f.benchFlags.check()
}

// storeBench is where a bench store works and how large it is.
type storeBench struct {
	dir, device string
	bytes, log  int64
	made        int
}

// benchStore measures the local store beside plain io_uring.
func (f *storeBenchFlags) benchStore() (err error) {
	s := &storeBench{device: f.device, bytes: 512 << 20, log: 128 << 20}
	switch {
	case f.within > 0 && f.within < 15*time.Second: // filling takes time too
		s.bytes, s.log = 64<<20, 4<<20
	case f.quick:
		s.bytes, s.log = 256<<20, 16<<20
	}
	dir, remove, err := tempIn(f.dir)
	if err != nil {
		return err
	}
	defer remove()
	s.dir = dir
	b := &benchstore.Bench{Open: s.open, Restart: s.restart, Bytes: s.bytes, LogBytes: s.log,
		Quick: f.quick, Asked: f.asked,
		Raw: benchstore.RawTarget{Path: filepath.Join(s.dir, "raw")}}
	if s.device != "" {
		if b.Raw, err = s.rawPart(); err != nil {
			return err
		}
	} else {
		b.Kinds = []benchstore.Kind{{Members: 1, Unsummed: true}, {Members: 2}, {Members: 4},
			{Members: 8}}
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	rows, figures, err := f.run(benchstore.Budget(f.quick), b.Cases(), nil, benchstore.Promises())
	if err == nil && f.asked && !f.json {
		return bench.WriteFigures(f.cmd.OutOrStdout(), figures)
	}
	if err != nil {
		return err
	}
	return f.print(rows)
}

// rawPart is the end of the device, which a store of this size does not come to use.
func (s *storeBench) rawPart() (benchstore.RawTarget, error) {
	f, err := os.Open(s.device)
	if err != nil {
		return benchstore.RawTarget{}, err
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err != nil {
		return benchstore.RawTarget{}, err
	}
	if need := 4*s.bytes + s.log; size < need {
		return benchstore.RawTarget{}, errs.Newf(errs.Invalid, "bench store", s.device,
			"%d bytes; at least %d are needed", size, need)
	}
	return benchstore.RawTarget{Path: s.device, Off: (size - s.bytes) &^ (1<<20 - 1)}, nil
}

// open makes a store. Several members have smaller logs, as large as one together.
func (s *storeBench) open(kind benchstore.Kind) (stripe.Engine, error) {
	s.made++
	p := logstore.PathOptions{LogBytes: max(s.log/int64(kind.Members), 16<<20),
		Bytes: 4*s.bytes/int64(kind.Members) + s.log, Unsummed: kind.Unsummed, Force: true,
		Logger: newLogger()}
	for i := range kind.Members {
		p.Paths = append(p.Paths, filepath.Join(s.dir, fmt.Sprintf("store%d-%d", s.made, i)))
	}
	if s.device != "" {
		p.Paths = []string{s.device}
	}
	if _, err := logstore.Init(p); err != nil {
		return nil, err
	}
	return logstore.OpenPaths(p)
}

// restart fills the log of a store of the default size with blocks that are all different, lets go
// of it as a crash does, and opens it. The figure is of the worst case: a store makes a checkpoint
// when half of its log is full.
func (s *storeBench) restart(ctx context.Context) (time.Duration, int64, error) {
	dir := filepath.Join(s.dir, "restart")
	defer os.RemoveAll(dir)
	p := logstore.PathOptions{Paths: []string{dir}, Make: true, Bytes: 2 << 30, Logger: newLogger()}
	filling := p
	filling.PendingBytes, filling.LateCheckpoints = 256<<20, true
	store, err := logstore.OpenPaths(filling)
	if err != nil {
		return 0, 0, err
	}
	used, err := fillLog(ctx, store)
	store.Abandon()
	if err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	store, err = logstore.OpenPaths(p)
	took := time.Since(begin)
	if err != nil {
		return 0, 0, err
	}
	return took, used, store.Close()
}

// fillLog writes until the log is nearly full.
func fillLog(ctx context.Context, store *logstore.Store) (used int64, err error) {
	buf := [][]byte{make([]byte, 32<<10)}
	for i := int64(0); ; i++ {
		st := store.Stats()
		if st.Checkpoints > 1 { // the first one is that of opening
			return 0, errs.Newf(errs.IO, "bench store", "restart", "the log was emptied while it filled")
		}
		if st.LogUsed > st.LogBytes-6<<20 {
			return st.LogUsed, nil
		}
		id := stripe.ObjectID{File: 1 + uint64(i%64), Gen: 1}
		err := store.WriteAt(ctx, id, buf, i/64*int64(len(buf[0])), wire.Stamp{}, stripe.Volatile)
		if err != nil {
			return 0, err
		}
	}
}
