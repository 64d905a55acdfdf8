package mount

import (
	"github.com/sluice-storage/sluice/meta"
)

// What programs have written, and not synced, is kept by this process until it is durable, and sent
// again when an I/O server dies. If both die it may be lost. So that the next process can tell, the
// table says which open files have such data (state.Unsynced), and in which lives the servers have
// it (state.SetLife): whoever syncs finds a server in another one.

// unsynced are the open files, by inodes and numbers, of which that is noted. Guarded by kept.mu.
type unsynced map[meta.Ino]map[uint64]*file

func (u unsynced) add(ino meta.Ino, number uint64, f *file) {
	if u[ino] == nil {
		u[ino] = map[uint64]*file{}
	}
	u[ino][number] = f
}

func (u unsynced) remove(ino meta.Ino, number uint64) {
	if delete(u[ino], number); len(u[ino]) == 0 {
		delete(u, ino)
	}
}

// noteUnsynced notes that something was written through a handle: before the program hears of it,
// and when it has left this process, or is marked as being nowhere else.
func (b *bridge) noteUnsynced(f *file, number uint64) {
	k := b.kept
	if k == nil {
		return
	}
	b.noteLives()
	k.noteUnsynced(f, number)
}

func (k *kept) noteUnsynced(f *file, number uint64) {
	if f.unsynced.Add(1) > 1 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if slot, ok := k.slots[number]; ok && f.unsynced.Load() > 0 {
		k.unsynced.add(f.Ino(), number, f)
		k.table.SetUnsynced(slot, true)
	}
}

// noteLives notes the lives of servers, if one has changed.
func (b *bridge) noteLives() {
	if b.kept == nil {
		return
	}
	now := b.fs.LifeChanges()
	if b.kept.lives.Load() == now {
		return
	}
	for server, verifier := range b.fs.Lives() {
		b.kept.table.SetLife(server, verifier)
	}
	b.kept.lives.Store(now) // what has changed since then is noted by the next one
}

// passUnsynced is for a handle that goes away: the file may be open by others, which have to tell
// of a loss.
func (b *bridge) passUnsynced(f *file, number uint64) {
	if b.kept == nil || f.unsynced.Load() == 0 {
		return
	}
	for other, also := range b.files.numbered() {
		if also.Ino() == f.Ino() {
			b.noteUnsynced(also, other)
		}
	}
	b.kept.mu.Lock()
	defer b.kept.mu.Unlock()
	b.kept.unsynced.remove(f.Ino(), number)
}

// written is how much was written through a handle when it was looked at.
type written struct {
	f      *file
	number uint64
	count  uint64
}

// writtenTo lists the handles of a file that something was written through and not synced; of all
// files, if it is 0.
func (k *kept) writtenTo(ino meta.Ino) (list []written) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.unsynced
	if ino != 0 {
		of = unsynced{ino: k.unsynced[ino]}
	}
	for _, handles := range of {
		for number, f := range handles {
			list = append(list, written{f, number, f.unsynced.Load()})
		}
	}
	return list
}

// synced takes the note away from handles, unless something was written since they were listed.
func (k *kept) synced(list []written) {
	if len(list) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range list {
		if !w.f.unsynced.CompareAndSwap(w.count, 0) {
			continue
		}
		k.unsynced.remove(w.f.Ino(), w.number)
		if slot, ok := k.slots[w.number]; ok {
			k.table.SetUnsynced(slot, false)
		}
	}
}

// settleUnsynced takes the note away from handles of files that are durable by now. What is about
// to leave this process counts as not durable; so it is looked for first where data comes from.
func (b *bridge) settleUnsynced() {
	b.noteLives()
	var list []written
	for _, w := range b.kept.writtenTo(0) {
		if !b.unsaved(w.f.Ino()) {
			list = append(list, w)
		}
	}
	if len(list) == 0 {
		return
	}
	open, durable := b.fs.Unsynced(), list[:0]
	for _, w := range list {
		if !open[w.f.Ino()] {
			durable = append(durable, w)
		}
	}
	b.kept.synced(durable)
}
