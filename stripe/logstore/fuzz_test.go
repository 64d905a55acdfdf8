package logstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/wire"
)

// A superblock from a disk that lies is refused or makes sense; nothing is computed with nonsense.
func FuzzSuper(f *testing.F) {
	b := make([]byte, blockBytes)
	(&super{members: 1, logBytes: 1 << 20, clusters: 100, slots: 1024, unit: 1 << 20}).encode(b)
	f.Add(b[:superBytes])
	f.Add(make([]byte, superBytes))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := make([]byte, blockBytes)
		copy(b, raw)
		binary.LittleEndian.PutUint64(b, superMagic)
		binary.LittleEndian.PutUint32(b[12:], superCRC(b)) // a disk that lies well
		s, err := decodeSuper(b)
		if err != nil {
			return
		}
		if g := s.geometry(); g.dataAt <= g.tableAt[1] || g.batchBytesMax() >= g.logBytes {
			t.Fatalf("accepted %+v", s)
		}
		again := make([]byte, blockBytes)
		s.encode(again)
		s.format = formatVersion // older ones are read, and written anew
		if got, err := decodeSuper(again); err != nil || *got != *s {
			t.Fatalf("%+v became %+v: %v", s, got, err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	g, err := layOut(16<<20, 1<<20)
	if err != nil {
		f.Fatal(err)
	}
	r := record{kind: kindWrite, id: stripe.ObjectID{File: 1}, size: 5,
		blocks: []blockPlace{{block: 3}}, clusters: []clusterPlace{{index: 2, cluster: 1, mask: 3}}}
	f.Add(r.append(nil))
	r.requests = []wire.Stamp{{Session: 1, Slot: 2, Seq: 3}, {Session: 4, Slot: 5, Seq: 6}}
	f.Add(r.append(nil))
	f.Add(r.append(nil)[:r.bytes()-1])
	r = record{kind: kindReserve, id: stripe.ObjectID{File: 1}, size: 5,
		clusters: []clusterPlace{{index: 2, cluster: 1, mask: 3, fresh: true}}}
	f.Add(r.append(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var r record
		rest, err := decodeRecord(raw, &g, &r)
		if err != nil {
			return
		}
		if n := len(raw) - len(rest); n != r.bytes() {
			t.Fatalf("took %d bytes of a record of %d", n, r.bytes())
		}
		var again record
		if _, err := decodeRecord(r.append(nil), &g, &again); err != nil || again.size != r.size ||
			!slices.Equal(again.requests, r.requests) || len(r.requests) > stripe.StampsMax {
			t.Fatalf("encoded again it is %+v: %v", again, err)
		}
	})
}

func FuzzIdentity(f *testing.F) {
	f.Add([]byte(`{"magic":"sluice stripe store","format":2,"engine":"logstore","store_id":"00"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if id, err := parseIdentity(raw); err == nil && id.Engine != engineName {
			t.Fatalf("accepted %+v", id)
		}
	})
}

// reseal makes all checksums right again, so that what was changed is believed.
func (d *damaged) reseal(b []byte) {
	for i := range 2 {
		p := b[i*blockBytes:]
		binary.LittleEndian.PutUint32(p[12:], superCRC(p))
	}
	for i, pos := range d.batches {
		p := b[d.m.logOff(pos):][:blockBytes]
		crc := crc32.Checksum(p[8:], castagnoli) // all headers here are one block
		binary.LittleEndian.PutUint32(p[4:], crc)
		if i+1 < len(d.batches) {
			binary.LittleEndian.PutUint32(b[d.m.logOff(d.batches[i+1])+32:], crc)
		}
	}
	for _, at := range d.m.g.tableAt {
		for i := range int64(d.m.g.clusters) + int64(d.m.slots.high) {
			if e := entry(b[at+i*entryBytes:][:entryBytes]); !allZero(e) {
				e.seal(i)
			}
		}
	}
}

// Whatever stands on the disk, with checksums that are right or not: opening ends, with a store or
// with an error, and so do the requests.
func FuzzOpen(f *testing.F) {
	d := newDamaged(f)
	f.Add(uint32(70), []byte{1}, false)
	f.Add(uint32(logAt), []byte{1, 2, 3}, false)
	f.Add(uint32(logAt+60), []byte{255, 255, 255, 255}, true)
	f.Add(uint32(d.m.g.tableAt[0]+36), []byte{255, 255, 255, 255}, true)
	f.Add(uint32(d.m.logOff(d.batches[1])+batchHead+72), []byte{255, 255, 255, 127}, true)
	f.Add(uint32(d.m.logOff(d.batches[0])+12), []byte{9}, true)
	f.Fuzz(func(t *testing.T, at uint32, with []byte, sealed bool) {
		b := bytes.Clone(d.content)
		copy(b[int(at)%len(b):], with)
		if sealed {
			d.reseal(b)
		}
		o := d.opt
		o.Devices = []device.Device{device.NewMemoryOf("fuzzed", b)}
		s, err := Open(o)
		if err != nil {
			return
		}
		ctx := context.Background()
		var all []stripe.Info
		err = s.List(ctx, func(in stripe.Info) bool {
			all = append(all, in)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range all {
			_, _ = get(s, in.ID, 0, int(min(in.Size, 200_000)))
			_, _ = s.Map(ctx, in.ID, 0, min(in.Size, 1<<30), 100)
			st := wire.Stamp{TruncSeq: 1 << 63}
			_ = s.WriteAt(ctx, in.ID, [][]byte{make([]byte, 70_000)}, 100, st, stripe.Volatile)
			_ = s.Truncate(ctx, in.ID, 10, st)
			_ = s.Remove(ctx, in.ID)
		}
		_, _ = s.Scrub(ctx, ScrubOptions{})
		s.members[0].abandon()
	})
}
