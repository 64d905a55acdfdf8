package state

// A record of a life takes 2 words:
//
//	0  server     its number, and 1 more; 0: the record is free
//	1  verifier   of the life in which it has acknowledged what is not synced
//
// Records are never given back: there are as many as a process has met servers.

// SetLife notes in which life a server has what it has acknowledged to this process. false: there
// is no room for another server.
func (t *Table) SetLife(server uint32, verifier uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, known := t.lives[server]
	if !known {
		if i = len(t.lives); i == livesMax {
			return false
		}
		t.lives[server] = i
	}
	t.word(atLives + i*lifeBytes + 8).Store(verifier)
	t.word(atLives + i*lifeBytes).Store(uint64(server) + 1)
	return true
}

// Lives are what SetLife has noted.
func (t *Table) Lives() map[uint32]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[uint32]uint64, len(t.lives))
	for server, i := range t.lives {
		all[server] = t.word(atLives + i*lifeBytes + 8).Load()
	}
	return all
}

// loadLives finds the records. One that was not finished ends them.
func (t *Table) loadLives() {
	t.lives = map[uint32]int{}
	for i := range livesMax {
		server := t.word(atLives + i*lifeBytes).Load()
		if _, twice := t.lives[uint32(server-1)]; server == 0 || server > 1<<32 || twice {
			return
		}
		t.lives[uint32(server-1)] = i
	}
}

// SetUnsynced notes that what was written through a handle may be in the memory of servers only, or
// that it is not.
func (t *Table) SetUnsynced(slot int, is bool) { t.changeBit(slot, Unsynced, is) }
