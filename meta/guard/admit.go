package guard

import (
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// owns refuses a session of somebody else. One that is not there is the service's to refuse; 0 is
// none.
func (p *Pass) owns(session uint64) error {
	if session == 0 {
		return nil
	}
	name, known := p.g.grounds.ClientOf(session)
	if !known || strings.HasPrefix(name, p.prefix) {
		return nil
	}
	return p.refuse(foreignSession, errs.Newf(errs.Stale, "meta."+p.op.String(), "",
		"session %x is not one of client %s", session, p.name))
}

// uses checks the inodes and sessions that a request names.
func (p *Pass) uses(u uses, a *meta.Args) error {
	for _, x := range [...]struct {
		use uses
		ino *meta.Ino
	}{
		{useIno, &a.Ino}, {useDir, &a.Dir}, {useNewDir, &a.NewDir}, {useChange, &a.Change.Ino},
		{useLock, &a.Lock.Ino},
	} {
		if u&x.use == 0 || x.use == useLock && a.Mode == meta.LockCancel {
			continue
		}
		if err := p.admit(x.ino); err != nil {
			return err
		}
	}
	if u&useSession != 0 {
		return p.owns(a.Session)
	}
	return nil
}

// admit refuses an inode that is not the client's business. The root is the top of its subtree.
func (p *Pass) admit(ino *meta.Ino) error {
	ok, err := p.mine(ino)
	switch {
	case err != nil:
		return err
	case ok:
		return nil
	case p.missing != nil:
		return p.refuse(noPath, p.missing)
	}
	return p.refuse(outside, errs.Newf(errs.NotFound, "meta."+p.op.String(), "",
		"inode %d is not below %s, which is all that client %s may see", *ino, p.rights.Path, p.name))
}

// mine tells whether an inode is the client's business.
func (p *Pass) mine(ino *meta.Ino) (bool, error) {
	if *ino == meta.RootIno && p.missing == nil {
		*ino = p.top
		return true, nil
	}
	at := meta.Outside
	if p.missing == nil || len(p.rights.Volumes) > 0 {
		var err error
		at, err = p.g.grounds.Stand(p.top, *ino)
		switch {
		case errs.KindOf(err) == errs.NotFound:
			return true, nil // for the service to say
		case err != nil:
			return false, err
		}
	}
	switch {
	case at == meta.Inside, at == meta.Scattered && p.reached.has(*ino):
		return true, nil
	case at == meta.IsVolume:
		if ok, err := p.isItsVolume(*ino); ok || err != nil {
			return ok, err
		}
	}
	_, open := p.g.grounds.Opener(*ino, p.prefix)
	return open, nil
}

// beginScan leaves out directories that are not the client's.
func beginScan(p *Pass, a *meta.Args) error {
	own := a.Scan.Also[:0]
	for _, dir := range a.Scan.Also {
		switch ok, err := p.mine(&dir); {
		case err != nil:
			return err
		case ok:
			own = append(own, dir)
		}
	}
	a.Scan.Also = own
	return nil
}

// beginDots keeps a client from going up from its root: it is its own parent.
func beginDots(p *Pass, a *meta.Args) error {
	if a.Name == ".." && a.Dir == p.top {
		a.Name = "."
	}
	return nil
}

// beginAccessed leaves out what is not the client's business, and everything of one that changes
// nothing: nobody is told that, as a file system that is read-only does not tell it either.
func beginAccessed(p *Pass, a *meta.Args) error {
	left := a.Accesses[:0]
	for _, x := range a.Accesses {
		if p.rights.ReadOnly {
			break
		}
		ok, err := p.mine(&x.Ino)
		if err != nil {
			return err
		}
		if ok {
			left = append(left, x)
		}
	}
	a.Accesses = left
	return nil
}

// beginOpen refuses to open for writing who changes nothing.
func beginOpen(p *Pass, a *meta.Args) error {
	if p.rights.ReadOnly && a.Open&(meta.OpenWrite|meta.OpenTruncate) != 0 {
		return p.refuse(readOnly, p.isReadOnly())
	}
	return nil
}

// beginStatFS tells of the subtree, or of the cluster where there is none. It refuses nobody.
func beginStatFS(p *Pass, a *meta.Args) error {
	ok, err := p.mine(&a.Ino)
	switch {
	case err != nil:
		return err
	case p.missing != nil:
		a.Ino = 0
	case !ok:
		a.Ino = p.top
	}
	return nil
}

// beginUnlock is for locks of the client's own session, wherever their files are by now.
func beginUnlock(p *Pass, a *meta.Args) error {
	if a.Lock.Ino == meta.RootIno {
		a.Lock.Ino = p.top
	}
	return nil
}
