// Package cache is what a client knows of the name space under leases: attributes, names, present
// and absent, whole directories, targets of links, and the data of small files. What it answers is
// what the metadata service would answer at the same moment, with the same permission checks.
//
// It rests on the promise of meta.Leases: what an answer with a lease says stays true until the
// lease is recalled, or until the time is over up to which all leases were extended. So there are
// three rules. Nothing is answered after that time. An answer is not taken in if its inode was
// recalled after the question was asked, or if all was dropped since (Token). And an operation of
// the client itself, which recalls nothing of its own, takes out of the cache what it may change
// before it is sent, keeps out what others hear meanwhile, and puts in what its answer says
// (Change).
//
// It does no I/O and has no goroutines; the clock is an argument. Memory is bounded: what was not
// used for longest is forgotten, of which the service need not know. Safe for concurrent use.
//
// It also knows how programs walk over directories, and tells what to fetch before they ask.
//
// Read cache.go first, then node.go (what is kept of an inode), change.go, list.go and ahead.go.
package cache

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/internal/list"
	"github.com/sluice-storage/sluice/meta"
)

// Options of a Cache.
type Options struct {
	// Bytes bounds the memory. Default 64 MiB; negative: nothing is kept.
	Bytes int64

	// Now is a clock that never goes back. Default time.Now.
	Now func() time.Time
}

// Cache keeps what is known. Made by New.
type Cache struct {
	now      func() time.Time
	bytesMax int64

	mu     sync.Mutex
	until  time.Time // leases are valid up to here
	nodes  map[meta.Ino]*node
	lru    list.List[node] // used last: first
	bytes  int64
	recent recent
	busy   map[subject]int // own changes under way
	trust  trusted

	descent descent
}

// New makes an empty cache without leases: it answers nothing before Extend.
func New(o Options) *Cache {
	if o.Bytes == 0 {
		o.Bytes = 64 << 20
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Cache{now: o.Now, bytesMax: o.Bytes, nodes: map[meta.Ino]*node{},
		recent: newRecent(), busy: map[subject]int{}}
}

// Token stands for the moment at which a question was asked.
type Token uint64

// Begin is called before a question is sent whose answer may go into the cache.
func (c *Cache) Begin() Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.clock
}

// Now is a moment after all questions that were asked so far.
func (c *Cache) Now() Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent.clock++
	return c.recent.clock
}

// Extend says that all leases are valid up to a moment. Where they had run out in between
// everything is dropped: what the service did meanwhile is not known.
func (c *Cache) Extend(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.validLocked() {
		c.dropLocked()
	}
	if until.After(c.until) {
		c.until = until
	}
}

// Drop forgets everything, and does not take in answers to what was asked before. With it ends the
// time up to which leases are valid.
func (c *Cache) Drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked()
	c.until = time.Time{}
}

func (c *Cache) dropLocked() {
	clear(c.nodes)
	c.descent = descent{}
	c.lru = list.List[node]{}
	c.bytes = 0
	c.recent.all()
}

// Recall forgets an inode.
func (c *Cache) Recall(ino meta.Ino) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent.note(subject{ino: ino, what: whole})
	c.forgetLocked(c.nodes[ino])
}

// Granted tells whether a lease that came with the answer to a question still counts: it was not
// recalled since, and all were not dropped.
func (c *Cache) Granted(t Token, ino meta.Ino) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.recent.since(t, subject{ino: ino, what: whole})
}

// Valid tells whether leases are valid at this moment.
func (c *Cache) Valid() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.validLocked()
}

func (c *Cache) validLocked() bool { return c.now().Before(c.until) }

// subject is something that changes by itself: an inode as a whole (another client changes it), its
// attributes, a name in it, or that it is open for writing (this client does).
type subject struct {
	ino  meta.Ino
	what kind
	name string
}

type kind uint8

const (
	whole kind = iota
	attributes
	naming
	writing
)

// recentMax is how many subjects are remembered in each of two halves. What falls out makes answers
// that are on their way for that long useless: nothing worse.
const recentMax = 32 << 10

// recent remembers when subjects were changed last.
type recent struct {
	clock Token
	floor Token // answers to what was asked before it are not taken in
	turn  Token // when young was begun
	young map[subject]Token
	old   map[subject]Token
}

func newRecent() recent { return recent{clock: 1, turn: 1, young: map[subject]Token{}} }

// note gives a change its moment. Questions that were asked before it have a lower token.
func (r *recent) note(s subject) Token {
	if len(r.young) >= recentMax {
		r.floor, r.turn = r.turn, r.clock
		r.old, r.young = r.young, make(map[subject]Token, recentMax)
	}
	r.clock++
	r.young[s] = r.clock
	return r.clock
}

// all has everything changed now.
func (r *recent) all() {
	clock := r.clock + 1
	*r = newRecent()
	r.clock, r.floor, r.turn = clock, clock, clock
}

// last is when a subject was changed last, as far as that is remembered.
func (r *recent) last(s subject) Token {
	if at, ok := r.young[s]; ok {
		return at
	}
	return r.old[s]
}

// since tells whether a subject may have been changed after a question was asked.
func (r *recent) since(t Token, s subject) bool { return t < r.floor || r.last(s) > t }

// fresh tells whether an answer about a subject may be taken in: neither another client nor this
// one has changed it since the question was asked, and this one is not about to.
func (c *Cache) freshLocked(t Token, s subject) bool {
	return !c.recent.since(t, subject{ino: s.ino, what: whole}) && !c.recent.since(t, s) &&
		c.busy[s] == 0
}
