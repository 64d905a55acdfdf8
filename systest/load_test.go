package systest

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
)

// load is every kind of program at once on one cluster, each of which knows what must be there:
// files that are appended to and synced, small files that come and go, blocks of a volume.
type load struct {
	c     *cluster
	gate  *gateway
	files []*fileWriter
	names *nameWriter
	block *blockWriter

	stop chan struct{}
	wg   sync.WaitGroup
}

func newLoad(t *testing.T, c *cluster, rng *rand.Rand) *load {
	c.sluice(t, "volume", "create", "disk", strconv.Itoa(blocks*blockBytes))
	gate := newGateway(t, c)
	return &load{c: c, gate: gate,
		files: []*fileWriter{newFileWriter(c, "a", rng.Uint64()), newFileWriter(c, "b", rng.Uint64())},
		names: newNameWriter(t, c, "names", rng.Uint64()),
		block: newBlockWriter(gate.sock, rng.Uint64())}
}

func (l *load) start(t *testing.T) {
	l.stop = make(chan struct{})
	for _, w := range l.files {
		l.wg.Go(func() { w.run(t, l.stop) })
	}
	l.wg.Go(func() { l.names.run(t, l.stop) })
	l.wg.Go(func() { l.block.run(t, l.stop) })
}

// finish ends what runs: every operation that was begun has returned.
func (l *load) finish() {
	close(l.stop)
	l.wg.Wait()
}

// verify compares every byte that was acknowledged as durable, and every name.
func (l *load) verify(t *testing.T, round int, after string) {
	t.Helper()
	for _, w := range l.files {
		w.verify(t, round, after)
	}
	l.names.verify(t, after)
	l.block.verify(t, round, after)
}

// progress is how many operations have succeeded.
func (l *load) progress() int64 {
	return l.files[0].synced.Load() + l.files[1].synced.Load() + l.names.done.Load() +
		l.block.flushed.Load()
}

// failures is how many operations have not.
func (l *load) failures() int64 {
	n := l.files[0].failed.Load() + l.files[1].failed.Load() + l.block.failed.Load()
	l.names.mu.Lock()
	defer l.names.mu.Unlock()
	for _, k := range l.names.failures {
		n += int64(k)
	}
	return n
}
