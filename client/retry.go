package client

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// Pauses while a truncation is under way: short at first, because most are, and never longer than
// what a person would notice.
const (
	pauseFirst = 5 * time.Millisecond
	pauseMax   = 500 * time.Millisecond
)

// refreshMax is how often one operation refreshes what it knows of a file (capabilities, truncate
// sequence) before it gives up: every refresh that changes nothing waits, so this is far above
// what races between truncations and writes need.
const refreshMax = 50

// turn is a lock that is held over requests. Who waits for it leaves when its context ends. Made by
// newTurn.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	if t.try() { // a context that is listened to costs something
		return nil
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errs.Wrap("client", "", ctx.Err())
	}
}

// try takes the turn if nobody has it.
func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) giveBack() { <-t }

func serverName(id uint32) string { return fmt.Sprintf("I/O server %d", id) }

// settle runs an operation on a file until it neither meets an expired capability nor a truncation,
// nor a generation of those who share a volume, that this client did not know of. All requests of
// one attempt carry the same truncate sequence: a write that raced with a truncation is repeated
// whole, so that it is never half before and half after it.
func (f *File) settle(ctx context.Context, op func(context.Context, *grant, uint64) error) error {
	f.used.Store(true)
	for try := 0; ; try++ {
		if err := f.announce(ctx); err != nil {
			return err
		}
		g, err := f.live()
		if err != nil {
			return err
		}
		seq := f.node.sequence()
		switch {
		case g.handle == 0: // it could not be announced
			return errs.Newf(errs.Stale, "client.File", "", "the file was removed")
		case len(g.caps) == 0: // it was announced by a claim
			err = errs.Expired
		default:
			err = op(ctx, g, seq)
		}
		if err == nil || try >= refreshMax {
			return err
		}
		switch errs.KindOf(err) {
		case errs.Expired:
			if rerr := f.renewFrom(ctx, g); rerr != nil {
				return rerr
			}
			// A fresh one that is refused too: the server does not know yet what time it is.
			if try > 0 && !wait.Sleep(ctx, min(pauseFirst<<min(try, 8), pauseMax)) {
				return errs.Wrap("client", "", ctx.Err())
			}
		case errs.NotFound: // the object was removed, and the file is open here
			return errs.New(errs.Stale, "client.File", "", err)
		case errs.Stale:
			if rerr := f.refresh(ctx, g, seq, try); rerr != nil {
				return rerr
			}
		case errs.Fenced:
			if rerr := f.follow(ctx, g, err); rerr != nil {
				return rerr
			}
		default:
			return err
		}
	}
}

// follow goes on in the present generation of those who share a volume, after something was refused
// that was sent in an earlier one: somebody has joined. refused is returned where that is not why.
func (f *File) follow(ctx context.Context, g *grant, refused error) error {
	if !f.shared {
		return refused
	}
	if err := f.renewFrom(ctx, g); err != nil {
		return err
	}
	now, err := f.live()
	if err == nil && now.epoch <= g.epoch {
		err = refused
	}
	return err
}

// renewFrom replaces a grant that was refused, unless somebody has done so already.
func (f *File) renewFrom(ctx context.Context, g *grant) error {
	if err := f.renewing.take(ctx); err != nil {
		return err
	}
	defer f.renewing.giveBack()
	if f.grant.Load() != g {
		return nil
	}
	if cur := f.fs.sess.Load(); g.session != cur.id {
		return f.reopen(ctx, cur, g)
	}
	return f.fs.renew(ctx, []*File{f})
}

// refresh learns the truncate sequence and generation after a server has refused an old one. Where
// nothing has changed, a truncation is still under way somewhere: it waits a little.
func (f *File) refresh(ctx context.Context, g *grant, seq uint64, try int) error {
	_, err := f.fs.askAttr(ctx, meta.Cred{}, f.node.ino)
	if errs.KindOf(err) == errs.NotFound {
		return errs.New(errs.Stale, "client.File", "", err) // it was removed, and is open here
	}
	if err != nil {
		return err
	}
	if f.node.sequence() != seq {
		return nil
	}
	if err := f.renewFrom(ctx, g); err != nil {
		return err
	}
	if !wait.Sleep(ctx, min(pauseFirst<<min(try, 8), pauseMax)) {
		return errs.Wrap("client", "", ctx.Err())
	}
	return nil
}
