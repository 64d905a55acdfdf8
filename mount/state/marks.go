package state

import "sync/atomic"

// Mark notes that data of an inode is nowhere but in this process.
func (t *Table) Mark(ino uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.marked[ino]; there || ino == 0 {
		return
	}
	var at int
	switch n := len(t.gaps); {
	case n > 0:
		at, t.gaps = t.gaps[n-1], t.gaps[:n-1]
	case t.marks < marksMax:
		at = t.marks
		t.marks++
	default:
		t.word(atOverflow).Store(1)
		return
	}
	t.marked[ino] = at
	t.mark(at).Store(ino)
}

// Unmark notes that this is not so any more.
func (t *Table) Unmark(ino uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, there := t.marked[ino]; there {
		t.mark(at).Store(0)
		delete(t.marked, ino)
		t.gaps = append(t.gaps, at)
	}
}

// Marked lists the inodes that are marked. all: there were more than there is room for, so that
// every one must be taken for marked.
func (t *Table) Marked() (list []uint64, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ino := range t.marked {
		list = append(list, ino)
	}
	return list, t.word(atOverflow).Load() != 0
}

// Settled notes that all that was marked was seen to.
func (t *Table) Settled() { t.word(atOverflow).Store(0) }

func (t *Table) mark(i int) *atomic.Uint64 { return t.word(atMarks + i*markBytes) }

// Append is where a request that appends was about to write.
type Append struct {
	Request uint64
	Ino     uint64
	Off, N  int64
}

// NoteAppend notes that. The latest appendsMax are remembered: more than can be without an answer.
func (t *Table) NoteAppend(a Append) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := atAppends + int(t.appended%appendsMax)*appendBytes
	t.appended++
	t.word(at).Store(0)
	t.word(at + 8).Store(a.Ino)
	t.word(at + 16).Store(uint64(a.Off))
	t.word(at + 24).Store(uint64(a.N))
	t.word(at).Store(a.Request)
	t.word(atAppended).Store(t.appended)
}

// Appends are those that are remembered, by their requests. Of a request that was noted more than
// once the last one counts.
func (t *Table) Appends() map[uint64]Append {
	all := map[uint64]Append{}
	for i := range uint64(appendsMax) {
		at := atAppends + int((t.appended+i)%appendsMax)*appendBytes
		a := Append{Request: t.word(at).Load(), Ino: t.word(at + 8).Load(),
			Off: int64(t.word(at + 16).Load()), N: int64(t.word(at + 24).Load())}
		if a.Request != 0 && a.Off >= 0 && a.N >= 0 {
			all[a.Request] = a
		}
	}
	return all
}
