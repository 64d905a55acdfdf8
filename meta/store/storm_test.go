package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/kv/memkv"
	"github.com/sluice-storage/sluice/meta"
)

// TestRecallStorm: a hundred clients that keep what they are told work in one directory. All get
// on: nobody's operation takes as long as a lease lasts. Because what is recalled again and again
// is not lent for a while, most changes recall nothing: not a hundred leases each.
func TestRecallStorm(t *testing.T) {
	const clients, rounds = 100, 20
	s := newStore(t, memkv.New(memkv.Options{}))
	ctx, stop := context.WithCancel(t.Context())
	var listening, working sync.WaitGroup
	var longest atomic.Int64
	for i := range clients {
		info, err := s.NewSession(ctx, fmt.Sprint("client", i))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Listen(ctx, meta.Listening{Session: info.ID}); err != nil {
			t.Fatal(err)
		}
		listening.Go(func() { answer(ctx, s, info.ID) })
		c := meta.Caller{Session: info.ID, Leases: true}
		working.Go(func() {
			for k := range rounds {
				begun := time.Now()
				name := fmt.Sprint(i, ".", k)
				if f, err := s.Find(ctx, c, meta.RootIno, name); err != nil || f.Present {
					t.Errorf("%v: %+v", err, f)
				}
				_, err := s.Make(ctx, c, meta.RootIno, name, meta.NewFile{Type: meta.Fifo})
				if err != nil {
					t.Error(err)
				}
				raise(&longest, int64(time.Since(begun)))
			}
		})
	}
	start := time.Now()
	working.Wait()
	stop()
	listening.Wait()
	st, err := s.Status()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d changes in %v, the longest %v: %+v", clients*rounds, time.Since(start),
		time.Duration(longest.Load()), st.Leases)
	if time.Duration(longest.Load()) >= 5*time.Second {
		t.Error("somebody was left out")
	}
	if st.Leases.Recalls > clients*rounds || st.Leases.Expired > 0 {
		t.Errorf("%d changes: %+v", clients*rounds, st.Leases)
	}
}

// raise makes v at least n.
func raise(v *atomic.Int64, n int64) {
	for {
		old := v.Load()
		if old >= n || v.CompareAndSwap(old, n) {
			return
		}
	}
}

// answer gives every lease back that is asked for.
func answer(ctx context.Context, s meta.Leases, session uint64) {
	l := meta.Listening{Session: session, WaitMs: 1000}
	for ctx.Err() == nil {
		h, err := s.Listen(ctx, l)
		if err != nil {
			return
		}
		l.Acks = h.Recalls
		for _, r := range h.Recalls {
			l.Seen = max(l.Seen, r.Serial)
		}
	}
}
