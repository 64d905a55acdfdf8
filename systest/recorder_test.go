package systest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// recorder is a client of a block device with several connections that knows what must be there. It
// overwrites blocks with rising versions; some writes are zeroes. One write of a block is under way
// at a time, so that versions have an order.
//
// What an FUA write or a FLUSH covered (every write that was answered before it was sent, on any
// connection) is durable. After a crash each block holds a version that is neither older than the
// durable one nor newer than the last that was sent; nothing in between, because a block is written
// whole or not at all.
type recorder struct {
	sock  string
	conns int
	seed  uint64

	size  uint64 // and flags: those of the first connection, which must stay
	flags uint16

	covered atomic.Int64 // blocks that became durable
	lost    atomic.Int64 // connections
	reads   atomic.Int64

	mu      sync.Mutex
	life    int // of what holds unsynced writes; see forget
	busy    [blocks]bool
	issued  [blocks]uint64
	acked   [blocks]uint64
	durable [blocks]uint64
	zeroes  [blocks]map[uint64]bool // versions that are zeroes
}

func newRecorder(sock string, conns int, seed uint64) *recorder {
	r := &recorder{sock: sock, conns: conns, seed: seed}
	for b := range r.zeroes {
		r.zeroes[b] = map[uint64]bool{0: true}
	}
	return r
}

const nbdCmdZeroes = 6

