package mount

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/mount/state"
	"golang.org/x/sys/unix"
)

// How a mount is served by one process after the other.
//
// Somebody who does nothing else, the keeper, has the connection to the kernel open (Connect) and
// the memory in which the process that serves notes what must outlive it (package state). When that
// process has died another one gets both: it succeeds the dead one's session, opens its files by
// their inodes, and asks the kernel to repeat what was not answered. Programs wait meanwhile; they
// hear of it only where data died with the process (kept.go), and what they had asked for is done
// once (resent.go).

// AwaitDisbelief waits until the kernel believes nothing any more that it was told by a process
// before this one: from then on others may change it. It comes before the sessions of that one are
// succeeded (client.Options.BeforeSuccession).
func AwaitDisbelief(ctx context.Context, t *state.Table) error {
	for {
		left := time.Duration(t.Believed() - monotonic())
		switch {
		case left <= 0:
			return nil
		case left > believedMost:
			return errs.Newf(errs.Corrupt, "mount", "", "the kernel believes something for %v", left)
		case !wait.Sleep(ctx, left):
			return errs.Wrap("mount", "", ctx.Err())
		}
	}
}

// believedMost is longer than the kernel is ever told to believe something.
const believedMost = time.Hour

// monotonic is a clock that all processes of the host share, in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it does not fail
	return now.Nano()
}

// Attach serves a file system that was mounted by Connect, perhaps in the place of a process that
// has died. fs was dialled to succeed t.Sessions. connection and t stay the caller's.
func Attach(ctx context.Context, fs *client.FS, dir string, connection *os.File, t *state.Table,
	opts Options) (*Mounted, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.limitTimeouts(fs)
	again := t.Greeted()
	t.BeginSession(fs.SessionID())
	fs.OnSession(t.SetSession)
	b := newBridge(fs, opts)
	b.kept = newKept(t)
	b.firsts.before.Store(again)
	b.again.goOn(t)
	if err := b.restore(ctx); err != nil {
		return nil, err
	}
	if err := fs.EndSuccession(ctx); err != nil {
		return nil, err
	}
	t.EndBefore()
	w := newWatched(b)
	server, err := greet(w, connection, t, fuseOptions(&opts))
	if err != nil {
		return nil, errs.Wrap("mount", dir, err)
	}
	m := &Mounted{dir: dir, server: server, bridge: b, watch: w, opts: opts,
		served: make(chan struct{}), conn: connectionOf(dir)}
	b.lose()
	b.kept.workers.Go(b.sweep)
	go m.serve()
	if again {
		if err := repeatRequests(connection); err != nil {
			_ = m.Unmount()
			return nil, errs.Wrap("mount", dir, err)
		}
		b.kept.workers.Go(b.forgetLengths)
	}
	m.readAheadOf(fmt.Sprintf("0:%d", m.conn))
	return m, nil
}

// greet makes a server of go-fuse that speaks to the kernel through connection. Such a server
// begins by reading the kernel's greeting, and the kernel has sent that long ago: so it reads it
// from a socket, and gets the connection in the place of that when it has answered. The answer must
// be the one that the kernel got.
func greet(b fuse.RawFileSystem, connection *os.File, t *state.Table, o *fuse.MountOptions) (
	*fuse.Server, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pair[0])
	if _, err := unix.Write(pair[0], t.Greeting()); err != nil {
		_ = unix.Close(pair[1])
		return nil, err
	}
	o.DirectMount = false // it is mounted
	server, err := fuse.NewServer(b, fmt.Sprintf("/dev/fd/%d", pair[1]), o)
	if err != nil {
		return nil, err
	}
	if err := server.WaitMount(); err != nil {
		return nil, err
	}
	answer := make([]byte, 64<<10)
	n, err := retryRead(pair[0], answer)
	if err != nil {
		return nil, err
	}
	answer = answer[:n]
	switch was := t.Answer(); {
	case len(was) == 0:
		if err := t.SetAnswer(answer); err != nil {
			return nil, err
		}
	case !bytes.Equal(was, answer):
		return nil, errs.Newf(errs.Version, "", "", "the kernel was promised something else by the "+
			"program before this one; unmount, and mount again")
	}
	if err := unix.Dup3(int(connection.Fd()), pair[1], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	if !t.Greeted() {
		_, err := unix.Write(pair[1], answer)
		if err != nil && !errors.Is(err, unix.ENOENT) { // a process that died had answered
			return nil, err
		}
		t.SetGreeted()
	}
	return server, nil
}

// repeatRequests has the kernel send everything again that was not answered.
func repeatRequests(connection *os.File) error {
	h := outHeader{length: 16, status: notifyResend}
	_, err := unix.Write(int(connection.Fd()), h.bytes())
	return err
}

