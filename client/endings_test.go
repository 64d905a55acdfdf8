package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// TestEndingsAreCounted: what the queue says of one file by its counts is what looking through all
// of it finds, whatever was put in, taken, closed and given back.
func TestEndingsAreCounted(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	q := newEndings()
	nodes := []*inode{nil, {}, {}, {}}
	var taken []ending
	for i := range 20_000 {
		switch rng.IntN(8) {
		default:
			q.add(ending{node: nodes[rng.IntN(len(nodes))], handle: uint64(i + 1),
				flags:  []meta.OpenFlags{meta.OpenRead, meta.OpenWrite}[rng.IntN(2)],
				caller: meta.Caller{Session: rng.Uint64N(2)}})
		case 5:
			if taken == nil {
				taken = q.take([]*inode{nil, nodes[1]}[rng.IntN(2)])
			}
		case 6:
			items := make([]item, rng.IntN(len(taken)+1))
			for k := range items {
				items[k] = item{ending: taken[k], gone: rng.IntN(2) == 0}
			}
			q.ended(items)
			taken = slices.DeleteFunc(taken, func(e ending) bool {
				return e.node != nil && slices.ContainsFunc(items, func(it item) bool {
					return it.gone && it.handle == e.handle
				})
			})
		case 7:
			q.giveBack(taken[rng.IntN(len(taken)+1):])
			taken = nil
		}
		for _, n := range nodes[1:] {
			for session := range uint64(2) {
				var want []uint64
				for _, e := range q.all() {
					if e.node == n && e.flags&meta.OpenWrite != 0 && e.caller.Session == session {
						want = append(want, e.handle)
					}
				}
				if got := q.handles(n, session, nil); !slices.Equal(got, want) ||
					q.has(n, session) != (len(want) > 0) {
					t.Fatalf("seed %d, step %d: handles %v, want %v", seed, i, got, want)
				}
			}
			waits := slices.ContainsFunc(q.list, func(e ending) bool { return e.node == n && e.writes() })
			if q.waits(n) != waits {
				t.Fatalf("seed %d, step %d: waits %v", seed, i, !waits)
			}
		}
		if q.count() > 500 {
			q, taken = newEndings(), nil
		}
	}
}

// TestMoreFilesThanLeases: a client that writes more small files at once than it may have leases
// goes on, slower: its oldest leases are asked back, and what was written under them is told.
// It holds no more than it may, nothing is lost, and others see all of it.
func TestMoreFilesThanLeases(t *testing.T) {
	const most, files = 256, 600
	ctx := context.Background()
	c := newCluster(t, 1, store.Options{SessionLeases: most})
	cred := &meta.Cred{UID: 1000, GID: 1000}
	fs := c.client(Options{Cred: cred})
	listened(t, fs)
	open := make([]*File, files)
	for i := range open {
		f, err := fs.OpenFile(ctx, fmt.Sprint("/", i), os.O_CREATE|os.O_RDWR, 0o644)
		must(t, err)
		open[i] = f
		write(t, f, []byte("first"), 0)
	}
	for i, f := range open {
		write(t, f, []byte(fmt.Sprint("content ", i)), 0)
		if i%50 == 0 {
			must(t, f.Sync(ctx))
		}
	}
	st, err := c.meta.Status()
	must(t, err)
	if n := st.Leases.Leases; n > most+most/8 || n < most/2 || st.Leases.Recalls == 0 {
		t.Errorf("%+v, where %d may be held", st.Leases, most)
	}
	for _, f := range open {
		must(t, f.Close(ctx))
	}
	other := c.client(Options{Cred: cred})
	listened(t, other)
	for i := range open {
		a, err := fs.Stat(ctx, fmt.Sprint("/", i))
		must(t, err)
		f, err := other.Open(ctx, fmt.Sprint("/", i))
		must(t, err)
		want := fmt.Sprint("content ", i)
		if got := string(contents(t, f)); got != want || a.Size != int64(len(want)) {
			t.Fatalf("file %d: %q, of %d bytes", i, got, a.Size)
		}
		must(t, f.Close(ctx))
	}
	if st, err = c.meta.Status(); err != nil || st.Leases.Expired != 0 {
		t.Errorf("a client that answers was taken for dead: %+v, %v", st.Leases, err)
	}
}
