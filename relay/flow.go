package relay

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// flow is one request under way; it is reused. It is a set of chunks that lanes take: the caller's
// goroutine is the first lane, idle workers are the others. A lane holds the memory of one chunk,
// and there are at most as many lanes as chunks fit into the window: so the window is kept without
// passing chunks between goroutines.
type flow struct {
	e         *Engine
	ctx       context.Context
	id        stripe.ObjectID
	off       int64 // of the object: stream offset 0
	bytes     int64
	chunk     int64
	lanesMax  int
	first     int  // lanes that are asked for at once: they keep every member busy
	ahead     int  // chunks that a disk works on at a time: of a member, or with single of all
	single    bool // members take turns
	others    bool // other requests are under way
	to        Receiver
	from      Sender
	sums      []uint32
	noSums    bool
	unchecked bool
	stamp     [1]wire.Stamp // of chunks: without a number
	number    [1]wire.Stamp // with it

	own   lane           // the caller's
	lanes sync.WaitGroup // the others
	alone bool           // no more of them may join; the engine's lock guards it

	mu      sync.Mutex // guards what follows
	turn    sync.Cond  // a disk has become free, or something has failed
	runs    []run
	left    int64 // bytes of the stream that no lane has taken
	active  int   // lanes that there are or that were asked for, the caller's among them
	limit   int   // chunks of a member that lanes may take at a time; 0: any number
	taken   []int // by member: chunks that lanes have taken and not given back
	storing []int // by member: chunks that are being stored
	all     int   // of taken or storing, whichever is limited
	err     error // the first
}

// run is a piece of the stream that one member holds.
type run struct {
	member  int
	at, end int64 // in the stream: what is left of it
}

// shape decides how large the chunks are and how many may be under way, and finds the runs. Chunks
// begin at multiples of the grain.
func (f *flow) shape(how How, grain int64) {
	o := &f.e.opt
	streams := how.Streams
	if streams == Default {
		streams = o.Streams
	}
	members := f.findRuns(streams == Plain, grain)
	f.chunk = int64(how.ChunkBytes)
	if f.chunk == 0 {
		f.chunk = int64(o.ChunkBytes)
		if f.others && streams == Multiple {
			f.chunk = min(2*f.chunk, ChunkMax, max(o.WindowBytes, f.chunk))
		}
		if share := f.bytes / int64(chunksEach*members); streams == Multiple && share < f.chunk {
			f.chunk = min(f.chunk, max(share, chunkLeast))
		}
	}
	f.chunk = max(f.chunk/grain*grain, grain)
	f.single, f.ahead = streams == Single, o.Ahead
	if f.single {
		f.ahead = 1
	}
	window := max(o.WindowBytes, f.chunk)
	if streams == Plain {
		f.chunk, f.lanesMax = max(window/grain*grain, grain), 1
	} else {
		f.lanesMax = int(min(window/f.chunk, lanesMost))
	}
	f.chunk = min(f.chunk, (f.bytes+BlockBytes-1)/BlockBytes*BlockBytes)
	f.left, f.active = f.bytes, 1
	f.first = int(min(int64(f.ahead*members), (f.bytes+f.chunk-1)/max(f.chunk, 1)))
}

// findRuns cuts the stream where another member begins, or behind that at the next grain. A Plain
// request is one run, whatever members hold it. It returns how many members there are.
func (f *flow) findRuns(plain bool, grain int64) (members int) {
	for at := int64(0); at < f.bytes; {
		member, n := f.place(at)
		if plain {
			member, n = 0, f.bytes
		}
		n = min(max((n+grain-1)/grain*grain, grain), f.bytes-at)
		if k := len(f.runs) - 1; k >= 0 && f.runs[k].member == member {
			f.runs[k].end += n
		} else {
			f.runs = append(f.runs, run{member, at, at + n})
		}
		at += n
	}
	for i := range f.runs { // storing marks the members that were counted
		if k := f.runs[i].member; f.storing[k] == 0 {
			f.storing[k] = 1
			members++
		}
	}
	clear(f.storing)
	return max(members, 1)
}

// place returns the member that holds the stream from at on, and for how many bytes.
func (f *flow) place(at int64) (member int, n int64) {
	n = max(f.bytes-at, 1)
	if f.e.opt.Place != nil {
		member, n = f.e.opt.Place.Place(f.id, f.off+at)
	}
	for member >= len(f.taken) {
		f.taken, f.storing = append(f.taken, 0), append(f.storing, 0)
	}
	return member, max(n, 1)
}

