package remote_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/remote"
	"github.com/sluice-storage/sluice/msg"
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

// TestOpeningsKeepNoUpkeepOut: a client gives leases back while its programs open more files, all
// of which have to wait for other clients, than may be under way.
func TestOpeningsKeepNoUpkeepOut(t *testing.T) {
	r := newSlow(t, meta.OpOpen, remote.Options{WaitMax: time.Minute}, msg.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	info, err := r.NewSession(ctx, "busy")
	if err != nil {
		t.Fatal(err)
	}
	c := meta.Caller{Session: info.ID}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 100 {
		wg.Go(func() { _, _ = r.Open(ctx, c, meta.RootIno, meta.OpenWrite) })
	}
	for last := int32(-1); last != r.held.Load(); time.Sleep(50 * time.Millisecond) {
		last = r.held.Load()
	}
	before := r.held.Load()
	for range 8 {
		wg.Go(func() { _, _ = r.Open(remote.ForUpkeep(ctx), c, meta.RootIno, meta.OpenRead) })
	}
	for end := time.Now().Add(20 * time.Second); r.held.Load() < before+8; {
		if time.Now().After(end) {
			t.Fatalf("%d of 8 that others wait for are under way", r.held.Load()-before)
		}
		time.Sleep(time.Millisecond)
	}
}
