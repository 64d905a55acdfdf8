package shm

import (
	"os"
	"sort"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
)

// Arenas is memory that servers on this host may access directly. Each arena is a memory file
// (memfd) of its own, mapped here and by the servers that were given a grant in it. It is a source
// of arenas for package mem. Domains look up registered memory in it. Safe for concurrent use.
type Arenas struct {
	lent bool // see NewLent
	mu   sync.Mutex
	list []*arena // by address
}

// arena is one memory file. A lent one can only be written through the mapping that is here.
type arena struct {
	fd   int
	mem  []byte
	size int // of the file: whole pages
	lent bool
	from uintptr // where it is mapped

	mu     sync.Mutex
	closed bool
	eps    map[*endpoint]uint32 // its number on each connection that it was passed to
}

// NewArenas makes an empty set. Give it to Open, and to whoever allocates.
func NewArenas() *Arenas { return &Arenas{} }

// NewLent makes an empty set of another kind, for Options.Lent: memory that listeners lend to those
// who dial, to be read. Its pages are freed when the last who has mapped them lets go of them.
func NewLent() *Arenas { return &Arenas{lent: true} }

// Name is what statistics call the memory.
func (a *Arenas) Name() string { return "memfd" }

// Map makes an arena and returns size bytes of it, zeroed and, unless they are to be lent, with all
// pages allocated. free takes the pages away from this process and from servers alike; regions on
// the arena must be closed before. It is errs.NoMemory when the host has too little.
func (a *Arenas) Map(size int) (mem []byte, free func() error, err error) {
	if size <= 0 {
		return nil, nil, errs.Newf(errs.Invalid, "shm.Map", "", "%d bytes", size)
	}
	page := os.Getpagesize()
	name := "sluice-arena"
	if a.lent {
		name = "sluice-lent"
	}
	fd, all, err := newMemfd(name, (size+page-1)/page*page, a.lent)
	if err != nil {
		return nil, nil, err
	}
	one := &arena{
		fd: fd, mem: all, size: len(all), lent: a.lent, from: address(all),
		eps: map[*endpoint]uint32{},
	}
	a.add(one)
	return all[:size:size], func() error { return a.free(one) }, nil
}

func (a *Arenas) add(one *arena) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := sort.Search(len(a.list), func(i int) bool { return a.list[i].from > one.from })
	a.list = append(a.list, nil)
	copy(a.list[at+1:], a.list[at:])
	a.list[at] = one
}

// find returns the arena that mem lies in and the offset there, or nil.
func (a *Arenas) find(mem []byte) (*arena, int) {
	if len(mem) == 0 {
		return nil, 0
	}
	at := address(mem)
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.list), func(i int) bool { return a.list[i].from > at }) - 1
	if i < 0 {
		return nil, 0
	}
	one := a.list[i]
	off := int(at - one.from)
	if off > len(one.mem) || len(mem) > len(one.mem)-off {
		return nil, 0
	}
	return one, off
}

func (a *Arenas) free(one *arena) error {
	a.mu.Lock()
	for i, other := range a.list {
		if other == one {
			a.list = append(a.list[:i], a.list[i+1:]...)
			break
		}
	}
	a.mu.Unlock()
	return one.close()
}

// close tells the peers that mapped the arena, and takes its pages away even from one that does not
// listen, unless it was lent.
func (o *arena) close() error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	eps := o.eps
	o.eps = nil
	o.mu.Unlock()
	for e, id := range eps {
		e.withdraw(id)
	}
	err := unix.Munmap(o.mem)
	if !o.lent { // it could not
		const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
		if e := unix.Fallocate(o.fd, punch, 0, int64(o.size)); err == nil {
			err = e
		}
	}
	if e := unix.Close(o.fd); err == nil {
		err = e
	}
	return errs.Wrap("shm.free", "arena", err)
}

// export passes the arena to the peer of e, once, and returns its number on that connection; 0 if
// it cannot be passed now.
func (o *arena) export(e *endpoint) uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0
	}
	if id, ok := o.eps[e]; ok {
		return id
	}
	id := e.exported.Add(1)
	if !e.sendArena(noteExport, id, o.fd, o.size) {
		return 0
	}
	o.eps[e] = id
	return id
}

// forget drops a connection that is gone.
func (o *arena) forget(e *endpoint) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.eps, e)
}

// forget drops a connection that is gone from all arenas.
func (a *Arenas) forget(e *endpoint) {
	for _, one := range a.all() {
		one.forget(e)
	}
}

func (a *Arenas) all() []*arena {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*arena(nil), a.list...)
}
