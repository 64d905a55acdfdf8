package logstore

import (
	"bytes"
	"context"
	"testing"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// A superblock from a disk that lies is refused or makes sense; nothing is computed with nonsense.
func FuzzSuper(f *testing.F) {
	b := make([]byte, blockBytes)
	(&super{members: 1, logBytes: 1 << 20, clusters: 100, slots: 1024}).encode(b)
	f.Add(b[:superBytes])
	f.Add(make([]byte, superBytes))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := make([]byte, blockBytes)
		copy(b, raw)
		s, err := decodeSuper(b)
		if err != nil {
			return
		}
		if g := s.geometry(); g.dataAt <= g.tableAt[1] || g.batchBytesMax() >= g.logBytes {
			t.Fatalf("accepted %+v", s)
		}
		again := make([]byte, blockBytes)
		s.encode(again)
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
		if _, err := decodeRecord(r.append(nil), &g, &again); err != nil || again.size != r.size {
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

// Whatever stands in the log and in the index: opening ends, with a store or with an error.
func FuzzOpen(f *testing.F) {
	opt := Options{LogBytes: logBytesMin, PendingBytes: 1 << 20, Logger: quiet()}
	dev := device.NewMemory("seed", 2<<20)
	opt.Devices = []device.Device{dev}
	if _, err := Create(opt); err != nil {
		f.Fatal(err)
	}
	s, err := Open(opt)
	if err != nil {
		f.Fatal(err)
	}
	put(f, s, faultID, 100, bytes.Repeat([]byte{1}, 70_000), stripe.Durable)
	put(f, s, faultID, 100, bytes.Repeat([]byte{2}, 9000), stripe.Durable)
	s.members[0].abandon()
	content := bytes.Clone(dev.Bytes())
	f.Add(uint32(70), []byte{1})
	f.Add(uint32(logAt), []byte{1, 2, 3})
	f.Add(uint32(logAt+60), []byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, at uint32, with []byte) {
		b := bytes.Clone(content)
		copy(b[int(at)%len(b):], with)
		o := opt
		o.Devices = []device.Device{device.NewMemoryOf("fuzzed", b)}
		s, err := Open(o)
		if err != nil {
			return
		}
		_ = s.List(context.Background(), func(in stripe.Info) bool {
			_, _ = get(s, in.ID, 0, int(min(in.Size, 200_000)))
			return true
		})
		s.members[0].abandon()
	})
}
