package lease

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/meta"
)

const (
	leaseTime = 100 * time.Millisecond
	clients   = 4
	inodes    = 3
	steps     = 400
)

// world is a run of clients, messages and changes in simulated time. The rule that it checks: when
// a change takes effect nobody else believes to hold a lease on what is changed; and who believes
// to hold LeaseWrite is the only one who believes to hold anything.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	table   *Table
	now     time.Time
	clients [clients + 1]client // by session; 0 is nobody
	changes []*change
}

// client is what a client knows, by the rules of meta.Leases.
type client struct {
	id       uint64
	known    map[meta.Ino]grant
	recalled map[meta.Ino]uint64 // serial of the last recall
	epoch    uint64
	until    time.Time
	seen     uint64
	acks     []meta.Recall // to be sent
	answers  []grant       // that are on their way
	listens  []listen      // likewise
	deaf     bool          // it does not take answers
}

type grant struct {
	ino    meta.Ino
	mode   meta.LeaseMode
	serial uint64
}

type listen struct {
	sent     time.Time
	extended bool
	arrived  bool
	acks     []meta.Recall
	heard    *meta.Heard // nil: parked, or not arrived
}

type change struct {
	Change
	who  uint64
	inos []meta.Ino
	wait *Wait
}

func newWorld(t *testing.T, seed uint64, opt Options) *world {
	opt.Time, opt.Life = leaseTime, 3
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), table: New(opt), now: time.Unix(1000, 0)}
	for id := uint64(1); id <= clients; id++ {
		w.table.Join(id)
		w.clients[id] = client{id: id, known: map[meta.Ino]grant{}, recalled: map[meta.Ino]uint64{}}
	}
	return w
}

// believes is what a client thinks to have.
func (w *world) believes(c *client, ino meta.Ino) meta.LeaseMode {
	if !w.now.Before(c.until) {
		return meta.LeaseNone
	}
	return c.known[ino].mode
}

func (w *world) ask(c *client) {
	ino := meta.Ino(w.rng.IntN(inodes) + 1)
	mode := meta.LeaseRead
	var pre Change
	if w.rng.IntN(4) == 0 {
		mode = meta.LeaseWrite + meta.LeaseMode(w.rng.IntN(2))
		if wait := pre.Begin(w.table, c.id, []meta.Ino{ino}, false, w.now); wait != nil {
			pre.End() // another time
			return
		}
		pre.End()
	}
	if m, serial := w.table.Grant(c.id, ino, mode, w.rng.IntN(2) == 0, w.now); m != meta.LeaseNone {
		if w.rng.IntN(5) == 0 {
			w.table.Release(c.id, ino, serial)
			return
		}
		c.answers = append(c.answers, grant{ino, m, serial})
	}
}

// take delivers an answer, in any order.
func (w *world) take(c *client) {
	if len(c.answers) == 0 || c.deaf {
		return
	}
	i := w.rng.IntN(len(c.answers))
	g := c.answers[i]
	c.answers = append(c.answers[:i], c.answers[i+1:]...)
	if g.serial > c.recalled[g.ino] && g.serial > c.epoch && g.serial > c.known[g.ino].serial {
		c.known[g.ino] = g
	}
}

// listen moves one of the client's requests on: sent, arrived, answered, received.
func (w *world) listen(c *client) {
	if len(c.listens) < 2 && w.rng.IntN(2) == 0 {
		c.listens = append(c.listens, listen{sent: w.now, acks: c.acks})
		c.acks = nil
		return
	}
	if len(c.listens) == 0 {
		return
	}
	i := w.rng.IntN(len(c.listens))
	l := &c.listens[i]
	switch {
	case !l.arrived:
		l.arrived = true
		l.extended, _ = w.table.Hear(&meta.Listening{Session: c.id, Acks: l.acks})
	case l.heard == nil:
		recalls, epoch, _ := w.table.Tell(c.id, c.seen)
		l.heard = &meta.Heard{Epoch: epoch, Extended: l.extended, Recalls: recalls}
	case !c.deaf:
		w.hear(c, l)
		c.listens = append(c.listens[:i], c.listens[i+1:]...)
	}
}

func (w *world) hear(c *client, l *listen) {
	if l.heard.Epoch > c.epoch {
		c.epoch = l.heard.Epoch
		for ino, g := range c.known {
			if g.serial <= c.epoch {
				delete(c.known, ino)
			}
		}
	}
	if until := l.sent.Add(leaseTime); l.heard.Extended && until.After(c.until) {
		if !w.now.Before(c.until) {
			clear(c.known) // it had run out: what was known may have changed
		}
		c.until = until
	}
	for _, r := range l.heard.Recalls {
		c.seen = max(c.seen, r.Serial)
		if r.Serial > c.recalled[r.Ino] {
			c.recalled[r.Ino] = r.Serial
		}
		if c.known[r.Ino].serial < r.Serial {
			delete(c.known, r.Ino)
		}
		c.acks = append(c.acks, r)
	}
}

