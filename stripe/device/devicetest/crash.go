package devicetest

import "math/rand/v2"

// SectorBytes is what a disk writes whole or not at all.
const SectorBytes = 512

// Crash is a power cut after an event: writes that are stable are there, of the others any subset,
// and parts of them.
type Crash struct {
	at   int
	base *Overlay // what all writes before the first undecided one have left
	open []int    // writes that may or may not be there
	now  []write
}

// CrashAt looks at a power cut right after the event of that number. What it returns is good until
// the next call; devices that it makes are so for ever.
func (r *Recorder) CrashAt(at int) *Crash {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &Crash{at: at, base: r.settleLocked(at)}
	for _, w := range r.writes[r.settled:] {
		if w.begin > at {
			break
		}
		if !r.stableLocked(&w, at) {
			c.open = append(c.open, len(c.now))
		}
		c.now = append(c.now, w)
	}
	return c
}

// settleLocked gives the content that the first writes, as far as all are stable at a time, have
// made. It is kept for the next time, which is mostly later.
func (r *Recorder) settleLocked(at int) *Overlay {
	if r.settled == 0 || at < r.settledAt {
		r.settled, r.settledBy = 0, r.base.Fork(r.name)
	}
	r.settledAt = at
	for r.settled < len(r.writes) && r.stableLocked(&r.writes[r.settled], at) {
		w := &r.writes[r.settled]
		r.settledBy.writeLocked(w.data, w.off)
		r.settled++
	}
	return r.settledBy
}

// stableLocked tells whether a write was on stable storage at a time: by itself, or by a sync that
// began after its end.
func (r *Recorder) stableLocked(w *write, at int) bool {
	if w.end == 0 || w.end > at {
		return false
	}
	if w.stable {
		return true
	}
	for _, s := range r.syncs {
		if s.begin > w.end && s.end != 0 && s.end <= at {
			return true
		}
	}
	return false
}

// Open is how many writes are undecided.
func (c *Crash) Open() int { return len(c.open) }

// Choice says what became of the undecided writes: Keep[i] tells of the i-th whether it is there;
// of number Torn (-1: none) only the sectors that Sectors names.
type Choice struct {
	Keep    []bool
	Torn    int
	Sectors func(sector int) bool
}

// Device is a device that holds what is left.
func (c *Crash) Device(name string, ch Choice) *Overlay {
	o := c.base.Fork(name)
	next := 0
	for i := range c.now {
		w := &c.now[i]
		if next < len(c.open) && c.open[next] == i {
			n := next
			next++
			if n == ch.Torn {
				tear(o, w, ch.Sectors)
				continue
			}
			if !ch.Keep[n] {
				continue
			}
		}
		o.writeLocked(w.data, w.off)
	}
	return o
}

func tear(o *Overlay, w *write, keep func(int) bool) {
	for at := 0; at < len(w.data); at += SectorBytes {
		if keep(at / SectorBytes) {
			o.writeLocked(w.data[at:min(at+SectorBytes, len(w.data))], w.off+int64(at))
		}
	}
}

// Choices calls fn for the subsets worth looking at: all of them when the undecided writes are few,
// else none, all, each alone, all but each, and some at random; and with every write torn, from
// the front, from the back and at random.
func (c *Crash) Choices(rnd *rand.Rand, few int, fn func(Choice)) {
	n := len(c.open)
	pick := func(keep func(i int) bool) {
		k := make([]bool, n)
		for i := range k {
			k[i] = keep(i)
		}
		fn(Choice{Keep: k, Torn: -1})
	}
	if n <= few {
		for set := range 1 << n {
			pick(func(i int) bool { return set&(1<<i) != 0 })
		}
	} else {
		pick(func(int) bool { return false })
		pick(func(int) bool { return true })
		for range few {
			one := rnd.IntN(n)
			pick(func(i int) bool { return i == one })
			pick(func(i int) bool { return i != one })
			pick(func(int) bool { return rnd.IntN(2) == 0 })
		}
	}
	for i := range min(n, few) {
		torn := n - 1 - i // the last ones are those that matter most
		rest := make([]bool, n)
		for k := range rest {
			rest[k] = rnd.IntN(2) == 0
		}
		sectors := max(len(c.now[c.open[torn]].data)/SectorBytes, 1)
		cut := rnd.IntN(sectors)
		mask := rnd.Uint64()
		for _, keep := range []func(int) bool{
			func(s int) bool { return s < cut }, func(s int) bool { return s >= cut },
			func(s int) bool { return mask>>(s%64)&1 == 1 },
		} {
			fn(Choice{Keep: rest, Torn: torn, Sectors: keep})
		}
	}
}

// Random is one choice at random, mostly with a torn write.
func (c *Crash) Random(rnd *rand.Rand) Choice {
	n := len(c.open)
	ch := Choice{Keep: make([]bool, n), Torn: -1}
	bias := rnd.IntN(4) // from nothing kept to nearly all
	for i := range ch.Keep {
		ch.Keep[i] = rnd.IntN(4) < bias
	}
	if n > 0 && rnd.IntN(4) > 0 {
		ch.Torn = rnd.IntN(n)
		mask := rnd.Uint64()
		ch.Sectors = func(s int) bool { return mask>>(s%64)&1 == 1 }
	}
	return ch
}
