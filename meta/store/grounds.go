package store

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

var _ meta.Grounds = (*Store)(nil)

// belowMax is of how many directories it is remembered whether they are below another one: some 3
// MiB. When there are more all of it is found out again.
const belowMax = 1 << 16

// below remembers which directories lie below which. Directories seldom get another parent; when
// one does, or its tree is removed, all of it is forgotten. What is gone is never there again, as
// numbers are not used twice: so removals need not be heard of.
type below struct {
	moves atomic.Uint64 // commits that gave a directory another parent

	mu    sync.RWMutex
	at    uint64 // known is as of so many moves
	known map[[2]meta.Ino]bool
}

// find tells what is known as of a number of moves.
func (b *below) find(moves uint64, top, dir meta.Ino) (is, ok bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.at != moves {
		return false, false
	}
	is, ok = b.known[[2]meta.Ino{top, dir}]
	return is, ok
}

// note remembers what was seen in a snapshot that was taken behind so many moves. If there are more
// by now it may be wrong.
func (b *below) note(moves uint64, top, dir meta.Ino, is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if moves != b.moves.Load() {
		return
	}
	if b.known == nil || b.at != moves || len(b.known) >= belowMax {
		b.at, b.known = moves, map[[2]meta.Ino]bool{}
	}
	b.known[[2]meta.Ino{top, dir}] = is
}

// Resolve implements meta.Grounds.
func (s *Store) Resolve(path string) (meta.Ino, error) {
	ino := meta.RootIno
	err := s.look(func(t *txn) error {
		for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			if name == "" {
				continue
			}
			if _, err := t.dir(ino, &meta.Cred{}, maySeek); err != nil {
				return err
			}
			e, err := t.entry(ino, name)
			if err == nil && e == nil {
				err = errs.NotFound
			}
			if err != nil {
				return err
			}
			ino = e.Ino
		}
		_, err := t.dir(ino, &meta.Cred{}, maySeek)
		return err
	})
	return ino, errs.Wrap("meta.Resolve", path, err)
}

// Stand implements meta.Grounds.
func (s *Store) Stand(top, ino meta.Ino) (meta.Standing, error) {
	moves := s.below.moves.Load() // before the snapshot: see note
	if in, ok := s.below.find(moves, top, ino); ok {
		return standing(in), nil
	}
	at := meta.Outside
	err := s.look(func(t *txn) error {
		n, err := t.inode(ino)
		switch {
		case err != nil:
			return err
		case n.has(flagVolume):
			at = meta.IsVolume
			return nil
		case n.isDir():
			in, err := s.isBelow(t, moves, top, ino)
			at = standing(in)
			return err
		}
		at, err = s.standFile(t, moves, top, n)
		return err
	})
	return at, errs.Wrap("meta.Stand", "", err)
}

func standing(inside bool) meta.Standing {
	if inside {
		return meta.Inside
	}
	return meta.Outside
}

// standFile tells where an inode is that is no directory: where its names are.
func (s *Store) standFile(t *txn, moves uint64, top meta.Ino, n *inode) (meta.Standing, error) {
	if n.homes.first.names > 0 {
		in, err := s.isBelow(t, moves, top, n.homes.first.dir)
		if in || err != nil {
			return standing(in), err
		}
	}
	for i := range n.homes.rest {
		in, err := s.isBelow(t, moves, top, n.homes.rest[i].dir)
		if in || err != nil {
			return standing(in), err
		}
	}
	if n.scattered() {
		return meta.Scattered, nil
	}
	return meta.Outside, nil
}

// isBelow tells whether a directory is another one or below it. The way up from one whose tree is
// being removed ends there.
func (s *Store) isBelow(t *txn, moves uint64, top, dir meta.Ino) (bool, error) {
	if in, ok := s.below.find(moves, top, dir); ok {
		return in, nil
	}
	in, err := t.leadsTo(top, dir)
	if err == nil {
		s.below.note(moves, top, dir, in)
	}
	return in, err
}

func (t *txn) leadsTo(top, dir meta.Ino) (bool, error) {
	for range depthMax {
		switch dir {
		case 0: // its tree is being removed
			return false, nil
		case top:
			return true, nil
		case meta.RootIno:
			return false, nil
		}
		n, err := t.inode(dir)
		if errs.KindOf(err) == errs.NotFound || err == nil && !n.isDir() {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		dir = n.Parent
	}
	return false, errs.Newf(errs.Corrupt, "meta.tree", "", "the way up from directory %d has no end",
		dir)
}

// Peek implements meta.Grounds.
func (s *Store) Peek(ino meta.Ino) (a meta.Attr, err error) {
	err = s.look(func(t *txn) error {
		n, err := t.inode(ino)
		if err == nil {
			a = fileAttr(ino, n)
		}
		return err
	})
	return a, errs.Wrap("meta.Peek", "", err)
}

// Opener implements meta.Grounds.
func (s *Store) Opener(ino meta.Ino, prefix string) (uid uint32, open bool) {
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.inodes[ino]
	if o == nil {
		return 0, false
	}
	for i := range o.holders.list {
		h := &o.holders.list[i]
		a := x.byID[h.session]
		if a == nil || !strings.HasPrefix(a.client, prefix) {
			continue
		}
		if w := o.writers[h.session]; w != nil {
			for uid := range w.users {
				return uid, true
			}
		}
		uid, open = h.uid, true
	}
	return uid, open
}

// ClientOf implements meta.Grounds.
func (s *Store) ClientOf(session uint64) (name string, known bool) {
	x := &s.sessions
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.byID[session]
	if a == nil {
		return "", false
	}
	return a.client, true
}
