package remote

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/peer"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// double is an I/O server that writes back as lazily as it is allowed to, and can lose all that it
// has not written. It holds its clients to the rules of slots.
type double struct {
	t    testing.TB
	node *msg.Node

	mu       sync.Mutex
	rng      *rand.Rand
	listen   *msg.Server
	addr     string
	down     bool // between two lives
	verifier uint64
	objects  map[stripe.ObjectID]*part
	seen     stripe.Sessions // with the data
	queued   map[stripe.SessionSlot]uint32
	running  map[stripe.SessionSlot]bool
	wrong    []string // rules that a client broke
	lazy     bool     // nothing is written before it has to be

	dieAfter     int // change after which the server dies without answering; 0: never
	damageReads  int // so many are damaged on their way
	damageWrites int
	unsummed     int  // reads and writes that came without sums
	expired      bool // refuses every capability that does not begin with freshCap
	failSync     error
	refuse       error // every write
	arrived      int   // writes
	measured     int   // questions for a size
	crashing     sync.WaitGroup
}

const freshCap = 7

// part is an object: what is written, and what waits to be.
type part struct {
	data     []byte
	size     int64
	truncSeq uint64
	queue    []change
}

type change struct {
	stamp wire.Stamp
	at    []seg.Piece
	data  []byte // nil: zeroes
}

const partBytes = 256 << 10

func (p *part) apply(c *change) {
	pos := int64(0)
	for _, x := range c.at {
		if c.data == nil {
			clear(p.data[x.Off:x.End()])
			continue
		}
		copy(p.data[x.Off:x.End()], c.data[pos:])
		pos += x.Len
		p.size = max(p.size, x.End())
	}
}

func (p *part) truncate(size int64, seq uint64) error {
	switch {
	case seq < p.truncSeq:
		return errs.New(errs.Stale, "double", "", nil)
	case seq > p.truncSeq:
		clear(p.data[size:])
		p.size, p.truncSeq = size, seq
	}
	return nil
}

func newDouble(t testing.TB, seed uint64) *double {
	d := &double{t: t, rng: rand.New(rand.NewPCG(seed, 1)), verifier: 1000,
		objects: make(map[stripe.ObjectID]*part), queued: make(map[stripe.SessionSlot]uint32),
		running: make(map[stripe.SessionSlot]bool)}
	dom, err := tcp.Open(tcp.Options{Linger: 50 * time.Millisecond})
	must(t, err)
	d.node, err = msg.NewNode(msg.Options{Domain: dom})
	must(t, err)
	d.serve()
	t.Cleanup(func() {
		d.crashing.Wait()
		must(t, d.listen.Close(context.Background()))
		must(t, d.node.Close())
		must(t, dom.Close())
		for _, w := range d.wrong {
			t.Error(w)
		}
	})
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d *double) serve() {
	l, err := d.node.Serve("127.0.0.1:0", d, msg.ServeOptions{})
	if err != nil {
		panic(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listen, d.addr, d.down = l, l.Addr(), false
}

// crash kills the server and starts it again on what it had written.
func (d *double) crash() {
	d.mu.Lock()
	d.down = true
	d.mu.Unlock()
	d.restart()
}

func (d *double) restart() {
	_ = d.listen.Close(context.Background())
	d.mu.Lock()
	d.loseLocked()
	d.mu.Unlock()
	d.serve()
}

// loseLocked drops what waits to be written.
func (d *double) loseLocked() {
	for _, p := range d.objects {
		p.queue = nil
	}
	clear(d.queued)
	d.verifier++
}

func (d *double) resolve(context.Context, uint32) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		return "", errs.New(errs.Disconnected, "double", "", nil)
	}
	return d.addr, nil
}

func (d *double) Serve(ctx context.Context, c *msg.Call) {
	if err := d.answer(ctx, c); err != nil {
		_ = c.Fail(err)
	}
}

