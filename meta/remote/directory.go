package remote

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// Directory knows where the I/O servers are. It asks for the cluster's map when it is told that
// there is a later version, once for each, however many requests tell it, and says which servers
// have moved. Safe for concurrent use.
type Directory struct {
	service meta.Cluster
	moved   func(id uint32, addr string)

	life  context.Context
	stop  context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	seen    uint64 // the latest version that was heard of
	known   uint64 // the version that places is of, or a later one; 0: there is none
	asking  bool   // a goroutine asks
	flight  *flight
	asked   uint64 // how often the map was asked for
	servers map[uint32]*place
}

// pauseAsking is between two attempts to ask for the map.
const pauseAsking = 200 * time.Millisecond

// place is where a server is. It is good for one attempt to connect: one that follows has failed.
type place struct {
	addr string
	used bool
}

// NewDirectory makes a directory that asks a service. moved is called when a server has another
// address than it had; it must not block. Close it.
func NewDirectory(service meta.Cluster, moved func(id uint32, addr string)) *Directory {
	d := &Directory{service: service, moved: moved, servers: map[uint32]*place{}}
	d.life, d.stop = context.WithCancel(context.Background())
	return d
}

// Close ends what is under way.
func (d *Directory) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop()
	d.tasks.Wait()
}

// Version is the version of the map that is known, or has been heard of and is asked for; 0: none.
func (d *Directory) Version() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen
}

// Asked is how often the map was asked for.
func (d *Directory) Asked() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// Heard is told of a version. It does not wait: the map is asked for beside the caller. Before
// anybody has looked for a server nothing is asked.
func (d *Directory) Heard(version uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if version <= d.seen {
		return
	}
	d.seen = version
	d.beginLocked()
}

// Restarted says that the service may have forgotten versions that it had told: its store may be an
// older one.
func (d *Directory) Restarted() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known != 0 {
		d.seen, d.known = 0, 1
		d.beginLocked()
	}
}

// beginLocked has somebody ask, if there is a reason to.
func (d *Directory) beginLocked() {
	if d.known == 0 || d.asking || d.closed {
		return
	}
	d.asking = true
	d.tasks.Go(d.follow)
}

// follow asks until what is known is what was heard of.
func (d *Directory) follow() {
	for {
		err := d.fetch(d.life)
		if err != nil && wait.Sleep(d.life, pauseAsking) {
			continue // the service is away: who needs a server asks by himself
		}
		d.mu.Lock()
		if err != nil || d.known >= d.seen {
			d.asking = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
	}
}

// flight is a request for the map, which several may wait for.
type flight struct {
	version uint64 // that was heard of before it was sent: the answer is of it, or of a later one
	done    chan struct{}
	err     error
}

// fetch asks for the map, or waits for who does already.
func (d *Directory) fetch(ctx context.Context) error {
	for {
		f, mine := d.board()
		if mine {
			d.fly(ctx, f)
			return f.err
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if errs.KindOf(f.err) != errs.Canceled { // who has asked did not want to know any more
			return f.err
		}
	}
}

// board finds a request whose answer is good enough, or begins one.
func (d *Directory) board() (f *flight, mine bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.flight; f != nil && f.version >= d.seen {
		return f, false
	}
	d.flight = &flight{version: max(d.seen, 1), done: make(chan struct{})}
	d.asked++
	return d.flight, true
}

// fly asks, and tells who has moved.
func (d *Directory) fly(ctx context.Context, f *flight) {
	var list []meta.Server
	list, f.err = d.service.Servers(ctx)
	d.mu.Lock()
	var moves []uint32
	if f.err == nil {
		moves = d.learnLocked(f.version, list)
	}
	if d.flight == f {
		d.flight = nil
	}
	d.mu.Unlock()
	for _, id := range moves {
		d.moved(id, addrOf(list, id))
	}
	close(f.done)
}

// learnLocked takes in an answer, and lists who has moved.
func (d *Directory) learnLocked(version uint64, list []meta.Server) (moves []uint32) {
	if version < d.known { // it was overtaken
		for _, p := range d.servers {
			p.used = false
		}
		return nil
	}
	fresh := make(map[uint32]*place, len(list))
	for i := range list {
		s := &list[i]
		if old := d.servers[s.ID]; old != nil && old.addr != s.Addr {
			moves = append(moves, s.ID)
		}
		fresh[s.ID] = &place{addr: s.Addr}
	}
	d.servers, d.known = fresh, version
	return moves
}

func addrOf(list []meta.Server, id uint32) string {
	for i := range list {
		if list[i].ID == id {
			return list[i].Addr
		}
	}
	return ""
}

// Resolve finds the address of a server: what is known, once, and what the service says then.
func (d *Directory) Resolve(ctx context.Context, id uint32) (string, error) {
	if addr, ok := d.take(id); ok {
		return addr, nil
	}
	if err := d.fetch(ctx); err != nil {
		return "", err
	}
	if addr, ok := d.take(id); ok {
		return addr, nil
	}
	return "", errs.Newf(errs.Disconnected, "meta.resolve", "", "I/O server %d has not joined yet", id)
}

// take finds an address that was not tried since it was asked for.
func (d *Directory) take(id uint32) (addr string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.servers[id]
	if p == nil || p.used || d.known < d.seen {
		return "", false
	}
	p.used = true
	return p.addr, true
}
