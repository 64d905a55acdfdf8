package peer

import (
	"sync"
	"time"
)

// A way that failed is not tried again with the same server for a while, which doubles with each
// failure in a row.
const (
	missFirst = time.Second
	missMax   = 30 * time.Second
)

// misses remembers which ways failed recently.
type misses struct {
	mu   sync.Mutex
	list map[string]miss
}

type miss struct {
	err   error
	until time.Time
	pause time.Duration
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
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	x, known := m.list[key]
	if m.list == nil || !known && len(m.list) >= maxMisses {
		m.list = map[string]miss{}
	}
	x.pause = min(2*x.pause, missMax)
	if x.pause == 0 || now.Sub(x.until) > missMax { // the first, or the first after a good while
		x.pause = missFirst
	}
	m.list[key] = miss{err, now.Add(x.pause), x.pause}
}

// forget notes that a way works.
func (m *misses) forget(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.list, key)
}