// change begins one, or goes on with one that waits.
func (w *world) change(i int) {
	if len(w.changes) < 3 && w.rng.IntN(2) == 0 {
		ch := &change{who: uint64(w.rng.IntN(clients + 1))}
		for range 1 + w.rng.IntN(2) {
			ch.inos = append(ch.inos, meta.Ino(w.rng.IntN(inodes)+1))
		}
		ch.wait = ch.Begin(w.table, ch.who, ch.inos, w.rng.IntN(3) == 0, w.now)
		w.changes = append(w.changes, ch)
		return
	}
	if len(w.changes) == 0 {
		return
	}
	i %= len(w.changes)
	ch := w.changes[i]
	if !w.ready(ch) {
		return
	}
	for _, ino := range ch.inos {
		for id := uint64(1); id <= clients; id++ {
			if mode := w.believes(&w.clients[id], ino); id != ch.who && mode != meta.LeaseNone {
				w.t.Fatalf("inode %d changes, and client %d believes to hold mode %d", ino, id, mode)
			}
		}
	}
	if c := &w.clients[ch.who]; ch.who != 0 && w.rng.IntN(2) == 0 {
		mode := meta.LeaseRead + meta.LeaseMode(w.rng.IntN(3))
		if m, serial := ch.Lend(ch.who, ch.inos[0], mode, w.now); m != meta.LeaseNone {
			c.answers = append(c.answers, grant{ch.inos[0], m, serial})
		}
	} else {
		ch.End()
	}
	w.changes = append(w.changes[:i], w.changes[i+1:]...)
}

func (w *world) ready(ch *change) bool {
	if ch.wait == nil {
		return true
	}
	select {
	case <-ch.wait.Done:
		return true
	default:
	}
	if w.now.Before(w.table.Deadline(ch.wait)) {
		return false
	}
	w.table.Expire(w.now)
	select {
	case <-ch.wait.Done:
		return true
	default:
		w.t.Fatal("somebody has to wait for longer than a lease lasts")
	}
	return false
}

// sole checks that who believes to hold LeaseWrite is alone.
func (w *world) sole() {
	for ino := meta.Ino(1); ino <= inodes; ino++ {
		writers, holders := 0, 0
		for id := uint64(1); id <= clients; id++ {
			switch w.believes(&w.clients[id], ino) {
			case meta.LeaseWrite, meta.LeaseSole:
				writers++
				holders++
			case meta.LeaseRead:
				holders++
			}
		}
		if writers > 0 && holders > 1 {
			w.t.Fatalf("inode %d has %d writers among %d holders", ino, writers, holders)
		}
	}
}

func (w *world) step() {
	c := &w.clients[1+w.rng.IntN(clients)]
	switch n := w.rng.IntN(100); {
	case n < 25:
		w.ask(c)
	case n < 45:
		w.take(c)
	case n < 70:
		w.listen(c)
	case n < 85:
		w.change(w.rng.IntN(8))
	case n < 88:
		c.deaf = !c.deaf
	case n < 90:
		w.table.Expire(w.now)
	case n < 91:
		w.table.Leave(c.id)
		w.table.Join(c.id)
		*c = client{id: c.id, known: map[meta.Ino]grant{}, recalled: map[meta.Ino]uint64{},
			epoch: w.table.serial}
	default:
		w.now = w.now.Add(time.Duration(w.rng.Int64N(int64(leaseTime / 4))))
	}
	w.sole()
	w.sound()
}

// sound looks at what the table says about itself.
func (w *world) sound() {
	t, n := w.table, 0
	for _, s := range t.sessions {
		n += len(s.leases)
		for ino, l := range s.leases {
			if t.inodes[ino] != l.on || (l.recall != 0) != l.ofOwed.In() {
				w.t.Fatalf("session %d, inode %d: %+v", s.id, ino, l)
			}
		}
		if len(s.leases) > t.opt.SessionMax {
			w.t.Fatalf("session %d has %d leases", s.id, len(s.leases))
		}
	}
	if n != t.count || n > t.opt.AllMax {
		w.t.Fatalf("%d leases, counted %d", n, t.count)
	}
	for ino, in := range t.inodes {
		if in.n == 0 && in.marks == 0 && !in.cools {
			w.t.Fatalf("inode %d is kept for nothing", ino)
		}
	}
}

// TestNobodyBelievesTooMuch runs the rules of table and clients against each other.
func TestNobodyBelievesTooMuch(t *testing.T) {
	seeds := 3000
	if testing.Short() {
		seeds = 300
	}
	base := rand.Uint64()
	var all Counts
	for i := range seeds {
		seed := base + uint64(i)
		opt := Options{}
		if i%3 == 0 {
			opt = Options{SessionMax: 2, AllMax: 5}
		}
		ok := t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			w := newWorld(t, seed, opt)
			for range steps {
				w.step()
			}
			c := w.table.Counts()
			all.Granted += c.Granted
			all.Recalls += c.Recalls
			all.Expired += c.Expired
			all.Refused += c.Refused
		})
		if !ok {
			t.Fatalf("seed %d", seed)
		}
	}
	if all.Granted == 0 || all.Recalls == 0 || all.Expired == 0 || all.Refused == 0 {
		t.Fatalf("the runs show little: %+v", all)
	}
}
