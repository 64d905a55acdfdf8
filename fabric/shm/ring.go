package shm

import "sync/atomic"

// A ring is filled by one side and emptied by the other. The indices count bytes and do not wrap;
// both are multiples of 64. The first word of a frame is written last, and the word behind the last
// frame is 0, so that the consumer polls one place only, where the next frame will be. Therefore
// one line of the ring always stays empty. The producer reads the consumer's index, head, when it
// needs room, and checks it each time.

// producer is the filling end.
type producer struct {
	buf  []byte
	tail uint64
	head uint64 // as last seen in seen
	seen *atomic.Uint64
}

// room is how many bytes can be put in. It reads the peer's index only if the room known is less
// than want.
func (p *producer) room(want int) (int, error) {
	size := uint64(len(p.buf)) - lineBytes
	if size-(p.tail-p.head) < uint64(want) {
		head := p.seen.Load()
		if head-p.head > p.tail-p.head || head%lineBytes != 0 {
			return 0, protocolErr("the peer took more out of the ring than was in it")
		}
		raceAcquire()
		p.head = head
	}
	return int(size - (p.tail - p.head)), nil
}

// part is how much of rest bytes of payload goes into the next frame; false when the free part of
// the ring is too small to be worth a frame.
func (p *producer) part(rest int) (int, bool, error) {
	want := min(rest, partMax(len(p.buf)))
	free, err := p.room(frameBytes(want))
	if err != nil {
		return 0, false, err
	}
	if free >= frameBytes(want) {
		return want, true, nil
	}
	if free < len(p.buf)/8 {
		return 0, false, nil
	}
	return free - headerBytes, true, nil
}

// payload is where the payload of the frame at the tail goes, in two pieces if it wraps.
func (p *producer) payload(part int) (a, b []byte) { return wrap(p.buf, p.tail+headerBytes, part) }

// put completes the frame at the tail, whose payload is in place, and makes it visible to the peer.
func (p *producer) put(h *header) {
	mask := uint64(len(p.buf) - 1)
	at := p.tail & mask
	h.encode(p.buf[at+8 : at+headerBytes])
	p.tail += uint64(frameBytes(int(h.part)))
	next := p.tail & mask
	clear(p.buf[next : next+8])
	raceRelease()
	wordOf(p.buf[at:]).Store(h.word())
}

// consumer is the emptying end.
type consumer struct {
	buf  []byte
	head uint64 // told through told
	told *atomic.Uint64
}

// first is the first word of the next frame; 0 while there is none.
func (c *consumer) first() uint64 {
	return wordOf(c.buf[c.head&uint64(len(c.buf)-1):]).Load()
}

// there tells whether there is a frame.
func (c *consumer) there() bool { return c.first() != 0 }

// next copies and checks the header of the oldest frame and finds its payload; false when there is
// none.
func (c *consumer) next(lim limits, h *header) (a, b []byte, ok bool, err error) {
	word := c.first()
	if word == 0 {
		return nil, nil, false, nil
	}
	raceAcquire()
	at := c.head & uint64(len(c.buf)-1)
	rest := [headerBytes - 8]byte(c.buf[at+8:])
	if err = h.decode(word, &rest, lim); err != nil {
		return nil, nil, false, err
	}
	a, b = wrap(c.buf, c.head+headerBytes, int(h.part))
	return a, b, true, nil
}

// drop frees the oldest frame.
func (c *consumer) drop(h *header) {
	c.head += uint64(frameBytes(int(h.part)))
	raceRelease()
	c.told.Store(c.head)
}

// partMax is the largest payload of one frame: a quarter of the ring, so that both sides can copy
// at the same time.
func partMax(ring int) int { return ring/4 - headerBytes }

// wrap returns n bytes of a ring at an index, in two pieces if they wrap.
func wrap(buf []byte, index uint64, n int) (a, b []byte) {
	at := int(index & uint64(len(buf)-1))
	if n <= len(buf)-at {
		return buf[at : at+n], nil
	}
	return buf[at:], buf[:n-(len(buf)-at)]
}