// run works on all connections until stop; each that breaks is made anew.
func (r *recorder) run(t *testing.T, stop chan struct{}) {
	var wg sync.WaitGroup
	for i := range r.conns {
		rng := rand.New(rand.NewPCG(r.seed, uint64(i)))
		r.seed++
		wg.Go(func() {
			for !isClosed(stop) {
				if err := r.work(rng, stop); err != nil {
					if errors.Is(err, errWrong) {
						t.Error(err)
						return
					}
					r.lost.Add(1)
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// errWrong is what must not happen, whoever was killed.
var errWrong = errors.New("wrong")

// forget is called when everybody who had writes that were not durable is dead, and nobody has
// taken their place: no flush from now on covers them.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life++
	r.acked = r.durable
}

func (r *recorder) present() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.life
}

// dial connects. The device must look the same each time.
func (r *recorder) dial() (*nbdClient, error) {
	c, err := dialNBD("unix", r.sock, "disk")
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size == 0 {
		r.size, r.flags = c.size, c.flags
	}
	if c.size != r.size || c.flags != r.flags {
		c.close()
		return nil, fmt.Errorf("%w: size %d flags %#x were size %d flags %#x", errWrong, c.size, c.flags,
			r.size, r.flags)
	}
	return c, nil
}

// work does requests on one connection.
func (r *recorder) work(rng *rand.Rand, stop chan struct{}) error {
	life := r.present() // before it connects: those who come later are not behind this connection
	c, err := r.dial()
	if err != nil {
		return err
	}
	defer c.close()
	for err == nil && !isClosed(stop) {
		switch n := rng.IntN(16); {
		case n < 2:
			err = r.flush(c)
		case n < 5:
			err = r.read(c, rng)
		default:
			err = r.write(c, rng, life, n < 8, n == 15)
		}
	}
	return err
}

// take finds blocks that nobody writes and marks them.
func (r *recorder) take(rng *rand.Rand) (first, n int) {
	for {
		n = 1 + rng.IntN(runBlocks)
		first = rng.IntN(blocks - n + 1)
		free := true
		r.mu.Lock()
		for b := first; b < first+n; b++ {
			free = free && !r.busy[b]
		}
		for b := first; b < first+n && free; b++ {
			r.busy[b] = true
		}
		r.mu.Unlock()
		if free {
			return first, n
		}
	}
}

func (r *recorder) give(first, n int) {
	for b := first; b < first+n; b++ {
		r.busy[b] = false
	}
}

func (r *recorder) write(c *nbdClient, rng *rand.Rand, life int, fua, zero bool) error {
	first, n := r.take(rng)
	var p []byte
	r.mu.Lock()
	for b := first; b < first+n; b++ {
		r.issued[b]++
		if zero {
			r.zeroes[b][r.issued[b]] = true
		} else {
			p = append(p, block(b, r.issued[b])...)
		}
	}
	r.mu.Unlock()
	var err error
	off, length := uint64(first)*blockBytes, uint32(n*blockBytes)
	if zero {
		var flags uint16
		if fua {
			flags = nbdFlagFUA
		}
		err = c.do(nbdCmdZeroes, flags, off, length, nil, nil)
	} else {
		err = c.write(p, off, fua)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.give(first, n)
	for b := first; b < first+n && err == nil; b++ {
		if fua {
			r.cover(b, r.issued[b])
		}
		if fua || life == r.life {
			r.acked[b] = r.issued[b]
		}
	}
	return err
}

func (r *recorder) cover(b int, v uint64) {
	if v > r.durable[b] {
		r.durable[b] = v
		r.covered.Add(1)
	}
}

// flush covers what was answered before it is sent.
func (r *recorder) flush(c *nbdClient) error {
	r.mu.Lock()
	before := r.acked
	r.mu.Unlock()
	if err := c.flush(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for b, v := range before {
		r.cover(b, v)
	}
	return nil
}

// read reads blocks that nobody writes: they are what was acknowledged last, whichever connection
// wrote them, unless a write of theirs was cut off.
func (r *recorder) read(c *nbdClient, rng *rand.Rand) error {
	first, n := r.take(rng)
	p := make([]byte, n*blockBytes)
	err := c.read(p, uint64(first)*blockBytes)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.give(first, n)
	for b := first; b < first+n && err == nil; b++ {
		err = r.checkLocked(b, p[(b-first)*blockBytes:][:blockBytes], r.acked[b])
	}
	r.reads.Add(1)
	return err
}

// checkLocked compares a block with what may be there: versions from oldest on.
func (r *recorder) checkLocked(b int, p []byte, oldest uint64) error {
	if len(bytes.Trim(p, "\x00")) == 0 {
		for v := oldest; v <= r.issued[b]; v++ {
			if r.zeroes[b][v] {
				return nil
			}
		}
		return fmt.Errorf("%w: block %d is zeroes; it was at %d, durable %d, sent %d", errWrong, b,
			r.acked[b], r.durable[b], r.issued[b])
	}
	v := binary.LittleEndian.Uint64(p)
	if v < oldest || v > r.issued[b] || r.zeroes[b][v] {
		return fmt.Errorf("%w: block %d holds version %d; it was at %d, durable %d, sent %d", errWrong, b,
			v, r.acked[b], r.durable[b], r.issued[b])
	}
	if !bytes.Equal(p, block(b, v)) {
		return fmt.Errorf("%w: block %d is torn at version %d", errWrong, b, v)
	}
	return nil
}

// verify reads everything after something was killed. Where nothing that was acknowledged may be
// lost, kept is true. What was not durable and is gone is forgotten.
func (r *recorder) verify(kept bool) error {
	c, err := r.dialPatiently()
	if err != nil {
		return err
	}
	defer c.close()
	var wrong []error
	p := make([]byte, runBlocks*blockBytes)
	for first := 0; first < blocks; first += runBlocks {
		if err := c.read(p, uint64(first)*blockBytes); err != nil {
			return err
		}
		r.mu.Lock()
		for b := first; b < first+runBlocks; b++ {
			q := p[(b-first)*blockBytes:][:blockBytes]
			oldest := r.durable[b]
			if kept {
				oldest = r.acked[b]
			}
			if err := r.checkLocked(b, q, oldest); err != nil {
				wrong = append(wrong, err)
			}
			if len(bytes.Trim(q, "\x00")) == 0 {
				r.acked[b] = r.oldestZero(b, oldest)
			} else {
				r.acked[b] = min(r.acked[b], binary.LittleEndian.Uint64(q))
			}
		}
		r.mu.Unlock()
	}
	return errors.Join(wrong[:min(len(wrong), 10)]...)
}

// oldestZero is the least that zeroes may stand for.
func (r *recorder) oldestZero(b int, from uint64) uint64 {
	for v := from; v < r.acked[b]; v++ {
		if r.zeroes[b][v] {
			return v
		}
	}
	return r.acked[b]
}

// dialPatiently waits for a server that is being started.
func (r *recorder) dialPatiently() (c *nbdClient, err error) {
	for deadline := time.Now().Add(readyLimit); ; time.Sleep(20 * time.Millisecond) {
		c, err = r.dial()
		if err == nil || errors.Is(err, errWrong) || time.Now().After(deadline) {
			return c, err
		}
	}
}
