package activity

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Snapshot is what a process has done since its start, and does now, as it is shown to people. All
// durations are nanoseconds in JSON.
type Snapshot struct {
	Process  string        `json:"process"`         // its name: meta, iod1, mount
	Kind     string        `json:"kind"`            // meta, iod, mount
	PID      int           `json:"pid"`             // of its host
	Uptime   time.Duration `json:"uptime"`          // since it counts
	CPU      time.Duration `json:"cpu"`             // processor time since its start
	Resident int64         `json:"resident_bytes"`  // its memory
	Sessions int           `json:"sessions"`        // of clients; only the metadata service knows
	Open     int           `json:"open"`            // files, of all clients or of the mount
	Untold   int64         `json:"untold"`          // names that a mount is about to tell the service
	Ops      []OpUse       `json:"ops"`             // that were used
	Clients  []Use         `json:"clients"`         // of the last minute
	Objects  []Use         `json:"objects"`         // inodes, of the last minute
	Slow     []Slow        `json:"slow"`            // the slowest of the last minute, slowest first
	Running  []Slow        `json:"running"`         // under way for a while, longest first
	Peers    []Peer        `json:"peers,omitempty"` // names of clients; only the metadata service
}

// Peer is a client by the number that servers know it by.
type Peer struct {
	ID   uint64 `json:"id"`
	Name string `json:"name"`
	Open int    `json:"open"` // files
}

// OpUse is an operation since the process counts.
type OpUse struct {
	Op      string        `json:"op"`
	Waits   bool          `json:"waits,omitempty"` // its times tell nothing
	Count   uint64        `json:"count"`
	Failed  uint64        `json:"failed"`
	Sum     time.Duration `json:"sum"`
	Longest time.Duration `json:"longest"`
	Buckets []Bucket      `json:"buckets"`
}

// Slow is a request that took long, or does.
type Slow struct {
	Op     string        `json:"op"`
	Client uint64        `json:"client,omitempty"`
	Object uint64        `json:"object,omitempty"`
	Name   string        `json:"name,omitempty"`
	Ago    time.Duration `json:"ago"` // since its end
	Took   time.Duration `json:"took"`
	Bytes  int64         `json:"bytes,omitempty"`
	Failed bool          `json:"failed,omitempty"`
	Phases []Phase       `json:"phases,omitempty"` // longest first
	Phase  string        `json:"phase,omitempty"`  // of one under way: where it is
}

// Phase is a part of a request's time.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

const (
	runningMin   = 100 * time.Millisecond // what is under way for less is not shown
	runningShown = 32
)

// Snapshot fills in what the Recorder knows.
func (r *Recorder) Snapshot(s *Snapshot) {
	now := r.Now()
	s.Uptime = now
	s.Ops = r.Ops()
	s.Clients, s.Objects = r.clients.list(now), r.objects.list(now)
	s.Slow, s.Running = []Slow{}, r.running(now)
	for _, one := range r.slow.recent(now) {
		s.Slow = append(s.Slow, Slow{Op: r.opts.Ops[one.op].Name, Client: one.client,
			Object: one.object, Name: one.done.Name, Ago: now - one.end, Took: one.took,
			Bytes: one.done.Read + one.done.Written, Failed: one.done.Failed,
			Phases: r.phases(&one.done)})
	}
	slices.SortStableFunc(s.Slow, bySlowness)
}

// Anonymous takes the names of clients and files out.
func (s *Snapshot) Anonymous() {
	s.Peers = nil
	for i := range s.Clients {
		s.Clients[i].Name = ""
	}
	for _, list := range [][]Slow{s.Slow, s.Running} {
		for i := range list {
			list[i].Name = ""
		}
	}
}

// Ops are the operations that were used.
func (r *Recorder) Ops() []OpUse {
	all := []OpUse{}
	for i := range r.ops {
		h := &r.ops[i]
		list, n := h.read()
		if n == 0 || r.opts.Ops[i].Name == "" {
			continue
		}
		all = append(all, OpUse{Op: r.opts.Ops[i].Name, Waits: r.opts.Ops[i].Waits, Count: n,
			Failed: h.failed.Load(), Sum: time.Duration(h.sum.Load()),
			Longest: time.Duration(h.longest.Load()), Buckets: list})
	}
	return all
}

func bySlowness(a, b Slow) int { return cmp.Compare(b.Took, a.Took) }

// phases are those of some length, longest first.
func (r *Recorder) phases(d *Done) (list []Phase) {
	for i, name := range r.opts.Phases {
		if d.Phases[i] > 0 {
			list = append(list, Phase{name, d.Phases[i]})
		}
	}
	slices.SortStableFunc(list, func(a, b Phase) int { return cmp.Compare(b.Took, a.Took) })
	return list
}

// running are the requests that are under way for a while.
func (r *Recorder) running(now time.Duration) []Slow {
	all := []Slow{}
	for i := range r.under {
		p := &r.under[i]
		start := p.start.Load()
		what, client, object := p.what.Load(), p.client.Load(), p.object.Load()
		op, phase := what&opMask, what&phaseMask>>phaseBits
		age := now - time.Duration(start)
		if age < runningMin || p.start.Load() != start || r.opts.Ops[op].Waits {
			continue // or it ended meanwhile, and the place may be another one's
		}
		one := Slow{Op: r.opts.Ops[op].Name, Took: age}
		if what&told != 0 {
			one.Client, one.Object = client, object
		}
		if int(phase) < len(r.opts.Phases) {
			one.Phase = r.opts.Phases[phase]
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, bySlowness)
	return all[:min(len(all), runningShown)]
}

// Where tells in which phases most of the time went: "disk 12 ms" or "" if that is not known.
func (s *Slow) Where(format func(time.Duration) string) string {
	if s.Phase != "" {
		return "in " + s.Phase
	}
	var parts []string
	for _, p := range s.Phases[:min(len(s.Phases), 2)] {
		if p.Took*10 >= s.Took {
			parts = append(parts, p.Name+" "+format(p.Took))
		}
	}
	return strings.Join(parts, ", ")
}