func (d *double) answer(ctx context.Context, c *msg.Call) error {
	op := iod.Op(c.Header().Op)
	var e wire.Enc
	if op == iod.OpStatus {
		d.mu.Lock()
		iod.AppendStatus(&e, &iod.Status{ID: 1, Verifier: d.verifier})
		down := d.down
		d.mu.Unlock()
		if down {
			return errs.New(errs.Shutdown, "double", "", nil)
		}
		return c.Reply(e.B, 0)
	}
	var req iod.Request
	if err := req.Decode(op, c.Header().Stamp, c.Body()); err != nil {
		return err
	}
	var data []byte
	if op == iod.OpWrite {
		data = make([]byte, c.OutLen())
		if err := c.Pull(ctx, 0, []fabric.Sge{{Buf: data}}); err != nil {
			return err
		}
	}
	reply, err := d.handle(op, &req, data)
	if err != nil {
		return err
	}
	if op == iod.OpRead {
		if err := c.Push(ctx, 0, []fabric.Sge{{Buf: reply.data}}); err != nil {
			return err
		}
		iod.AppendData(&e, reply.mark, reply.sums)
		return c.Reply(e.B, int64(len(reply.data)))
	}
	if op == iod.OpStat {
		iod.AppendInfo(&e, &reply.info)
	} else {
		iod.AppendMark(&e, reply.mark)
	}
	return c.Reply(e.B, 0)
}

type answer struct {
	mark iod.Mark
	data []byte
	sums []uint32
	info stripe.Info
}

func (d *double) handle(op iod.Op, req *iod.Request, data []byte) (a answer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := &req.Target
	if d.down {
		return a, errs.New(errs.Shutdown, "double", "", nil)
	}
	if d.expired && t.Cap[0] != freshCap {
		return a, errs.New(errs.Expired, "double", "", nil)
	}
	p := d.objects[t.Object]
	if p == nil {
		p = &part{data: make([]byte, partBytes)}
		d.objects[t.Object] = p
	}
	switch op {
	case iod.OpRead:
		a.data = d.read(p, req)
		if req.Target.How.NoSums {
			d.unsummed++
		} else {
			a.sums = sumsOf(a.data)
		}
		if d.damageReads > 0 {
			d.damageReads--
			a.data[len(a.data)/2] ^= 1
		}
	case iod.OpWrite, iod.OpPunch:
		if err := d.write(p, op, req, data); err != nil {
			return a, err
		}
	case iod.OpSync:
		if d.failSync != nil {
			return a, d.failSync
		}
		d.flushLocked(p, len(p.queue))
	case iod.OpTruncate:
		d.flushLocked(p, len(p.queue))
		if err := p.truncate(req.Args.Len, t.Stamp.TruncSeq); err != nil {
			return a, err
		}
	case iod.OpStat:
		d.measured++
		d.flushLocked(p, len(p.queue))
		a.info = stripe.Info{ID: t.Object, Size: p.size, TruncSeq: p.truncSeq}
	}
	a.mark = iod.Mark{Verifier: d.verifier, Life: d.verifier}
	return a, nil
}

func sumsOf(b []byte) []uint32 {
	var s iod.Summing
	s.Add(b)
	return slices.Clone(s.Sums())
}

func (d *double) read(p *part, req *iod.Request) []byte {
	view := part{data: slices.Clone(p.data)}
	for i := range p.queue {
		view.apply(&p.queue[i])
	}
	var out []byte
	for _, x := range piecesOf(req.Args.Access) {
		out = append(out, view.data[x.Off:x.End()]...)
	}
	return out
}

func piecesOf(a seg.Access) []seg.Piece {
	var list []seg.Piece
	for c := a.Cursor(); ; {
		p, ok := c.Next(math.MaxInt64)
		if !ok {
			return list
		}
		list = append(list, p)
	}
}

