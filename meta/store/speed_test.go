package store_test

import (
	"testing"

	"github.com/sluice-storage/sluice/kv/memkv"
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
