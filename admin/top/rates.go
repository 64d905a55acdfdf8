package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/internal/activity"
)

// Compute makes a view of what processes told at two moments, by name. Those that are in before
// only are gone; of those that are new, or were started again, everything happened in between.
func Compute(cluster string, before, now map[string]Sample, at time.Time) *View {
	c := computing{view: &View{Time: at, Cluster: cluster}, peers: map[uint64]activity.Peer{},
		ops: map[[2]string]*opSum{}, clients: map[uint64]*Client{}, programs: map[string]*Client{},
		files: map[uint64]*File{}}
	for _, s := range now {
		if s.Snap != nil {
			for _, p := range s.Snap.Peers {
				c.peers[p.ID] = p
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		c.process(name, before[name], now[name])
	}
	c.finish()
	return c.view
}

// computing is a view that is being made.
type computing struct {
	view     *View
	peers    map[uint64]activity.Peer
	ops      map[[2]string]*opSum
	clients  map[uint64]*Client
	programs map[string]*Client
	files    map[uint64]*File
}

// opSum is an operation of several processes.
type opSum struct {
	op      Op
	count   uint64
	busy    time.Duration
	buckets map[time.Duration]activity.Bucket
}

// process adds what one process did.
func (c *computing) process(name string, was, is Sample) {
	v := c.view
	if is.Snap == nil {
		v.Processes = append(v.Processes, Process{Name: name, Kind: kindOf(name), Problem: is.Problem})
		return
	}
	s, secs := is.Snap, is.At.Sub(was.At).Seconds()
	old := was.Snap
	if old == nil || old.PID != s.PID || s.Uptime < old.Uptime {
		old, secs = &activity.Snapshot{}, s.Uptime.Seconds()
	}
	secs = max(secs, 1e-3)
	if v.Interval < secs && was.Snap != nil {
		v.Interval = secs
	}
	p := Process{Name: name, Kind: s.Kind, PID: s.PID, Up: true, Uptime: s.Uptime.Seconds(),
		CPU: max(0, (s.CPU-old.CPU).Seconds()/secs), Memory: s.Resident, Open: s.Open,
		Untold: s.Untold, Running: len(s.Running)}
	c.addOps(&p, s, old, secs)
	c.addUses(&p, s, old, secs)
	c.addSlow(&p, s)
	v.Processes = append(v.Processes, p)
	if s.Kind == "mount" {
		return
	}
	t := &v.Totals
	t.Requests, t.Failed = t.Requests+p.Requests, t.Failed+p.Failed
	t.Read, t.Written = t.Read+p.Read, t.Written+p.Written
	if s.Kind == "meta" {
		t.Clients, t.Open = s.Sessions, s.Open
	}
}

// kindOf is the kind of a process that does not say it.
func kindOf(name string) string { return strings.TrimRight(name, "0123456789") }

// since is how much a counter has grown. One that is lower than before has begun anew.
func since(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// grown are the buckets of the interval.
func grown(now, before []activity.Bucket) []activity.Bucket {
	old := map[time.Duration]uint64{}
	for _, b := range before {
		old[b.From] = b.Count
	}
	var list []activity.Bucket
	for _, b := range now {
		if b.Count = since(b.Count, old[b.From]); b.Count > 0 {
			list = append(list, b)
		}
	}
	return list
}

// addOps adds the operations of a process.
func (c *computing) addOps(p *Process, s, old *activity.Snapshot, secs float64) {
	was := map[string]activity.OpUse{}
	for _, op := range old.Ops {
		was[op.Op] = op
	}
	all := map[time.Duration]activity.Bucket{}
	for _, op := range s.Ops {
		before := was[op.Op]
		n := since(op.Count, before.Count)
		if n == 0 {
			continue
		}
		key := [2]string{s.Kind, op.Op}
		sum := c.ops[key]
		if sum == nil {
			sum = &opSum{op: Op{Kind: s.Kind, Op: op.Op, Waits: op.Waits},
				buckets: map[time.Duration]activity.Bucket{}}
			c.ops[key] = sum
		}
		failed := float64(since(op.Failed, before.Failed)) / secs
		busy := time.Duration(since(uint64(op.Sum), uint64(before.Sum)))
		sum.count, sum.busy = sum.count+n, sum.busy+busy
		sum.op.Requests += float64(n) / secs
		sum.op.Failed += failed
		sum.op.Busy += busy.Seconds() / secs
		p.Requests, p.Failed = p.Requests+float64(n)/secs, p.Failed+failed
		list := grown(op.Buckets, before.Buckets)
		merge(sum.buckets, list)
		if !op.Waits {
			merge(all, list)
		}
	}
	p.P50, p.P99 = percentiles(all)
}

func merge(to map[time.Duration]activity.Bucket, list []activity.Bucket) {
	for _, b := range list {
		b.Count += to[b.From].Count
		to[b.From] = b
	}
}

// percentiles are the median and the 99th, in milliseconds.
func percentiles(of map[time.Duration]activity.Bucket) (p50, p99 float64) {
	list := make([]activity.Bucket, 0, len(of))
	for _, from := range slices.Sorted(maps.Keys(of)) {
		list = append(list, of[from])
	}
	return ms(activity.Percentile(list, 0.5)), ms(activity.Percentile(list, 0.99))
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// addUses adds who asked, and about what.
func (c *computing) addUses(p *Process, s, old *activity.Snapshot, secs float64) {
	each(s.Clients, old.Clients, secs, func(u activity.Use, requests, read, written float64) {
		p.Read, p.Written = p.Read+read, p.Written+written
		cl := c.client(p, u)
		cl.Requests, cl.Read, cl.Written = cl.Requests+requests, cl.Read+read, cl.Written+written
	})
	if s.Kind == "mount" {
		return // the servers count the same inodes
	}
	each(s.Objects, old.Objects, secs, func(u activity.Use, requests, read, written float64) {
		f := c.files[u.ID]
		if f == nil {
			f = &File{Inode: u.ID}
			c.files[u.ID] = f
		}
		f.Requests, f.Read, f.Written = f.Requests+requests, f.Read+read, f.Written+written
	})
}

// each gives the rates of those that did something.
func each(now, before []activity.Use, secs float64,
	give func(u activity.Use, requests, read, written float64)) {
	was := map[uint64]activity.Use{}
	for _, u := range before {
		was[u.ID] = u
	}
	for _, u := range now {
		b := was[u.ID]
		if n := since(u.Requests, b.Requests); n > 0 {
			give(u, float64(n)/secs, float64(since(u.Read, b.Read))/secs,
				float64(since(u.Written, b.Written))/secs)
		}
	}
}

// client finds the row of a client or program.
func (c *computing) client(p *Process, u activity.Use) *Client {
	if p.Kind == "mount" {
		id := cmp.Or(u.Group, u.ID) // all threads of a process together
		key := fmt.Sprint(p.Name, id)
		if c.programs[key] == nil {
			c.programs[key] = &Client{ID: id, Name: u.Name, Mount: p.Name}
		}
		return c.programs[key]
	}
	if c.clients[u.ID] == nil {
		c.clients[u.ID] = &Client{ID: u.ID, Name: c.name(u.ID), Open: c.peers[u.ID].Open}
	}
	return c.clients[u.ID]
}

// name is what people call a session: without the part that only makes it unique.
func (c *computing) name(id uint64) string {
	p, ok := c.peers[id]
	switch {
	case ok:
		name, _, _ := strings.Cut(p.Name, " [")
		return name
	case id == 0:
		return "others"
	}
	return fmt.Sprintf("session %x", id)
}

// addSlow adds the slow requests of a process.
func (c *computing) addSlow(p *Process, s *activity.Snapshot) {
	programs := map[uint64]activity.Use{}
	for _, u := range s.Clients {
		programs[u.ID] = u
	}
	add := func(one activity.Slow, running bool) {
		row := Slow{Process: p.Name, Op: one.Op, Inode: one.Object, Name: one.Name, Running: running,
			Ago: one.Ago.Seconds(), Took: ms(one.Took), Bytes: one.Bytes, Failed: one.Failed,
			Where: one.Where(Short), Phases: one.Phases}
		switch {
		case one.Client == 0:
		case p.Kind == "mount":
			u := programs[one.Client]
			row.Client = strings.TrimSpace(fmt.Sprintf("%s %d", u.Name, cmp.Or(u.Group, one.Client)))
		default:
			row.Client = c.name(one.Client)
		}
		c.view.Slow = append(c.view.Slow, row)
	}
	for _, one := range s.Running {
		add(one, true)
	}
	for _, one := range s.Slow {
		add(one, false)
	}
}

// finish puts together what was added up. Clients that have files open and did nothing are there,
// too. Lists are never null in JSON.
func (c *computing) finish() {
	v := c.view
	for id, p := range c.peers {
		if c.clients[id] == nil && p.Open > 0 {
			c.clients[id] = &Client{ID: id, Name: c.name(id), Open: p.Open}
		}
	}
	v.Ops, v.Clients, v.Programs, v.Files = []Op{}, []Client{}, []Client{}, []File{}
	for _, s := range c.ops {
		s.op.P50, s.op.P99 = percentiles(s.buckets)
		s.op.Mean = ms(s.busy) / float64(s.count)
		v.Ops = append(v.Ops, s.op)
	}
	for _, one := range c.clients {
		v.Clients = append(v.Clients, *one)
	}
	for _, one := range c.programs {
		v.Programs = append(v.Programs, *one)
	}
	for _, one := range c.files {
		v.Files = append(v.Files, *one)
	}
	if v.Processes == nil {
		v.Processes = []Process{}
	}
	slices.SortStableFunc(v.Processes, func(a, b Process) int { // trouble first
		return cmp.Compare(flag(a.Up), flag(b.Up))
	})
	if v.Slow == nil {
		v.Slow = []Slow{}
	}
	v.Sort(ByRequests)
}

// Order is by what lists are sorted.
type Order uint8

// The orders.
const (
	ByRequests Order = iota
	ByBytes
	ByLatency
	ByName
)

func (o Order) String() string {
	return [...]string{"requests", "bytes", "latency", "name"}[o]
}

// Sort sorts all lists but that of processes. Where a list has nothing of the kind it is sorted by
// requests; slow requests are sorted by how long they took, those under way first. What is equal is
// sorted by name.
func (v *View) Sort(o Order) {
	slices.SortFunc(v.Ops, func(a, b Op) int {
		name := cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Op, b.Op))
		switch o {
		case ByName:
			return name
		case ByLatency:
			return cmp.Or(waitsLast(a, b), cmp.Compare(b.P99, a.P99), name)
		}
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), name)
	})
	for _, list := range [][]Client{v.Clients, v.Programs} {
		slices.SortFunc(list, func(a, b Client) int {
			return byUse(o, cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)),
				b.Requests-a.Requests, b.Read+b.Written-a.Read-a.Written)
		})
	}
	slices.SortFunc(v.Files, func(a, b File) int {
		return byUse(o, cmp.Compare(a.Inode, b.Inode), b.Requests-a.Requests,
			b.Read+b.Written-a.Read-a.Written)
	})
	slices.SortStableFunc(v.Slow, func(a, b Slow) int {
		return cmp.Or(cmp.Compare(flag(b.Running), flag(a.Running)), cmp.Compare(b.Took, a.Took))
	})
}

func waitsLast(a, b Op) int { return cmp.Compare(flag(a.Waits), flag(b.Waits)) }

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

func byUse(o Order, name int, requests, bytes float64) int {
	switch o {
	case ByName:
		return name
	case ByBytes:
		return cmp.Or(cmp.Compare(bytes, 0), cmp.Compare(requests, 0), name)
	}
	return cmp.Or(cmp.Compare(requests, 0), cmp.Compare(bytes, 0), name)
}
