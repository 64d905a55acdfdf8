package remote

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/iod/dirty"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// Room is memory for data that is gathered where it will be sent from and kept.
type Room struct {
	r    *Remote
	room dirty.Room
	n    int
}

// Bytes implements iod.Room.
func (m *Room) Bytes() []byte { return m.room.Bytes[:m.n:m.n] }

// Return implements iod.Room.
func (m *Room) Return() {
	r := m.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory.Give(m.room)
	r.recycleLocked(m)
	r.changed.WakeAll()
}

func (r *Remote) recycleLocked(m *Room) {
	*m = Room{}
	r.rooms = append(r.rooms, m)
}

// Reserve implements iod.Keeper.
func (r *Remote) Reserve(ctx context.Context, n int) (iod.Room, error) {
	bytes := int64(n) + bodyMax(seg.Contig(0, int64(n)), int64(n))
	if n <= 0 || !r.keepable(bytes) {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.closed {
			return nil, errs.New(errs.Closed, "iod.Reserve", "", nil)
		}
		if room := r.memory.Take(bytes); !room.None() {
			m := r.newRoom()
			*m = Room{r: r, room: room, n: n}
			if r.memory.Used() > r.opts.RetainBytes/2 {
				r.sweepLocked()
			}
			return m, nil
		}
		r.tight = true
		r.sweepLocked()
		r.counts.waits.Add(1)
		if r.stuck {
			return nil, nil
		}
		if err := r.changed.Wait(ctx, &r.mu); err != nil {
			return nil, errs.Wrap("iod.Reserve", "waiting for memory", err)
		}
	}
}

func (r *Remote) newRoom() *Room {
	if n := len(r.rooms); n > 0 {
		m := r.rooms[n-1]
		r.rooms = r.rooms[:n-1]
		return m
	}
	return &Room{}
}

// WriteKept implements iod.Keeper.
func (r *Remote) WriteKept(ctx context.Context, t iod.Target, off int64, room iod.Room,
	n int) (iod.Mark, error) {
	m, ok := room.(*Room)
	if !ok || m.r != r || n <= 0 || n > m.n || t.Stamp.Seq != 0 {
		return iod.Mark{}, errs.Newf(errs.Invalid, "iod.WriteKept", t.Object.String(),
			"%d bytes of a room that is another's, or too small", n)
	}
	r.spareSums(&t)
	object := seg.Contig(off, int64(n))
	r.mu.Lock()
	r.memory.Trim(&m.room, int64(n)+bodyMax(object, int64(n)))
	r.mu.Unlock()
	k, err := r.enter(ctx, &t, iod.OpWrite, laneOf(&t), object.Span(), m.room, 0)
	if err != nil {
		return iod.Mark{}, err
	}
	c := r.take(0, &t, nil)
	defer r.put(c)
	if !t.How.NoSums {
		c.summing.Add(m.room.Bytes[:n])
	}
	if k == nil { // no slot will become free: a server is away
		c.lend(m.room.Bytes[:n:n])
		data := c.memory
		mark, err := r.once(ctx, &t, c, iod.OpWrite, &iod.Args{Access: object,
			Durability: stripe.Durable, Sums: c.summing.Sums()}, &data)
		if err == nil {
			m.Return()
		}
		return mark, err
	}
	k.data = n
	mark, err := r.sendKept(ctx, &t, c, k, object)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.recycleLocked(m)
	}
	return mark, err
}
