package tcp

import (
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
)

func TestCoalescingIsTriedWhereItPays(t *testing.T) {
	tries := func(c *coalescing, posts int, came bool, took time.Duration) (n int) {
		for range posts {
			if c.tries > 0 {
				n++
				c.judge(came, took)
			}
		}
		return n
	}
	var c coalescing
	if n := tries(&c, 1000, false, 0); n != 0 {
		t.Errorf("of 1000 posts of one who is alone %d stepped aside", n)
	}
	c.met()
	if n := tries(&c, 1000, true, 0); n != 1000 {
		t.Errorf("of 1000 posts that met others %d stepped aside", n)
	}
	if n := tries(&c, 1000, false, 0); n != coalesceTries {
		t.Errorf("of 1000 posts after that %d stepped aside", n)
	}
	c.met()
	if n := tries(&c, 1000, true, time.Second); n != 1 {
		t.Errorf("of 1000 posts beside long work %d stepped aside", n)
	}
	for range coalesceSkip {
		c.met()
		if c.tries > 0 {
			t.Fatal("long work is forgotten too soon")
		}
	}
	c.met()
	if n := tries(&c, 1000, true, 0); n != 1000 {
		t.Errorf("coalescing that is quick again is not tried again: %d", n)
	}
}

// TestCoalescedRequestsLeaveInOrder posts from many goroutines at once: nothing is lost, and what
// each of them posts arrives in its order.
func TestCoalescedRequestsLeaveInOrder(t *testing.T) {
	const posters, each = 16, 200
	a, b := pair(t, Options{})
	rem, err := b.reg.Grant(b.ep, 0, bulkSize, fabric.RemoteWrite)
	fatal(t, err)
	var all sync.WaitGroup
	for p := range posters {
		all.Go(func() {
			for i := range each {
				wr := fabric.WR{Op: fabric.OpWrite, Local: []fabric.Sge{{Buf: []byte{byte(i)}}},
					Remote: rem.Slice(uint64(p), 1)}
				for a.ep.Post([]fabric.WR{wr}) != nil && t.Context().Err() == nil {
					time.Sleep(time.Millisecond) // the queue is full
				}
			}
		})
	}
	all.Wait()
	last := fabric.WR{Op: fabric.OpWrite, Local: []fabric.Sge{{Buf: []byte{1}}},
		Remote: rem.Slice(posters, 1), Flags: fabric.FlagSignaled}
	for a.ep.Post([]fabric.WR{last}) != nil && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	_, err = a.cq.Wait(t.Context(), a.dst[:1])
	fatal(t, err)
	fatal(t, a.dst[0].Err)
	for p := range posters {
		if got := b.reg.Bytes()[p]; got != byte(each-1) {
			t.Errorf("poster %d: the last write is %d, want %d", p, got, byte(each-1))
		}
	}
}

// pair is two connected ends.
func pair(t *testing.T, opts Options) (a, b *benchEnd) {
	t.Helper()
	a, b = newBenchEndWith(t, opts), newBenchEndWith(t, opts)
	l, err := b.dom.Connector().Listen("127.0.0.1:0")
	fatal(t, err)
	done := make(chan error, 1)
	go func() {
		var err error
		b.ep, err = l.Accept(t.Context(), func(fabric.Peer) (fabric.EndpointConfig, error) {
			return b.config(), nil
		})
		done <- err
	}()
	a.ep, err = a.dom.Connector().Dial(t.Context(), l.Addr().String(), a.config())
	fatal(t, err)
	fatal(t, <-done)
	return a, b
}
