package store

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
)

// noObjects is I/O servers without objects.
type noObjects struct{}

func (noObjects) Measure(context.Context, meta.FileRef) (int64, error) { return 0, nil }
func (noObjects) Truncate(context.Context, meta.FileRef, int64) error  { return nil }
func (noObjects) Remove(context.Context, meta.FileRef, int) error      { return nil }

// TestAPausedServiceBlamesNobody: the service stood still for longer than a lease. Sessions that
// could not be heard of get the time of a lease again; if they stay silent then, they are dead.
func TestAPausedServiceBlamesNobody(t *testing.T) {
	const lease = 30 * time.Second
	var passed atomic.Int64 // at the host
	clock := func() time.Time { return time.Unix(1_800_000_000, passed.Load()) }
	engine := memkv.New(memkv.Options{})
	s, err := New(t.Context(), engine, Options{Objects: noObjects{}, Clock: clock,
		Pulse: clock, Lease: lease, Tick: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Stop(); _ = engine.Close() }()
	info, err := s.NewSession(t.Context(), "paused")
	if err != nil {
		t.Fatal(err)
	}
	rounds := func() { time.Sleep(50 * time.Millisecond) }
	for range 3 {
		passed.Add(int64(lease + 4*time.Second)) // the service did not run meanwhile
		rounds()
		if st, _ := s.Status(); st.Sessions != 1 {
			t.Fatal("a session died because the service did not run")
		}
	}
	if err := s.KeepAlive(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; rounds() {
		passed.Add(int64(2 * time.Second)) // and now it runs, and nobody comes
		st, err := s.Status()
		if err == nil && st.Sessions == 0 && st.Pauses > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a silent session does not end: %+v, %v", st, err)
		}
	}
}

// TestClaimsCostNoMemory: who does not know a server's key makes the service remember nothing.
func TestClaimsCostNoMemory(t *testing.T) {
	engine := memkv.New(memkv.Options{})
	s, err := New(t.Context(), engine, Options{Objects: noObjects{}, Key: capability.Key{1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Stop(); _ = engine.Close() }()
	for id := range uint32(1000) {
		srv := meta.Server{ID: id + 1, Addr: "a", StoreID: 1}
		if err := s.Join(t.Context(), srv, [32]byte{1}); errs.KindOf(err) != errs.Forged {
			t.Fatalf("server %d: %v", id, err)
		}
		if _, err := s.ServerKeys(t.Context(), meta.Caller{}, id+1, 1); err != nil {
			t.Fatalf("server %d: %v", id, err)
		}
	}
	if o := &s.owners; len(o.known)+len(o.hosts)+len(s.servers.byID) > 0 {
		t.Fatalf("%d keys, %d servers are kept for servers that nobody is", len(o.known),
			len(s.servers.byID))
	}
	if st, err := s.Status(); err != nil || st.Refused != 1000 {
		t.Fatalf("%v: %d refusals are counted", err, st.Refused)
	}
}
