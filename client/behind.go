package client

import (
	"context"

	"github.com/sluice-storage/sluice/client/internal/behind"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/meta"
)

// Write-behind, for front ends that answer before data is at the servers. They drain a file before
// anything that could tell the difference: reads, attributes, truncation, close, sync. Other
// clients cannot tell either: see hold.go.

// WriteBehind takes a write that goes on where the last one to the file ended, and says how much of
// it. If it takes nothing, the data before it has reached the servers when it returns. What it does
// not take the caller writes by WriteAt. What is lost later is reported as by Lose, and by the next
// call.
func (f *File) WriteBehind(ctx context.Context, p []byte, off int64) (took int, err error) {
	if f.node.small.Load() && off+int64(len(p)) <= meta.SmallMax {
		return 0, nil // a write to it only changes memory
	}
	if !f.Holds() && !f.node.small.Load() {
		f.fs.askToHold(f.node)
	}
	return f.fs.behind.Write(ctx, f, p, off)
}

// Drain returns when all of a file's data that WriteBehind took is at the servers, or lost and
// noted so.
func (fs *FS) Drain(ctx context.Context, ino meta.Ino) error { return fs.behind.Drain(ctx, ino) }

// Settle is Drain for callers that report losses: the next WriteBehind need not.
func (fs *FS) Settle(ctx context.Context, ino meta.Ino) error { return fs.behind.Settle(ctx, ino) }

// BehindEnd is where the data of a file ends that WriteBehind took and that is not at the servers
// yet; 0: there is none.
func (fs *FS) BehindEnd(ino meta.Ino) int64 { return fs.behind.End(ino) }

// WrittenBehind drains a file that is about to be closed, and forgets how it was written.
func (fs *FS) WrittenBehind(ino meta.Ino) { fs.behind.Forget(ino) }

// OnLoss has fn called when what WriteBehind took for a range of a file could not be stored, on a
// goroutine of its own.
func (fs *FS) OnLoss(fn func(ino meta.Ino, off, n int64)) { fs.onLoss.Store(&fn) }

// reserve waits for memory in which writes are gathered, sent and kept.
func (fs *FS) reserve(ctx context.Context, n int) (iod.Room, error) {
	if fs.rooms == nil {
		return nil, nil
	}
	return fs.rooms.Reserve(ctx, n)
}

// Lose records that data which a program takes for written to [off, off+n) is lost: Sync, Commit
// and Close of every open handle of the file report it once. It is for those who write on behalf
// of programs and answer before they are done.
func (f *File) Lose(err error, off, n int64) {
	f.node.lose(err)
	if fn := f.fs.onLoss.Load(); fn != nil {
		go (*fn)(f.Ino(), off, n) // who must hear of it may wait for this write
	}
}

// Put writes the first n bytes of a room of the keeper's at off, and gives the room away: they are
// kept where they lie. It is for WriteBehind.
func (f *File) Put(ctx context.Context, room iod.Room, n int, off int64) error {
	w := putting{f: f, room: room, p: room.Bytes()[:n], off: off}
	err := w.put(ctx)
	if !w.kept {
		room.Return()
	}
	return errs.Wrap("client.Write", "", err)
}

// putting is one Put.
type putting struct {
	f    *File
	room iod.Room
	p    []byte
	off  int64
	kept bool // the room is the keeper's
}

func (w *putting) put(ctx context.Context) error {
	f, end := w.f, w.off+int64(len(w.p))
	if err := f.room("client.Write", w.off, int64(len(w.p))); err != nil {
		return err
	}
	if to, err := f.Room(ctx, w.off, end); err != nil || to < end {
		if err == nil {
			_, err = roomIn(to, to)
		}
		return err
	}
	done, err := f.writeSmall(ctx, writing, w.off, end, func(data []byte) { copy(data[w.off:], w.p) })
	if !done {
		err = f.settle(ctx, w.attempt)
	}
	return err
}

// attempt is one, by the rights that there are.
func (w *putting) attempt(ctx context.Context, g *grant, seq uint64) error {
	f, n := w.f, int64(len(w.p))
	s, off, run := g.layout.Locate(w.off)
	if n > run && g.layout.Width() > 1 || n > iod.TransferMax || f.fs.rooms == nil || foreign(w.room) {
		err := f.move(ctx, g, seq, writing, w.p, w.off)
		if err == nil {
			f.finish(writing, w.off, w.off+n, seq)
		}
		return err
	}
	_, err := f.fs.rooms.WriteKept(ctx, f.target(g, seq, s), off, w.room, len(w.p))
	if err == nil {
		w.kept = true
		f.node.acked(s)
		f.finish(writing, w.off, w.off+n, seq)
	}
	return err
}

// foreign tells whether a room is not the keeper's, because there was none.
func foreign(r iod.Room) bool { return behind.Plain(r) }
