package pebblekv

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/kv"
)

// What a file costs that is created and closed: two transactions, of the shape that the metadata
// service gives them.
const txnsPerFile = 2

// fileTxn is transaction i: for an even one the file i/2 is created, for an odd one it is closed.
func fileTxn(i uint64, sync bool) *kv.Txn {
	n := i / txnsPerFile
	u64 := func(kind byte, v ...uint64) []byte {
		b := append(make([]byte, 0, 40), kind)
		for _, v := range v {
			b = binary.BigEndian.AppendUint64(b, v)
		}
		return b
	}
	ino := n + 1000
	t := &kv.Txn{Sync: sync, Answer: ino}
	binary.BigEndian.PutUint64(t.ReqID[:], i+1)
	inode := make([]byte, 110)
	binary.BigEndian.PutUint64(inode, i)
	t.Puts = append(t.Puts, kv.Put{Key: u64('I', ino), Value: inode})
	if i%txnsPerFile == 1 {
		t.Checks = []kv.Check{{Key: u64('I', ino), Exists: true}}
		t.Deletes = [][]byte{u64('H', 7, ino)}
		return t
	}
	name := fmt.Appendf(u64('D', 1), "file%012d", n)
	t.Checks = []kv.Check{{Key: u64('S', 7), Exists: true}, {Key: u64('I', 1), Exists: true},
		{Key: name}, {Key: u64('H', 7, ino)}}
	t.Puts = append(t.Puts, kv.Put{Key: name, Value: u64(1, ino, ino)},
		kv.Put{Key: u64('C', 1, ino), Value: name[9:]}, kv.Put{Key: u64('T', 1), Value: inode[:16]},
		kv.Put{Key: u64('H', 7, ino), Value: inode[:20]})
	t.Adds = []kv.Add{{Key: u64('N', 1), Delta: 1}, {Key: []byte("Afiles"), Delta: 1}}
	return t
}

// BenchmarkFile measures these transactions, and the same batches written to pebble alone.
func BenchmarkFile(b *testing.B) {
	for _, sync := range []bool{false, true} {
		for _, writers := range []int{1, 8, 64} {
			for _, bare := range []bool{true, false} {
				b.Run(fmt.Sprintf("sync=%v/writers=%d/bare=%v", sync, writers, bare), func(b *testing.B) {
					commit := openCost(b, bare)
					b.ReportAllocs()
					b.ResetTimer()
					before := cpuOf(b)
					together(b, writers, func(i uint64) error { return commit(fileTxn(i, sync)) })
					n := float64(b.N)
					b.ReportMetric((cpuOf(b)-before)*1e6/n, "cpu-us/commit")
					b.ReportMetric(n/b.Elapsed().Seconds(), "commits/s")
				})
			}
		}
	}
}

func openCost(b *testing.B, bare bool) func(t *kv.Txn) error {
	if bare {
		db, err := OpenBare(Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		return db.Commit
	}
	s, err := Open(Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	_, err = s.Commit(b.Context(), &kv.Txn{Puts: []kv.Put{{Key: fileTxn(0, false).Checks[0].Key},
		{Key: fileTxn(0, false).Checks[1].Key}}})
	if err != nil {
		b.Fatal(err)
	}
	return func(t *kv.Txn) error {
		snap := s.Snapshot()
		t.Seen = snap.Version() // as the service does, which has read what it checks
		_ = snap.Close()
		_, err := s.Commit(context.Background(), t)
		return err
	}
}

func together(b *testing.B, writers int, do func(i uint64) error) {
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for {
				i := next.Add(txnsPerFile) - txnsPerFile
				if i >= uint64(b.N) {
					return
				}
				for k := range uint64(txnsPerFile) {
					if err := do(i + k); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// cpuOf is the processor time of this process in seconds.
func cpuOf(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