// notifyResend is FUSE_NOTIFY_RESEND.
const notifyResend = 7

// restoresMax is how many files are opened again at once.
const restoresMax = 32

// restore opens what programs have open.
func (b *bridge) restore(ctx context.Context) (err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, restoresMax)
	b.kept.table.Handles(func(slot int, h state.Handle) {
		if h.Bits&state.Directory != 0 {
			b.restoreDir(slot, &h)
			return
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if failed := b.restoreFile(ctx, slot, &h); failed != nil {
				mu.Lock()
				defer mu.Unlock()
				err = failed
			}
		})
	})
	wg.Wait()
	b.files.last.Store(b.kept.table.Next() - 1)
	return err
}

// restoreFile opens a file again. One that is gone fails from then on, the others go on.
func (b *bridge) restoreFile(ctx context.Context, slot int, h *state.Handle) error {
	ino := meta.Ino(h.Ino)
	f, err := b.fs.OpenIno(ctx, meta.Cred{}, ino, openFlags(h.Flags&^unix.O_TRUNC))
	switch k := errs.KindOf(err); {
	case k == errs.NotFound:
		b.opts.Logger.Warn("a file that was open is gone", "ino", ino)
		b.lost.add(h.Number)
		b.kept.table.Remove(slot)
		return nil
	case err != nil:
		return err
	}
	if err := f.Inherit(ctx, h.Bits&state.Written != 0); err != nil {
		return err
	}
	if h.Bits&state.Unsynced != 0 {
		f.InheritUnsynced(b.kept.inherited)
	}
	if h.Flags&unix.O_DIRECT != 0 {
		f.PassCaches()
	}
	if h.Bits&state.Locked != 0 && !b.fs.Succeeded() {
		b.opts.Logger.Error("a lock is lost: the session ended before another process took it over; "+
			"the file must be opened again", "ino", ino)
		f.LoseLocks()
	}
	own := &file{File: f, direct: h.Bits&state.Direct != 0, reads: b.reads(h.Flags)}
	own.noted.Store(h.Bits&state.Written != 0)
	for _, id := range h.Owners {
		own.owners.add(id)
	}
	if own.edition = h.Edition; b.writesBack() {
		a := f.Attr()
		b.editions.opened(h.Edition, &a, false) // who has changed it meanwhile is not known
	}
	b.files.put(h.Number, own)
	b.kept.restored(slot, h)
	if h.Bits&state.Unsynced != 0 {
		b.kept.noteUnsynced(own, h.Number) // lives are noted when all is restored
	}
	return nil
}

// restoreDir goes on with an open directory. Where a reader of it is the kernel says with each
// request, by the service's own numbers.
func (b *bridge) restoreDir(slot int, h *state.Handle) {
	ino := meta.Ino(h.Ino)
	b.dirs.put(h.Number, &directory{ino: ino})
	b.kept.restored(slot, h)
	if h.Bits&state.Removed != 0 {
		now := meta.Now()
		b.removed.show(&meta.Attr{Ino: ino, Type: meta.Directory, Mode: h.Mode, UID: h.UID, GID: h.GID,
			Atime: now, Mtime: now})
		b.removed.bury(ino)
	}
}

// lose records what has died with the process before: every handle of such a file says so once, and
// the kernel drops its pages. Those that are being written are locked until that is answered, so
// that this is not waited for.
func (b *bridge) lose() {
	marked, all := b.kept.table.Marked()
	lost := map[meta.Ino]bool{}
	for _, ino := range marked {
		if b.fs.Rescued(meta.Ino(ino)) {
			b.kept.table.Unmark(ino)
		} else {
			lost[meta.Ino(ino)] = true
		}
	}
	why := errs.Newf(errs.IO, "mount", "", "data that was written and not synced was lost when the "+
		"mount's process died")
	told := map[meta.Ino]bool{}
	for _, f := range b.files.all() {
		ino := f.Ino()
		if told[ino] || !lost[ino] && !(all && f.Flags()&meta.OpenWrite != 0) {
			continue
		}
		told[ino] = true
		f.Lose(why, 0, 0)
		b.kept.wrote(ino)
	}
	for ino := range lost {
		if !told[ino] {
			b.opts.Logger.Error("data that was written to a file, which was closed and not synced, was "+
				"lost when the mount's process died", "ino", ino)
			b.kept.table.Unmark(uint64(ino))
		}
	}
	b.kept.table.Settled()
}

// forgetLengths has the kernel forget the attributes of all files that are open.
func (b *bridge) forgetLengths() {
	for _, f := range b.files.all() {
		b.server.InodeNotify(b.node(f.Ino()), -1, 0)
	}
}
