package filestore

import (
	"container/list"
	"sync"

	"github.com/sluice-storage/sluice/stripe"
	"golang.org/x/sys/unix"
)

// table holds the objects in memory. An object is in it while a request uses it, and after
// that until it is the longest unused of more than limit. Objects that do not exist are
// remembered too, which saves asking the file system again.
//
// An object leaves only when everything about it is stable. So what is not in the table needs no
// sync, and writeback errors are seen before the kernel may forget them with the inode.
type table struct {
	limit int

	mu   sync.Mutex
	all  map[stripe.ObjectID]*object
	idle *list.List // *object with refs 0, most recently used first
}

func (t *table) init(limit int) {
	t.limit = limit
	t.all = map[stripe.ObjectID]*object{}
	t.idle = list.New()
}

// acquire finds the object or enters it, with one more reference. victim is an object that
// should leave, with a reference of its own: the caller hands it to Store.retire.
func (t *table) acquire(id stripe.ObjectID, path func() string) (o, victim *object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o = t.all[id]
	if o == nil {
		o = &object{id: id, path: path(), fd: -1}
		t.all[id] = o
	}
	t.refLocked(o)
	if len(t.all) > t.limit {
		if e := t.idle.Back(); e != nil {
			victim = e.Value.(*object)
			t.refLocked(victim)
		}
	}
	return o, victim
}

func (t *table) refLocked(o *object) {
	o.refs++
	if o.place != nil {
		t.idle.Remove(o.place)
		o.place = nil
	}
}

// peek is acquire for an object that is in the table, nil otherwise.
func (t *table) peek(id stripe.ObjectID) *object {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.all[id]
	if o != nil {
		t.refLocked(o)
	}
	return o
}

func (t *table) release(o *object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o.refs--
	if o.refs == 0 {
		o.place = t.idle.PushFront(o)
	}
}

// drop takes an object out if the caller's reference is the only one. It tells whether it did.
func (t *table) drop(o *object) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.refs > 1 {
		o.refs--
		return false
	}
	delete(t.all, o.id)
	return true
}

// pick returns the objects for which want is true, each with a reference.
func (t *table) pick(want func(*object) bool) []*object {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []*object
	for _, o := range t.all {
		if want(o) {
			t.refLocked(o)
			found = append(found, o)
		}
	}
	return found
}

// closeAll closes every file. No request may be under way.
func (t *table) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.all {
		o.closeFile()
	}
	t.all = map[stripe.ObjectID]*object{}
	t.idle.Init()
}

func (o *object) closeFile() {
	if o.fd >= 0 {
		unix.Close(o.fd) // everything is synced before, so that nothing is left to fail
		o.fd = -1
	}
}