func (d *double) write(p *part, op iod.Op, req *iod.Request, data []byte) error {
	d.arrived++
	if req.Target.How.NoSums {
		d.unsummed++
	}
	st, args := req.Target.Stamp, &req.Args
	ch := change{stamp: st, data: data, at: piecesOf(args.Access)}
	if op == iod.OpPunch {
		ch.at = []seg.Piece{{Off: args.Off, Len: args.Len}}
	} else if d.damageWrites > 0 {
		d.damageWrites--
		return errs.New(errs.Corrupt, "double", "", nil)
	} else if !req.Target.How.NoSums && !slices.Equal(sumsOf(data), args.Sums) {
		return errs.Newf(errs.Corrupt, "double", "", "wrong sums")
	}
	if d.refuse != nil {
		return d.refuse
	}
	if stripe.Numbered(st) {
		key := stripe.SessionSlot{Session: st.Session, Slot: st.Slot}
		if d.seen.Repeated(st) || d.queued[key] >= st.Seq {
			return nil
		}
	}
	if st.TruncSeq < p.truncSeq {
		return errs.New(errs.Stale, "double", "", nil)
	}
	if args.Durability == stripe.Volatile && op == iod.OpWrite && !req.Target.How.DirectFor(false) {
		p.queue = append(p.queue, ch)
		d.queued[stripe.SessionSlot{Session: st.Session, Slot: st.Slot}] = st.Seq
		if !d.lazy {
			d.flushLocked(p, d.rng.IntN(len(p.queue)+1))
		}
	} else {
		d.flushLocked(p, p.lastOver(ch.at))
		p.apply(&ch)
		d.seen.Note(st)
	}
	if d.dieAfter > 0 {
		if d.dieAfter--; d.dieAfter == 0 {
			d.down = true
			d.crashing.Go(d.restart)
			return errs.New(errs.Disconnected, "double", "", nil)
		}
	}
	return nil
}

// flushLocked writes the first n waiting changes.
func (d *double) flushLocked(p *part, n int) {
	for i := range n {
		p.apply(&p.queue[i])
		d.seen.Note(p.queue[i].stamp)
	}
	p.queue = p.queue[n:]
}

// lastOver counts the changes up to the last one that overlaps.
func (p *part) lastOver(at []seg.Piece) int {
	for i := len(p.queue) - 1; i >= 0; i-- {
		for _, x := range p.queue[i].at {
			for _, y := range at {
				if x.Off < y.End() && y.Off < x.End() {
					return i + 1
				}
			}
		}
	}
	return 0
}

// rig is a client of a double.
type rig struct {
	*Remote
	d        *double
	session  uint64
	truncSeq uint64      // that it knows of
	away     atomic.Bool // it makes no connection
}

// resolve is the double's, but for a client that is kept away.
func (g *rig) resolve(ctx context.Context, id uint32) (string, error) {
	if g.away.Load() {
		return "", errs.New(errs.Disconnected, "rig", "", nil)
	}
	return g.d.resolve(ctx, id)
}

func newRig(t testing.TB, d *double, session uint64, opts Options) *rig {
	dom, err := tcp.Open(tcp.Options{Linger: 50 * time.Millisecond})
	must(t, err)
	return newRigOn(t, d, session, dom, opts)
}

// newRigOn is newRig on a domain, which it closes.
func newRigOn(t testing.TB, d *double, session uint64, dom fabric.Domain, opts Options) *rig {
	node, err := msg.NewNode(msg.Options{Domain: dom})
	must(t, err)
	g := &rig{d: d, session: session}
	pool := peer.NewPool(node, g.resolve)
	g.Remote = New(pool, opts)
	t.Cleanup(func() {
		must(t, g.Close())
		must(t, pool.Close())
		must(t, node.Close())
		must(t, dom.Close())
	})
	return g
}

func (g *rig) target(file uint64) iod.Target {
	return iod.Target{Server: 1, Object: stripe.ObjectID{File: file, Gen: 1},
		Stamp: wire.Stamp{Session: g.session, Gen: 1, TruncSeq: g.truncSeq}}
}

func memory(p []byte) *msg.Memory {
	return &msg.Memory{Windows: []fabric.Sge{{Buf: p}}, Access: seg.Contig(0, int64(len(p)))}
}

func (g *rig) write(file uint64, off int64, p []byte, d stripe.Durability) error {
	_, err := g.Write(context.Background(), g.target(file), seg.Contig(off, int64(len(p))),
		memory(p), d)
	return err
}

func (g *rig) read(file uint64, off, n int64) ([]byte, error) {
	p := make([]byte, n)
	_, err := g.Read(context.Background(), g.target(file), seg.Contig(off, n), memory(p))
	return p, err
}

func (g *rig) sync(file uint64) error {
	_, err := g.Sync(context.Background(), g.target(file))
	return err
}

// expect reads and compares.
func (g *rig) expect(file uint64, off int64, want []byte) error {
	got, err := g.read(file, off, int64(len(want)))
	if err == nil && !bytes.Equal(got, want) {
		i := 0
		for got[i] == want[i] {
			i++
		}
		err = fmt.Errorf("file %d: byte %d is %d, want %d", file, off+int64(i), got[i], want[i])
	}
	return err
}
