package pebblekv_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/pebblekv"
)

// createTxn is what creating a file costs: parent exists, name absent, entry, inode, counter.
func createTxn(n uint64, sync bool) kv.Txn {
	name := fmt.Appendf(nil, "Dparent00file%012d", n)
	ino := binary.BigEndian.AppendUint64([]byte("I"), n)
	t := kv.Txn{
		Checks: []kv.Check{{Key: []byte("Iparent0"), Exists: true}, {Key: name}},
		Puts:   []kv.Put{{Key: name, Value: ino}, {Key: ino, Value: make([]byte, 120)}},
		Adds:   []kv.Add{{Key: []byte("Nparent0"), Delta: 1}},
		Sync:   sync,
	}
	binary.BigEndian.PutUint64(t.ReqID[:], n)
	return t
}

// BenchmarkCreate measures creates in one directory, durable and not, from several writers at
// once.
func BenchmarkCreate(b *testing.B) {
	for _, sync := range []bool{true, false} {
		for _, writers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("sync=%v/writers=%d", sync, writers), func(b *testing.B) {
				s, err := pebblekv.Open(pebblekv.Options{Dir: b.TempDir()})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				mustCommit(b, s, kv.Txn{Puts: puts("Iparent0", "")})
				b.ResetTimer()
				race(b, s, writers, sync)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			})
		}
	}
}

func race(b *testing.B, s kv.Store, writers int, durable bool) {
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > uint64(b.N) {
					return
				}
				t := createTxn(n, durable)
				if _, err := s.Commit(context.Background(), &t); err != nil {
					b.Errorf("Commit: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkGet measures one read in a snapshot of its own.
func BenchmarkGet(b *testing.B) {
	s, err := pebblekv.Open(pebblekv.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	mustCommit(b, s, kv.Txn{Puts: puts("key", "value")})
	b.ReportAllocs()
	for b.Loop() {
		snap := s.Snapshot()
		if _, v, err := snap.Get([]byte("key")); v == 0 || err != nil {
			b.Fatal(v, err)
		}
		if err := snap.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
