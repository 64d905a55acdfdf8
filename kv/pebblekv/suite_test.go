package pebblekv_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/kvtest"
	"github.com/sluice-storage/sluice/kv/pebblekv"
)

func TestMain(m *testing.M) {
	// Pebble leaves this one behind when it fails to open a directory.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/cockroachdb/pebble/v2.(*ConcurrencyLimitScheduler).periodicGranter"))
}

// crashable is a store on a file system in memory that forgets what was not synced.
type crashable struct {
	*pebblekv.Store
	fs *vfs.MemFS
}

func openOn(tb testing.TB, fs *vfs.MemFS) kv.Store {
	tb.Helper()
	s, err := pebblekv.Open(pebblekv.Options{Dir: "store", FS: fs, MemtableBytes: 1 << 20})
	if err != nil {
		tb.Fatalf("Open: %v", err)
	}
	return crashable{s, fs}
}

// config opens stores in memory. A crash keeps the given share of what was not synced, block by
// block.
func config(unsyncedPercent int, seed uint64) kvtest.Config {
	rng := rand.New(rand.NewPCG(seed, 0))
	return kvtest.Config{
		Open: func(tb testing.TB) kv.Store { return openOn(tb, vfs.NewCrashableMem()) },
		Reopen: func(tb testing.TB, s kv.Store) kv.Store {
			if err := s.Close(); err != nil {
				tb.Fatalf("Close: %v", err)
			}
			return openOn(tb, s.(crashable).fs)
		},
		Crash: func(tb testing.TB, s kv.Store) kv.Store {
			after := s.(crashable).fs.CrashClone(
				vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: rng})
			if err := s.Close(); err != nil {
				tb.Fatalf("Close: %v", err)
			}
			return openOn(tb, after)
		},
	}
}

func TestSuite(t *testing.T) { kvtest.Run(t, config(0, 0)) }

// TestCrashKeepsSome runs the cases that crash on a disk that keeps half of what was not synced.
func TestCrashKeepsSome(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	cfg := config(50, seed)
	for _, c := range kvtest.Cases() {
		if strings.HasPrefix(c.Name, "crash/") || strings.HasPrefix(c.Name, "model/") {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, cfg) })
		}
	}
}
