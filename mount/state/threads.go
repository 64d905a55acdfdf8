package state

// A thread takes one word: its number; 0: the place is free. There is room for as many as are about
// to repeat a request at the same moment; others are not noted.

// NoteThread notes that a thread was told to repeat its request.
func (t *Table) NoteThread(pid uint32) {
	if pid == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	free := -1
	for i := range threadsMax {
		switch t.word(atThreads + 8*i).Load() {
		case uint64(pid):
			return
		case 0:
			free = i
		}
	}
	if free >= 0 {
		t.word(atThreads + 8*free).Store(uint64(pid))
	}
}

// ForgetThread notes that it has, or will not.
func (t *Table) ForgetThread(pid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range threadsMax {
		if w := t.word(atThreads + 8*i); w.Load() == uint64(pid) {
			w.Store(0)
		}
	}
}

// Threads are those that are noted.
func (t *Table) Threads() (list []uint32) {
	for i := range threadsMax {
		if pid := t.word(atThreads + 8*i).Load(); pid != 0 && pid < 1<<32 {
			list = append(list, uint32(pid))
		}
	}
	return list
}
