package memkv_test

import (
	"testing"

	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/kv/kvtest"
	"github.com/sluice-storage/sluice/kv/memkv"
)

func TestSuite(t *testing.T) {
	kvtest.Run(t, kvtest.Config{
		Open: func(testing.TB) kv.Store { return memkv.New(memkv.Options{}) },
		Reopen: func(tb testing.TB, s kv.Store) kv.Store {
			again, err := s.(*memkv.Store).Reopen()
			if err != nil {
				tb.Fatalf("Reopen: %v", err)
			}
			return again
		},
		Crash: func(_ testing.TB, s kv.Store) kv.Store { return s.(*memkv.Store).Crash() },
	})
}
