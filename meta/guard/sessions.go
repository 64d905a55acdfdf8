package guard

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// beginSession names a session after its client. One that could see nothing is told so at once.
func beginSession(p *Pass, a *meta.Args) error {
	if p.missing != nil && len(p.rights.Volumes) == 0 {
		return p.refuse(noPath, p.missing)
	}
	a.Client = p.prefix + a.Client
	return nil
}

// endSession tells a client what it would find out otherwise by being refused.
func endSession(_ context.Context, p *Pass, r *meta.Result) error {
	r.Session.Squashed = p.rights.Squash != identity.SquashNone
	r.Session.ReadOnly = p.rights.ReadOnly
	return nil
}

// beginEndClient is for sessions of the same client only.
func beginEndClient(p *Pass, a *meta.Args) error {
	a.Client = p.prefix + a.Client
	return nil
}

func beginListen(p *Pass, a *meta.Args) error {
	for i := range a.Listen.Acks {
		if a.Listen.Acks[i].Ino == meta.RootIno {
			a.Listen.Acks[i].Ino = p.top
		}
	}
	return p.owns(a.Listen.Session)
}

// beginClaim leaves out handles that the client may not have; to it their files are gone.
func beginClaim(p *Pass, a *meta.Args) error {
	left := a.Claims[:0]
	p.gone = make([]bool, len(a.Claims))
	for i, w := range a.Claims {
		ok, err := p.claims(&w)
		if err != nil {
			return err
		}
		if p.gone[i] = !ok; ok {
			left = append(left, w)
		}
	}
	a.Claims = left
	return nil
}

// claims tells whether a handle may be claimed, and as whose.
func (p *Pass) claims(w *meta.Claimed) (bool, error) {
	if p.rights.ReadOnly {
		w.Flags &^= meta.OpenWrite
		w.Write, w.Spilled = false, 0
	}
	if w.Flags&(meta.OpenRead|meta.OpenWrite) == 0 {
		return false, nil
	}
	ok, err := p.mine(&w.Ino)
	if ok && err == nil {
		ok, err = p.mayClaim(w)
	}
	w.UID, _, _ = p.rights.Believe(w.UID, 0, nil)
	if err == nil && !ok {
		_ = p.refuse(outside, errs.Newf(errs.NotFound, "meta.claim", "",
			"client %s claims inode %d, which it could not open", p.name, w.Ino))
	}
	return ok, err
}

func endClaim(_ context.Context, p *Pass, r *meta.Result) error {
	all := make([]meta.Regained, len(p.gone))
	next := 0
	for i := range all {
		if p.gone[i] {
			all[i].Gone = true
		} else if next < len(r.Claims) {
			all[i] = r.Claims[next]
			next++
		}
	}
	r.Claims = all
	return nil
}

// beginClaimLocks leaves out locks on what is not the client's business: they are lost.
func beginClaimLocks(p *Pass, a *meta.Args) error {
	left := a.Locks[:0]
	for _, l := range a.Locks {
		ok, err := p.mine(&l.Ino)
		if err != nil {
			return err
		}
		if ok {
			left = append(left, l)
		} else {
			p.lost = append(p.lost, l)
		}
	}
	a.Locks = left
	return nil
}

func endClaimLocks(_ context.Context, p *Pass, r *meta.Result) error {
	r.Locks = append(p.lost, r.Locks...)
	return nil
}

// beginClose lets go of a handle. Of one who changes nothing, by now, nothing is taken down.
func beginClose(p *Pass, a *meta.Args) error {
	if p.rights.ReadOnly && a.Closing.Dirty {
		a.Closing.Dirty, a.Closing.Change = false, meta.Change{}
		p.dropped = true
	}
	return nil
}

func endClose(_ context.Context, p *Pass, _ *meta.Result) error {
	if p.dropped {
		return p.refuse(readOnly, p.isReadOnly())
	}
	return nil
}

func beginCloseMany(p *Pass, a *meta.Args) error {
	for i := range a.Closings {
		if w := &a.Closings[i]; p.rights.ReadOnly && w.Dirty {
			if p.closed == nil {
				p.closed = make([]errs.Kind, len(a.Closings))
			}
			w.Dirty, w.Change = false, meta.Change{}
			p.closed[i] = errs.ReadOnly
		}
	}
	return nil
}

func endCloseMany(_ context.Context, p *Pass, r *meta.Result) error {
	for i, k := range p.closed {
		if k != errs.OK && i < len(r.Ended) && r.Ended[i].Kind == errs.OK {
			r.Ended[i] = meta.Ended{Kind: k}
			_ = p.refuse(readOnly, p.isReadOnly())
		}
	}
	return nil
}
