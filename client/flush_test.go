package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// stingy is a service that does not lend one of the files.
type stingy struct {
	meta.Service
	ino   atomic.Uint64 // 0: it lends all
	asked atomic.Int32
}

func (s *stingy) ReadSmall(ctx context.Context, c meta.Caller, ino meta.Ino) (
	meta.Attr, meta.SmallData, error) {
	a, data, err := s.Service.ReadSmall(ctx, c, ino)
	if uint64(ino) == s.ino.Load() {
		a.Lease = meta.LeaseNone
		s.asked.Add(1)
	}
	return a, data, err
}

// TestOneFileHoldsUpNoOtherTelling: what was written to a file cannot be told, because the service
// does not lend it, for long. Others are told meanwhile.
func TestOneFileHoldsUpNoOtherTelling(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{})
	svc := &stingy{Service: c.service()}
	fs, err := New(svc, c, Options{Cred: &meta.Cred{UID: 1000, GID: 1000}, WaitMax: time.Hour})
	must(t, err)
	defer func() { must(t, fs.Close()) }()
	listened(t, fs)
	busy, free := createSmall(t, fs, "busy", 1), createSmall(t, fs, "free", 1)
	write(t, busy, []byte("busy"), 0)
	svc.ino.Store(uint64(busy.Ino()))
	defer svc.ino.Store(0)
	busy.node.unlease()
	eventually(t, func() bool { return svc.asked.Load() > 0 })
	write(t, free, []byte("free"), 0)
	eventually(t, func() bool { return !free.node.untold() })
	svc.ino.Store(0)
	eventually(t, func() bool { return !busy.node.untold() })
	must(t, busy.Close(ctx))
	must(t, free.Close(ctx))
}
