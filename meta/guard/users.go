package guard

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/perm"
)

// believe makes of the user who asks the one who is believed.
//
// The library itself acts as root on files that it has open: it cuts them, tells what was written,
// and opens them again for another session. Where root is not believed these are done as the user
// who has the file open. That gives nobody more than he has: the client could have named that user.
func (p *Pass) believe(u uses, a *meta.Args) {
	c := &a.Caller.Cred
	if p.asRoot {
		*c = meta.Cred{}
		return
	}
	root := c.UID == 0
	c.UID, c.GID, c.Groups = p.rights.Believe(c.UID, c.GID, c.Groups)
	if !root || p.rights.Squash != identity.SquashRoot {
		return
	}
	ino := meta.Ino(0)
	switch {
	case u&useIno != 0:
		ino = a.Ino
	case u&useChange != 0:
		ino = a.Change.Ino
	default:
		return
	}
	if uid, open := p.g.grounds.Opener(ino, p.prefix); open && uid != 0 {
		c.UID = uid
	}
}

// beginMake takes back what the client's kernel has found about its user (meta.NewFile.Checked):
// only who is believed to be root is believed to have checked.
func beginMake(p *Pass, a *meta.Args) error {
	if p.rights.Squash != identity.SquashNone {
		a.File.Checked, a.File.Sole = false, false
	}
	return nil
}

// mayClaim tells whether a client could open a file as it claims to have it open. The service
// believes claims, whatever modes say by now; so they must give nobody what no user gives him for
// whom he may speak. Groups are not told with claims: all count but that of root.
func (p *Pass) mayClaim(w *meta.Claimed) (bool, error) {
	if p.rights.Squash == identity.SquashNone {
		return true, nil
	}
	if _, open := p.g.grounds.Opener(w.Ino, p.prefix); open {
		return true, nil
	}
	a, err := p.g.grounds.Peek(w.Ino)
	if err != nil {
		return errs.KindOf(err) == errs.NotFound, notGone(err)
	}
	uid, gid, _ := p.rights.Believe(w.UID, a.GID, nil)
	if a.UID == uid || p.rights.Squash == identity.SquashRoot && a.UID != 0 {
		return true, nil
	}
	var want uint32
	if w.Flags&meta.OpenRead != 0 {
		want |= perm.Read
	}
	if w.Flags&meta.OpenWrite != 0 {
		want |= perm.Write
	}
	s := perm.Of(&a)
	if a.ACL != "" && p.rights.Squash == identity.SquashRoot && a.Mode&0o070 != 0 {
		any := func(gid uint32) bool { return gid != 0 }
		return a.ACL.Allows(uid, a.GID, any, want), nil
	}
	return perm.Allowed(&meta.Cred{UID: uid, GID: gid}, s, want), nil
}

// notGone is an error unless it says that something is gone.
func notGone(err error) error {
	if errs.KindOf(err) == errs.NotFound {
		return nil
	}
	return err
}
