package store_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta"
)

// BenchmarkOperations is what an operation costs beyond the transport and the engine's disk.
func BenchmarkOperations(b *testing.B) {
	s := newStore(b, memkv.New(memkv.Options{}))
	ctx := b.Context()
	info, err := s.NewSession(ctx, "bench")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Listen(ctx, meta.Listening{Session: info.ID}); err != nil {
		b.Fatal(err)
	}
	for _, leases := range []bool{false, true} {
		c := meta.Caller{Session: info.ID, Leases: leases}
		name := map[bool]string{false: "plain", true: "leases"}[leases]
		h, err := s.Create(ctx, c, meta.RootIno, name, meta.NewFile{Mode: 0o644}, meta.OpenRead)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("stat/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, err := s.GetAttr(ctx, c, h.Attr.Ino); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("find/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if _, err := s.Find(ctx, c, meta.RootIno, name); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("open-close/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				h, err := s.Open(ctx, c, h.Attr.Ino, meta.OpenRead)
				if err == nil {
					err = s.Close(ctx, c, meta.Closing{Handle: h.ID})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSmallFile is what the service does for a small file that is created, written and closed,
// with the engine: closings come as many at once as a busy client sends.
func BenchmarkSmallFile(b *testing.B) {
	engine, err := pebblekv.Open(pebblekv.Options{Dir: b.TempDir(), CacheBytes: 16 << 20,
		MemtableBytes: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	s := newStore(b, engine)
	ctx := b.Context()
	info, err := s.NewSession(ctx, "bench")
	var heard meta.Heard
	if err == nil {
		heard, err = s.Listen(ctx, meta.Listening{Session: info.ID})
	}
	if err != nil {
		b.Fatal(err)
	}
	c := meta.Caller{Session: info.ID, Leases: true}
	data := make([]byte, 4096)
	for i := range data {
		data[i] = byte(i * i >> 3)
	}
	var list []meta.Closing
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		rand.Read(c.ReqID[:])
		h, err := s.Create(ctx, c, meta.RootIno, fmt.Sprint("file", i), meta.NewFile{Mode: 0o644},
			meta.OpenWrite)
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, meta.Closing{Handle: h.ID, Dirty: true, Change: meta.Change{
			Ino: h.Attr.Ino, Size: 4096, TruncSeq: h.Attr.TruncSeq, Epoch: heard.Epoch,
			Whole: true, Data: data}})
		if len(list) == 10 {
			heard, err = s.Listen(ctx, meta.Listening{Session: info.ID, Acks: heard.Recalls})
			if err != nil {
				b.Fatal(err)
			}
			rand.Read(c.ReqID[:])
			ended, err := s.CloseMany(ctx, c, list)
			for _, e := range ended {
				if e.Kind != errs.OK {
					b.Fatal(e.Kind)
				}
			}
			if err != nil {
				b.Fatal(err)
			}
			list = list[:0]
		}
	}
}
