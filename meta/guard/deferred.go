package guard

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// beginTellMany is for what a client has done by itself, and has checked by itself that its users
// may do: it must be believed whoever it speaks for. (Who is not gets no directory alone: see
// beginMake.) Directories that are made by the same request are not there yet.
func beginTellMany(p *Pass, a *meta.Args) error {
	if p.rights.Squash != identity.SquashNone {
		return p.refuse(notForClients, p.forbidden("its users are not believed to have been checked"))
	}
	var last, is meta.Ino // as the client says, and what that is
	for i := range a.Deferred {
		dir := &a.Deferred[i].Dir
		if *dir == last {
			*dir = is
			continue
		}
		last = *dir
		ok, err := p.mine(dir)
		if err != nil {
			return err
		}
		if !ok {
			return p.refuse(outside, errs.Newf(errs.Fenced, "meta.tellmany", "",
				"directory %d is not below %s any more", *dir, p.rights.Path))
		}
		is = *dir
	}
	return nil
}

// beginHold keeps a client from directories that it could not use: see beginTellMany.
func beginHold(p *Pass, _ *meta.Args) error {
	if p.rights.Squash != identity.SquashNone {
		return p.refuse(notForClients, p.forbidden("its users are not believed to have been checked"))
	}
	return nil
}
