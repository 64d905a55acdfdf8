package store_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/pebblekv"
	"github.com/sluice-storage/sluice/meta/metatest"
)

// TestOnPebblekv runs the suite on the embedded engine, in a file system in memory.
func TestOnPebblekv(t *testing.T) {
	metatest.Run(t, func(t testing.TB, c metatest.Config) *metatest.Instance {
		opt := pebblekv.Options{Dir: "meta", FS: vfs.NewMem()}
		engine, err := pebblekv.Open(opt)
		if err != nil {
			t.Fatal(err)
		}
		return instance(t, c, engine, func() (kv.Store, error) {
			if err := engine.Close(); err != nil {
				return nil, err
			}
			engine, err = pebblekv.Open(opt)
			return engine, err
		})
	})
}