// run does all chunks and returns when nothing is under way any more.
func (f *flow) run() error {
	for range f.first - 1 {
		f.invite()
	}
	f.own.run(f)
	f.e.forget(f)
	f.lanes.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// invite asks for one more lane, if there is work for it.
func (f *flow) invite() {
	f.mu.Lock()
	want := f.left > 0 && f.active < f.lanesMax && f.err == nil
	if want {
		f.active++
	}
	f.mu.Unlock()
	if want {
		f.e.ask(f)
	}
}

// more tells whether there is a chunk for a lane that is about to take memory.
func (f *flow) more() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.left > 0 && f.err == nil
}

// chunk is what a lane has taken.
type chunk struct {
	member int
	at     int64 // in the stream
	n      int64
}

// take gives the lane its next chunk, of the least busy member. It waits while all members are
// busy; false when there is nothing left, or something has failed.
func (f *flow) take() (chunk, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.left > 0 && f.err == nil {
		if err := f.ctx.Err(); err != nil {
			f.failLocked(err)
			break
		}
		if r := f.pickLocked(); r != nil {
			c := chunk{member: r.member, at: r.at, n: min(f.chunk, r.end-r.at)}
			r.at += c.n
			f.left -= c.n
			f.taken[c.member]++
			f.all++
			return c, true
		}
		f.turn.Wait()
	}
	return chunk{}, false
}

// pickLocked finds the run of the least busy member; of equals, the first.
func (f *flow) pickLocked() *run {
	if f.limit > 0 && f.single && f.all >= f.limit {
		return nil
	}
	var best *run
	for i := range f.runs {
		r := &f.runs[i]
		if r.at == r.end || f.limit > 0 && f.taken[r.member] >= f.limit {
			continue
		}
		if best == nil || !f.single && f.taken[r.member] < f.taken[best.member] {
			best = r
		}
	}
	return best
}

// giveBack ends the member's work on the chunk.
func (f *flow) giveBack(c chunk) {
	f.mu.Lock()
	f.taken[c.member]--
	f.all--
	f.mu.Unlock()
	f.turn.Broadcast()
}

// beginStore waits until the member can store one more chunk; false when something has failed.
func (f *flow) beginStore(c chunk) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.err == nil {
		busy := f.storing[c.member]
		if f.single {
			busy = f.sumLocked()
		}
		if busy < f.ahead {
			f.storing[c.member]++
			return true
		}
		f.turn.Wait()
	}
	return false
}

func (f *flow) sumLocked() (n int) {
	for _, k := range f.storing {
		n += k
	}
	return n
}

func (f *flow) endStore(c chunk) {
	f.mu.Lock()
	f.storing[c.member]--
	f.mu.Unlock()
	f.giveBack(c)
}

// fail keeps the first error; lanes stop at their next chunk.
func (f *flow) fail(err error) {
	f.mu.Lock()
	f.failLocked(err)
	f.mu.Unlock()
}

func (f *flow) failLocked(err error) {
	if f.err == nil {
		f.err = err
	}
	f.turn.Broadcast()
}

// finish records the request's number on every member that has stored some of it, and makes all of
// it durable. The number is behind the data in each member's log.
func (f *flow) finish(d stripe.Durability) error {
	if stripe.Numbered(f.number[0]) {
		if err := f.note(); err != nil {
			return err
		}
	}
	if d == stripe.Volatile {
		return nil
	}
	return f.e.opt.Disk.Sync(f.ctx, f.id)
}

// note records the number at the first offset of each member. No lane is left, so taken is reused
// to mark the members.
func (f *flow) note() error {
	disk := f.e.opt.Disk
	for at := int64(0); at < max(f.bytes, 1); {
		member, n := f.place(at)
		if f.taken[member] == 0 {
			f.taken[member] = 1
			err := disk.WriteSums(f.ctx, f.id, nil, f.off+at, nil, f.number[:], stripe.Volatile)
			if err != nil {
				return err
			}
		}
		at += n
	}
	return nil
}

// reset drops the references to the request.
func (f *flow) reset() {
	clear(f.taken)
	clear(f.storing)
	*f = flow{e: f.e, own: f.own, runs: f.runs[:0], taken: f.taken[:0], storing: f.storing[:0]}
	f.turn.L = &f.mu
}
