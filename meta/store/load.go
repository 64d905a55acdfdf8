package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta/dump"
)

// loadOps and loadBytes are the size of a transaction of a load, below the limits of package kv.
const (
	loadOps   = kv.MaxOps - 4
	loadBytes = kv.MaxTxnBytes / 2
)

// LoadOptions of Load.
type LoadOptions struct {
	// Cluster is which one the dump must be of; 0: any.
	Cluster uint64

	// Progress is told how many records were stored so far. Default: nobody.
	Progress func(records uint64)

	// Report is told of contradictions between the restored records. Default: nobody.
	Report func(problem string)
}

func (o LoadOptions) withDefaults() LoadOptions {
	if o.Progress == nil {
		o.Progress = func(uint64) {}
	}
	if o.Report == nil {
		o.Report = func(string) {}
	}
	return o
}

// Load restores a dump into an engine, which must be empty. The record that makes a store of it is
// written last, synced, after the dump was read to its end and all records were compared with each
// other: what an interrupted or refused load leaves is not taken for a store, by New nor by Load.
//
// Files that were made after the dump are forgotten, their data may still be wanted: numbers that
// no file of the dump has, up to those that were not given out, are left alone by the collector;
// for later ones see numbers.skip.
//
// Contradictions that the dumped store had already are reported, and no reason to refuse it.
func Load(ctx context.Context, engine kv.Store, from io.Reader, opt LoadOptions) (uint64, error) {
	l := &loading{ctx: ctx, kv: engine, opt: opt.withDefaults()}
	err := l.run(from)
	return l.count, errs.Wrap("meta.Load", "", err)
}

// loading is a load under way.
type loading struct {
	ctx    context.Context
	kv     kv.Store
	opt    LoadOptions
	txn    kv.Txn
	format []byte
	count  uint64
	lost   forgotten // numbers that files made after the dump may have
	older  forgotten // those that were forgotten before it
}

func (l *loading) run(from io.Reader) error {
	r, err := dump.NewReader(from)
	if err != nil {
		return err
	}
	if err := l.check(&r.Header); err != nil {
		return err
	}
	for err == nil {
		err = r.Next(l.add)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if err := l.commit(); err != nil {
		return err
	}
	want := binary.BigEndian.AppendUint32(nil, r.Format)
	if want = binary.BigEndian.AppendUint64(want, r.Cluster); !bytes.Equal(l.format, want) {
		return errs.Newf(errs.Corrupt, "meta.Load", "", "the dump's header is of another cluster")
	}
	snap := l.kv.Snapshot()
	err = l.verify(snap)
	if err = errors.Join(err, snap.Close()); err != nil {
		return err
	}
	l.txn = kv.Txn{Sync: true, Puts: []kv.Put{{Key: []byte(keyFormat), Value: l.format}}}
	if l.older.from < l.older.to {
		l.lost = forgotten{min(l.lost.from, l.older.from), max(l.lost.to, l.older.to)}
	}
	if l.lost.from < l.lost.to {
		l.txn.Puts = append(l.txn.Puts, kv.Put{Key: []byte(keyForgotten), Value: l.lost.encode()})
	}
	_, err = l.kv.Commit(l.ctx, &l.txn)
	return err
}

// check refuses what cannot be restored here.
func (l *loading) check(h *dump.Header) error {
	switch {
	case h.Format != Format:
		return errs.Newf(errs.Version, "meta.Load", "",
			"the dump is of a store of format %d, this build needs %d", h.Format, Format)
	case l.opt.Cluster != 0 && l.opt.Cluster != h.Cluster:
		return errs.Newf(errs.Invalid, "meta.Load", "", "the dump is of cluster %x, this is %x",
			h.Cluster, l.opt.Cluster)
	}
	snap := l.kv.Snapshot()
	defer snap.Close()
	some := false
	err := snap.Scan(nil, nil, func([]byte, []byte, kv.Version) bool {
		some = true
		return false
	})
	if err == nil && some {
		err = errs.Newf(errs.Exists, "meta.Load", "", "the store is not empty")
	}
	return err
}

func (l *loading) add(r dump.Record) error {
	l.count++
	switch {
	case string(r.Key) == keyFormat:
		l.format = slices.Clone(r.Value)
		return nil
	case string(r.Key) == keyForgotten:
		l.older, _ = decodeForgotten(r.Value)
	case string(r.Key) == keyNumbers && len(r.Value) == 8:
		l.lost.to = max(l.lost.to, binary.BigEndian.Uint64(r.Value))
	case r.Key[0] == kindInode && len(r.Key) == 9:
		l.lost.from = number(r.Key, 0) + 1 // they come in order
	}
	full := len(l.txn.Puts) >= loadOps || l.txn.Bytes()+len(r.Key)+len(r.Value) > loadBytes
	if full && len(l.txn.Puts) > 0 {
		if err := l.commit(); err != nil {
			return err
		}
	}
	l.txn.Puts = append(l.txn.Puts, kv.Put{Key: slices.Clone(r.Key), Value: slices.Clone(r.Value)})
	return nil
}

func (l *loading) commit() error {
	if len(l.txn.Puts) == 0 {
		return nil
	}
	_, err := l.kv.Commit(l.ctx, &l.txn)
	l.txn.Puts = l.txn.Puts[:0]
	l.opt.Progress(l.count)
	return err
}

// verify reads back as many records as were stored, and compares them with each other.
func (l *loading) verify(snap kv.Snapshot) error {
	stored := uint64(1) // the one that is written last
	err := snap.Scan(nil, nil, func([]byte, []byte, kv.Version) bool {
		stored++
		return true
	})
	if err == nil && stored != l.count {
		err = errs.Newf(errs.IO, "meta.Load", "", "%d records are there of %d", stored, l.count)
	}
	if err == nil {
		err = VerifySnapshot(snap, l.opt.Report)
	}
	return err
}
