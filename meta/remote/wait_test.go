package remote_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/remote"
)

// TestWaitersKeepNobodyOut: more requests wait for a lease than a connection has credits and a
// server admits, and the one that they wait for comes by the same connection.
func TestWaitersKeepNobodyOut(t *testing.T) {
	_, service := newCluster(t, remote.Options{WaitMax: time.Minute}, 3)
	ctx := t.Context()
	session := func() meta.Caller {
		info, err := service.NewSession(ctx, "one of two")
		if err != nil {
			t.Fatal(err)
		}
		return meta.Caller{Session: info.ID, Leases: true}
	}
	holder, other := session(), session()
	if _, err := service.Listen(ctx, meta.Listening{Session: holder.Session}); err != nil {
		t.Fatal(err)
	}
	a, err := service.GetAttr(ctx, holder, meta.RootIno)
	if err != nil || a.Lease != meta.LeaseRead {
		t.Fatalf("%v: %+v", err, a)
	}
	var wg sync.WaitGroup
	for i := range 400 {
		wg.Go(func() {
			_, err := service.Make(ctx, other, meta.RootIno, fmt.Sprint(i), meta.NewFile{Type: meta.Fifo})
			if err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond) // as many as can be are under way
	heard, err := service.Listen(ctx, meta.Listening{Session: holder.Session, WaitMs: 1000})
	if err != nil || len(heard.Recalls) != 1 || heard.Recalls[0].Ino != meta.RootIno {
		t.Fatalf("%v: %+v", err, heard)
	}
	_, err = service.Listen(ctx, meta.Listening{Session: holder.Session, Acks: heard.Recalls})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("they wait for ever")
	}
}
