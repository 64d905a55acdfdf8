package peer

import (
	"sync"
	"time"
)

// missPause is how long a step that failed is not tried again with the same server.
const missPause = time.Minute

// misses remembers which steps failed recently.
type misses struct {
	mu   sync.Mutex
	list map[string]miss
}

type miss struct {
	err   error
	until time.Time
}

const maxMisses = 1024

func (m *misses) recent(key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x, ok := m.list[key]; ok && time.Now().Before(x.until) {
		return x.err
	}
	return nil
}

func (m *misses) note(key string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list == nil || len(m.list) >= maxMisses {
		m.list = map[string]miss{}
	}
	m.list[key] = miss{err, time.Now().Add(missPause)}
}
