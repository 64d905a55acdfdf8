package client

import (
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// What was written and not synced survives the death of an I/O server, because this process sends
// it again, and the death of this process, because the server has it. It does not survive both. A
// process that goes on in the place of a dead one finds that out if it knows in which life each
// server had acknowledged what the dead one wrote: the server that syncs it must be in the same.

// living is a data service that knows the lives of its servers: iod/remote.
type living interface {
	Lives(fn func(server uint32, verifier uint64))
	LifeChanges() uint64
	Kept(fn func(file uint64))
}

// LifeChanges is raised whenever Lives may tell something else. It costs next to nothing.
func (fs *FS) LifeChanges() uint64 {
	n := fs.heritage.settled.Load()
	if l, ok := fs.keep.(living); ok {
		n += l.LifeChanges()
	}
	return n
}

// Lives tells in which life each server has all that was acknowledged and not synced: what another
// process must know if this one dies. A server is left out while something was not sent to it
// again, or while something that an earlier process has written is not known to be safe.
func (fs *FS) Lives() map[uint32]uint64 {
	all := map[uint32]uint64{}
	l, ok := fs.keep.(living)
	if !ok {
		return all
	}
	l.Lives(func(server uint32, verifier uint64) { all[server] = verifier })
	for _, n := range fs.allInodes() {
		n.mu.Lock()
		for i, u := range n.stripes {
			if u.under != 0 && i < n.attr.Layout.Width() && all[n.attr.Layout.Servers[i]] != u.under {
				delete(all, n.attr.Layout.Servers[i])
			}
		}
		n.mu.Unlock()
	}
	return all
}

// Unsynced lists the files of which something was written that is not durable, as far as this
// client knows of it.
func (fs *FS) Unsynced() map[meta.Ino]bool {
	all := map[meta.Ino]bool{}
	if l, ok := fs.keep.(living); ok {
		l.Kept(func(file uint64) { all[meta.Ino(file)] = true })
	}
	for _, n := range fs.allInodes() {
		n.mu.Lock()
		for _, u := range n.stripes {
			if u.under != 0 {
				all[n.ino] = true
			}
		}
		n.mu.Unlock()
	}
	return all
}

// Unsynced tells whether something was written to the file, by any handle of this client, and no
// Sync came since.
func (f *File) Unsynced() bool {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	for _, u := range f.node.stripes {
		if u.pending || u.under != 0 {
			return true
		}
	}
	return f.node.small.Load() && (f.node.dirty || f.node.taken)
}

// InheritUnsynced is for a file that a process which has died had written to and not synced, when
// the servers were in the lives that Lives has told. A server that is found in another one by Sync
// may have lost it, and Sync fails.
func (f *File) InheritUnsynced(lives map[uint32]uint64) {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.small.Load() {
		return
	}
	for i, server := range f.grant.Load().layout.Servers {
		if verifier := lives[server]; verifier != 0 && i < len(n.stripes) {
			n.stripes[i].pending, n.stripes[i].under = true, verifier
		}
	}
}

// inherited settles what an earlier process has left at a server that has synced it just now.
func (f *File) inherited(server uint32, s int, was unsynced, verifier uint64) {
	if was.under == 0 {
		return
	}
	f.node.mu.Lock()
	if f.node.stripes[s].under == was.under {
		f.node.stripes[s].under = 0
		if verifier != was.under {
			f.node.loseLocked(errs.Newf(errs.IO, "client.Sync", serverName(server), "the server and the "+
				"process that wrote to the file have both died: what was not synced may be lost"))
		}
	}
	f.node.mu.Unlock()
	f.fs.heritage.settled.Add(1)
}
