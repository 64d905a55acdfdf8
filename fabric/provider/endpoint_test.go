package provider

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// TestEverythingCompletesOnce posts, starts, completes, polls and kills in any order: each request
// that wants it, and each receive, completes exactly once, and the places in the queue come back
// when the last completion was polled, and not before.
func TestEverythingCompletesOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &life{rig: newRig(t, 2*testDepth), rt: rt, open: map[uint64]bool{}}
		m.e = m.end()
		rt.Repeat(map[string]func(*rapid.T){
			"post":  m.post,
			"recv":  m.recv,
			"start": m.start,
			"done":  m.done,
			"take":  m.take,
			"poll":  m.poll,
			"die":   func(*rapid.T) { m.e.Die(errs.Disconnected, "cut") },
			"":      func(*rapid.T) { m.reserved() },
		})
		_ = m.e.Close()
		for len(m.open) > 0 {
			m.reserved()
			before := len(m.open)
			if m.poll(rt); len(m.open) == before {
				rt.Fatalf("%d never complete", before)
			}
		}
		cfg := m.config()
		if err := m.Reserve(&cfg); err != nil {
			rt.Fatalf("the places did not come back: %v", err)
		}
	})
}

// life is the model: open has what must complete, by context.
type life struct {
	*rig
	rt   *rapid.T
	e    *end
	next uint64
	open map[uint64]bool
}

// reserved checks that the endpoint has its places in the queue.
func (m *life) reserved() {
	cfg := m.config()
	if err := m.Reserve(&cfg); errs.KindOf(err) != errs.Invalid {
		m.rt.Fatalf("the places came back too early: %v", err)
	}
}

func (m *life) post(t *rapid.T) {
	wr := fabric.WR{Op: fabric.OpSend, Context: m.next}
	if rapid.Bool().Draw(t, "read") {
		wr.Op = fabric.OpRead
	}
	if m.next++; rapid.Bool().Draw(t, "signalled") {
		wr.Flags = fabric.FlagSignaled
	}
	if rapid.Bool().Draw(t, "fenced") {
		wr.Flags |= fabric.FlagFence
	}
	if m.e.Post([]fabric.WR{wr}) == nil {
		m.open[wr.Context] = wr.Flags&fabric.FlagSignaled != 0
	}
}

func (m *life) recv(*rapid.T) {
	if m.e.PostRecv([]fabric.Recv{{Context: m.next}}) == nil {
		m.open[m.next] = true
	}
	m.next++
}

func (m *life) start(t *rapid.T) {
	w := m.e.reqs.Next()
	switch {
	case w == nil:
	case w.Op == fabric.OpRead:
		m.e.reqs.StartRead(m.e.reqs.FreeTag())
	default:
		m.e.reqs.Started.Push(m.e.reqs.Posted.Pop())
	}
}

// done ends a request well. One that nobody asked for is over then.
func (m *life) done(t *rapid.T) {
	q := &m.e.reqs
	var w *Request[int]
	if tag := rapid.IntRange(0, ReadDepth-1).Draw(t, "tag"); q.Reads[tag] != nil {
		w = q.EndRead(tag)
	} else if q.Started.Len() > 0 {
		w = q.Started.Pop()
	} else {
		return
	}
	if !m.open[w.Context] {
		delete(m.open, w.Context)
	}
	m.e.complete(w)
}

func (m *life) take(*rapid.T) {
	if r, err := m.e.recvs.Take(); err == nil {
		m.q.Push(&fabric.Completion{Op: fabric.OpRecv, Context: r.Context, EP: m.e}, false)
	}
}

func (m *life) poll(t *rapid.T) {
	var dst [3]fabric.Completion
	for _, c := range dst[:m.q.Poll(dst[:])] {
		told, ok := m.open[c.Context]
		if !ok || !told && c.Err == nil {
			m.rt.Fatalf("%+v, which is not due", c)
		}
		delete(m.open, c.Context)
	}
}

func TestFirstCauseIsKept(t *testing.T) {
	e := newRig(t, 2*testDepth).end()
	if e.Dead() || e.Cause() != nil || e.Check("op") != nil {
		t.Fatal("it is dead from the beginning")
	}
	if !e.End(errs.Disconnected, "gone") || e.End(errs.Protocol, "breach") {
		t.Fatal("the first one counts")
	}
	wants(t, e.Cause(), errs.Disconnected)
	wants(t, e.Check("op"), errs.Disconnected)
	e.Blame(errs.Protocol, "breach")
	wants(t, e.Cause(), errs.Protocol)
	wants(t, e.Check("op"), errs.Disconnected) // what posting gives, whatever the cause
	e.Blame(errs.Perm, "too late")
	wants(t, e.Cause(), errs.Protocol)
	e.Finished()
	fatal(t, e.Close())
	wants(t, e.Check("op"), errs.Closed)
}

func TestForeignRegions(t *testing.T) {
	r, other := newRig(t, 4*testDepth), newRig(t, 1)
	e, mem := r.end(), make([]byte, 8)
	mine, closed := r.region(mem), r.region(mem)
	fatal(t, closed.Close())
	for name, c := range map[string]struct {
		reg  fabric.Region
		want errs.Kind
	}{
		"none": {nil, errs.OK}, "its own": {mine, errs.OK}, "closed": {closed, errs.Invalid},
		"of another domain": {other.region(mem), errs.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			wants(t, e.Post([]fabric.WR{{
				Op: fabric.OpSend, Local: []fabric.Sge{{Reg: c.reg, Buf: mem}},
			}}), c.want)
			wants(t, e.PostRecv([]fabric.Recv{{Reg: c.reg, Buf: mem}}), c.want)
		})
	}
}

func TestReservations(t *testing.T) {
	r, other := newRig(t, 2*testDepth), newRig(t, 2*testDepth)
	cfg := other.config()
	wants(t, r.Reserve(&cfg), errs.Invalid)
	cfg = r.config()
	fatal(t, r.Reserve(&cfg))
	second := r.config()
	wants(t, r.Reserve(&second), errs.Invalid)
	r.Unreserve(&cfg)
	e := r.end()
	e.Disown() // its places are not its own
	fatal(t, e.Close())
	wants(t, r.Reserve(&second), errs.Invalid)
	r.Unreserve(&cfg)
	fatal(t, r.Reserve(&second))
	fatal(t, r.q.Close())
	wants(t, r.Reserve(&second), errs.Closed)
}
