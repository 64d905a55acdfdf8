package msg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// mirror moves data through units of the message layer: it adds up all bytes while they come, and
// makes those that go from the sum and the offset.
func mirror() Handler {
	return HandlerFunc(func(ctx context.Context, c *Call) {
		var sum byte
		var next int64
		err := c.PullUnits(ctx, 0, c.OutLen(), func(off int64, b []byte) error {
			if off != next {
				return fmt.Errorf("unit at %d, want %d", off, next)
			}
			next += int64(len(b))
			for _, v := range b {
				sum += v
			}
			return nil
		})
		if err == nil {
			err = c.PushUnits(ctx, 0, c.InLen(), func(off int64, b []byte) error {
				for i := range b {
					b[i] = sum + byte((off+int64(i))>>8)
				}
				return nil
			})
		}
		if err != nil {
			_ = c.Fail(err)
			return
		}
		_ = c.Reply([]byte{sum}, c.InLen())
	})
}

// checkUnits moves data of several sizes through units.
func checkUnits(t testing.TB, r *rig) error {
	for _, n := range []int{0, 1, 3000, 20000, 64 << 10, 300_000, 1 << 20} {
		out, in := memory(t, r.cdom, n), memory(t, r.cdom, n)
		pattern(out.Buf, uint64(n))
		var sum byte
		for _, v := range out.Buf {
			sum += v
		}
		want := make([]byte, n)
		for i := range want {
			want[i] = sum + byte(i>>8)
		}
		var rep Reply
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := r.conn.Call(ctx, &Request{Out: contig(out), In: contig(in)}, &rep)
		cancel()
		if err != nil {
			return err
		}
		if rep.Body[0] != sum || !bytes.Equal(in.Buf, want) {
			return fmt.Errorf("%d bytes: other data than were sent or made", n)
		}
	}
	return quiet(r)
}

func smallUnits(client, server *Options) {
	client.Unit, server.Unit = 10_000, 10_000
	server.Memory = 1 << 20
}

func TestUnits(t *testing.T) {
	for _, p := range providers() {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, p, mirror(), smallUnits)
			if err := checkUnits(t, r); err != nil {
				t.Fatal(err)
			}
			s := r.server.Stats().Memory
			if s.InUseBytes != s.EagerBytes || s.MappedBytes > 1<<20 {
				t.Fatalf("%+v", s)
			}
		})
	}
}

// TestUnitsShareTheirMemory lets more requests wait for units than fit, some of which fail.
func TestUnitsShareTheirMemory(t *testing.T) {
	broken := errors.New("planted")
	r := newRig(t, simProviders()[1], HandlerFunc(func(ctx context.Context, c *Call) {
		err := c.PullUnits(ctx, 0, c.OutLen(), func(off int64, _ []byte) error {
			if c.Header().Op == 1 && off > 0 {
				return broken
			}
			return nil
		})
		if err != nil {
			_ = c.Fail(err)
			return
		}
		_ = c.Reply(nil, 0)
	}), func(client, server *Options) {
		smallUnits(client, server)
		server.Memory = 512 << 10
	})
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			req := Request{Op: uint16(i % 2), Out: contig(memory(t, r.cdom, 200_000))}
			err := call(r.conn, 20*time.Second, &req)
			if (i%2 == 1) != (errs.KindOf(err) == errs.IO) || i%2 == 0 && err != nil {
				t.Error(i, err)
			}
		})
	}
	wg.Wait()
	if err := quiet(r); err != nil {
		t.Fatal(err)
	}
	if s := r.server.Stats().Memory; s.InUseBytes != s.EagerBytes {
		t.Fatalf("%+v", s)
	}
}

func TestUnitsBeyondTheSegment(t *testing.T) {
	r := newRig(t, simProviders()[0], HandlerFunc(func(ctx context.Context, c *Call) {
		fn := func(int64, []byte) error { return nil }
		for _, err := range []error{
			c.PullUnits(ctx, 0, c.OutLen()+1, fn), c.PushUnits(ctx, -1, 1, fn),
			c.Pull(ctx, 1, []fabric.Sge{{Buf: make([]byte, c.OutLen())}}),
		} {
			if errs.KindOf(err) != errs.OutOfRange {
				_ = c.Fail(errs.Newf(errs.Corrupt, "", "", "%v", err))
				return
			}
		}
		_ = c.Reply(nil, 0)
	}), nil)
	out := memory(t, r.cdom, 100)
	if err := call(r.conn, 20*time.Second, &Request{Out: contig(out)}); err != nil {
		t.Fatal(err)
	}
}
