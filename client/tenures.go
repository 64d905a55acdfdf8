package client

import (
	"context"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Directories that were there before this client came.
//
// Where this client knows all names of a directory, or those of a number of files that it may be
// about to remove, and changes some, it asks for the directory (meta.Hold), and goes on as in one
// that it has made. What it has made itself nobody else can know; of a file that was there before
// it must have been told that nobody else has a lease on it or has it open, so it asks for those
// that a program will remove next as well. One question costs as much as one removal. Where it was
// in vain it is not asked again for a while.

// Bounds of when directories are asked for.
const (
	wishesMax  = 256 // directories that are remembered
	holdFiles  = 256 // files that are asked for at once
	holdAgain  = 2   // where it was in vain it is not asked again for half of a lease's time
	makesFirst = 2   // things that are made before the directory is asked for
	knownFirst = 16  // files of a directory whose names are not all known, before it is asked for
)

// wishes remember for which directories it is worthwhile to ask.
type wishes struct {
	dirs  map[meta.Ino]*wish
	never uint64        // the session that gets none
	again time.Duration // instead of holdAgain, if not 0
}

// wish is what happened in a directory that is not held.
type wish struct {
	made  int       // so many things in a row
	after time.Time // not before
}

// ofLocked is what is remembered of a directory.
func (w *wishes) ofLocked(dir meta.Ino) *wish {
	if w.dirs[dir] == nil {
		if len(w.dirs) >= wishesMax {
			clear(w.dirs)
		}
		if w.dirs == nil {
			w.dirs = map[meta.Ino]*wish{}
		}
		w.dirs[dir] = &wish{}
	}
	return w.dirs[dir]
}

// pause is until when a directory is not asked for where it was in vain.
func (w *wishes) pause(s *session) time.Time {
	if w.again != 0 {
		return time.Now().Add(w.again)
	}
	return time.Now().Add(s.leases / holdAgain)
}

// holdToMake tells whether a directory is held in which something is to be made, and asks for it if
// it is time.
func (fs *FS) holdToMake(ctx context.Context, dir meta.Ino) bool {
	d := &fs.deferral
	d.mu.Lock()
	if d.dirs[dir] != nil {
		d.mu.Unlock()
		return true
	}
	w := d.wishes.ofLocked(dir)
	w.made++
	ask := w.made > makesFirst && fs.mayAskLocked(w)
	d.mu.Unlock()
	if _, whole := fs.cache.Files(dir, 0, 0, 0); !ask || !whole {
		return false
	}
	return fs.hold(ctx, dir, nil)
}

// holdToRemove is holdToMake for a name that is to be removed. It asks for a file that is not known
// to be nobody else's, and those behind it, or for the directory that is to be removed, too.
func (fs *FS) holdToRemove(ctx context.Context, dir meta.Ino, name string, isDir bool) bool {
	ino, _, known := fs.cache.Ino(dir, name)
	if !known || ino == 0 || isDir && !fs.cache.Empty(ino) {
		return fs.holdsDir(dir)
	}
	d := &fs.deferral
	d.mu.Lock()
	n, inner := d.dirs[dir], d.dirs[ino]
	own := isDir || d.births[ino] != nil || n != nil && fs.cache.Tenure(ino) == n.id
	ask := (n == nil || !own) && fs.mayAskLocked(d.wishes.ofLocked(dir))
	d.mu.Unlock()
	if ask {
		files, whole := fs.cache.Files(dir, ino, n.number(), holdFiles)
		if n == nil && whole || n != nil && len(files) > 0 || len(files) >= knownFirst {
			fs.hold(ctx, dir, files)
		}
	}
	held := fs.holdsDir(dir)
	if held && isDir && inner == nil && fs.mayAsk(ino) {
		fs.hold(ctx, ino, nil)
	}
	return held
}

func (fs *FS) mayAsk(dir meta.Ino) bool {
	d := &fs.deferral
	d.mu.Lock()
	defer d.mu.Unlock()
	return fs.mayAskLocked(d.wishes.ofLocked(dir))
}

// mayAskLocked tells whether a directory may be asked for.
func (fs *FS) mayAskLocked(w *wish) bool {
	d := &fs.deferral
	now := time.Now()
	return fs.cache.Valid() && d.wishes.never != fs.sess.Load().id && !now.Before(w.after) &&
		!now.Before(d.off)
}

// hold asks for a directory, and for files in it.
func (fs *FS) hold(ctx context.Context, dir meta.Ino, files []meta.Ino) bool {
	a, ok := fs.cache.Rights(dir)
	if !ok || a.Mode&^plainMode != 0 || a.Default != "" {
		return false
	}
	d := &fs.deferral
	s, epoch, t := fs.sess.Load(), fs.leases.current(), fs.cache.Begin()
	out, err := fs.svc.Hold(ctx, meta.Caller{Session: s.id, Leases: true}, dir, files)
	d.mu.Lock()
	defer d.mu.Unlock()
	if errs.KindOf(err) == errs.Perm {
		d.wishes.never = s.id
	}
	if err != nil || out[0].Lease != meta.LeaseSole || !fs.cache.Granted(t, dir) ||
		fs.sess.Load() != s || fs.leases.current() != epoch {
		d.wishes.ofLocked(dir).after = d.wishes.pause(s)
		return d.dirs[dir] != nil
	}
	n := d.dirs[dir]
	if n == nil {
		n = d.holdLocked(dir, s.id, epoch, out[0].Serial)
		d.stats.Held++
		fs.numbersLocked()
	}
	alone := make([]meta.Ino, 0, len(files))
	for i, ino := range files {
		if out[1+i].Lease == meta.LeaseWrite {
			alone = append(alone, ino)
		}
	}
	fs.cache.Alone(t, n.id, alone)
	if len(alone) < len(files) { // others use some of them
		d.wishes.ofLocked(dir).after = d.wishes.pause(s)
	} else {
		delete(d.wishes.dirs, dir)
	}
	return true
}
