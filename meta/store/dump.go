package store

import (
	"context"
	"encoding/binary"
	"io"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/dump"
)

// dumpBytes is how many bytes of records make a page full: with the largest record behind them they
// stay below meta.DumpPageMax.
const dumpBytes = 512 << 10

// Dump implements meta.Upkeep. The page that ends the view may be asked for once more, because its
// answer can be lost: the view is let go of when another one needs its place, or later.
func (s *Store) Dump(_ context.Context, c meta.Caller, id uint64, after []byte) (
	meta.DumpPage, error) {

	var p meta.DumpPage
	err := s.look(func(t *txn) error { return t.mayMaintain(&c.Cred) })
	if err == nil && (id == 0 || len(after) > meta.DumpKeyMax) {
		err = errs.Newf(errs.Invalid, "meta.view", "", "view %d, key of %d bytes", id, len(after))
	}
	if err != nil {
		return p, errs.Wrap("meta.Dump", "", err)
	}
	v, err := s.upkeep.take(id, len(after) == 0, s.kv.Snapshot)
	if err != nil {
		return p, errs.Wrap("meta.Dump", "", err)
	}
	p, err = dumpPage(v.snap, after)
	s.upkeep.put(id, v, err == nil && p.End)
	return p, errs.Wrap("meta.Dump", "", err)
}

// dumpPage reads the records behind a key.
func dumpPage(snap kv.Snapshot, after []byte) (meta.DumpPage, error) {
	p := meta.DumpPage{End: true, Version: uint64(snap.Version())}
	start := append(append([]byte(nil), after...), 0)
	err := snap.Scan(start, nil, func(key, value []byte, _ kv.Version) bool {
		r := dump.Record{Key: key, Value: value}
		if len(p.Records) > 0 && len(p.Records)+r.Bytes() > dumpBytes {
			p.End = false
			return false
		}
		p.Records = r.Append(p.Records)
		p.Last = append(p.Last[:0], key...)
		p.Count++
		return true
	})
	return p, err
}

// DumpSnapshot writes all records of a store that nobody serves.
func DumpSnapshot(snap kv.Snapshot, to io.Writer, made int64) (records uint64, err error) {
	value, _, err := snap.Get([]byte(keyFormat))
	if err != nil {
		return 0, errs.Wrap("meta.Dump", "", err)
	}
	h, err := DumpHeader(value, uint64(snap.Version()), made)
	if err != nil {
		return 0, err
	}
	w, err := dump.NewWriter(to, h)
	for p := (meta.DumpPage{}); err == nil && !p.End; {
		if p, err = dumpPage(snap, p.Last); err == nil {
			err = w.Write(p.Records)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return 0, errs.Wrap("meta.Dump", "", err)
	}
	return w.Count(), nil
}

// FormatKey is the key whose value DumpHeader needs. It is among the first of every dump.
const FormatKey = keyFormat

// DumpHeader makes the header of a dump of the value that FormatKey has.
func DumpHeader(value []byte, version uint64, made int64) (dump.Header, error) {
	if len(value) != 12 {
		return dump.Header{}, errs.Newf(errs.Corrupt, "meta.Dump", "",
			"the record that names the cluster has %d bytes", len(value))
	}
	return dump.Header{Format: binary.BigEndian.Uint32(value),
		Cluster: binary.BigEndian.Uint64(value[4:]), Version: version, Made: made}, nil
}
