package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/memstore"
	"github.com/sluice-storage/sluice/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var alpha = stripe.ObjectID{File: 7, Gen: 1, Stripe: 2}

// patience is how long a test waits for what must happen; much longer than it takes.
const patience = 60 * time.Second

// room gives memory and counts what is out.
type room struct {
	piece int // bytes of one of the gather list's; 0: one piece
	spare sync.Pool

	mu       sync.Mutex
	out, max int64
	refuse   error
}

type memory struct {
	r    *room
	n    int
	sges []fabric.Sge
}

func (m *memory) Sges() []fabric.Sge { return m.sges }

func (m *memory) Return() {
	m.r.mu.Lock()
	m.r.out -= int64(m.n)
	m.r.mu.Unlock()
	m.r.spare.Put(m)
}

func (r *room) Take(ctx context.Context, n int) (Piece, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	err := r.refuse
	if err == nil {
		r.out += int64(n)
		r.max = max(r.max, r.out)
	}
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if m, ok := r.spare.Get().(*memory); ok && m.n == n {
		return m, nil
	}
	m := &memory{r: r, n: n}
	for left := n; left > 0; {
		k := left
		if r.piece > 0 {
			k = min(left, r.piece)
		}
		m.sges = append(m.sges, fabric.Sge{Buf: make([]byte, k)})
		left -= k
	}
	return m, nil
}

func (r *room) outstanding() (now, most int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out, r.max
}

// places spreads objects over members in stripes.
type places struct {
	members int
	bytes   int64 // of a stripe
}

func (p places) Place(_ stripe.ObjectID, off int64) (int, int64) {
	return int(off/p.bytes) % p.members, p.bytes - off%p.bytes
}

// disk is a store whose requests are watched. before and after are called around each transfer of
// data, not for requests without any.
type disk struct {
	Disk
	before func(off int64, n int) error

	mu     sync.Mutex
	under  int
	most   int
	events []string
	stamps []wire.Stamp // of writes without data
	syncs  int
}

func (d *disk) note(format string, args ...any) {
	d.mu.Lock()
	d.events = append(d.events, fmt.Sprintf(format, args...))
	d.mu.Unlock()
}

func (d *disk) begin(off int64, n int) error {
	d.mu.Lock()
	d.under++
	d.most = max(d.most, d.under)
	d.mu.Unlock()
	if d.before != nil {
		return d.before(off, n)
	}
	return nil
}

func (d *disk) end() {
	d.mu.Lock()
	d.under--
	d.mu.Unlock()
}

func (d *disk) ReadSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32) error {
	defer d.end()
	if err := d.begin(off, int(stripe.BufBytes(bufs))); err != nil {
		return err
	}
	return d.Disk.ReadSums(ctx, id, bufs, off, sums)
}

func (d *disk) WriteSums(ctx context.Context, id stripe.ObjectID, bufs [][]byte, off int64,
	sums []uint32, stamps []wire.Stamp, du stripe.Durability) error {
	if bufs == nil {
		d.mu.Lock()
		d.stamps = append(d.stamps, stamps...)
		d.events = append(d.events, "number")
		d.mu.Unlock()
		return d.Disk.WriteSums(ctx, id, bufs, off, sums, stamps, du)
	}
	defer d.end()
	if err := d.begin(off, int(stripe.BufBytes(bufs))); err != nil {
		return err
	}
	err := d.Disk.WriteSums(ctx, id, bufs, off, sums, stamps, du)
	d.note("stored")
	return err
}

func (d *disk) Sync(ctx context.Context, id stripe.ObjectID) error {
	d.mu.Lock()
	d.syncs++
	d.events = append(d.events, "sync")
	d.mu.Unlock()
	return d.Disk.Sync(ctx, id)
}

func (d *disk) look() (under, most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.under, d.most
}

func newDisk(t testing.TB) (*disk, *memstore.Store) {
	s, err := memstore.New(memstore.Options{MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return &disk{Disk: s}, s
}

// fill makes bytes that differ by place.
func fill(n int, tag byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7+i>>8+i>>16) + tag
	}
	return b
}

// peer is the far side: it keeps what is delivered, and gives what is fetched.
type peer struct {
	t      testing.TB
	data   []byte
	met    []atomic.Uint32 // by block of the stream: how often it was moved
	on     func(ctx context.Context, at int64) error
	reject func(at int64) error

	mu     sync.Mutex
	under  int
	most   int
	checks int64 // bytes that were checked
}

func newPeer(t testing.TB, n int64) *peer {
	return &peer{t: t, data: make([]byte, n), met: make([]atomic.Uint32, SumCount(n))}
}

func (p *peer) begin(ctx context.Context, at int64) error {
	p.mu.Lock()
	p.under++
	p.most = max(p.most, p.under)
	p.mu.Unlock()
	if p.on != nil {
		return p.on(ctx, at)
	}
	return nil
}

func (p *peer) end() {
	p.mu.Lock()
	p.under--
	p.mu.Unlock()
}

func (p *peer) look() (under int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.under
}

func (p *peer) count(at, n int64) {
	if at%BlockBytes != 0 || at+n != int64(len(p.data)) && n%BlockBytes != 0 {
		p.t.Errorf("a chunk at %d of %d bytes is not of whole blocks", at, n)
	}
	for b := at / BlockBytes; b < (at+n+BlockBytes-1)/BlockBytes; b++ {
		p.met[b].Add(1)
	}
}

// all checks that every block was moved once.
func (p *peer) all() {
	p.t.Helper()
	for b := range p.met {
		if n := p.met[b].Load(); n != 1 {
			p.t.Fatalf("block %d of the stream was moved %d times", b, n)
		}
	}
}

func (p *peer) Deliver(ctx context.Context, at int64, data []fabric.Sge, sums []uint32) error {
	defer p.end()
	if err := p.begin(ctx, at); err != nil {
		return err
	}
	from := at
	for _, s := range data {
		at += int64(copy(p.data[at:], s.Buf))
	}
	p.count(from, at-from)
	p.compare(from, at-from, sums)
	return nil
}

func (p *peer) compare(at, n int64, sums []uint32) {
	if len(sums) != SumCount(n) {
		p.t.Errorf("%d sums for %d bytes", len(sums), n)
		return
	}
	for i, s := range sums {
		lo := at + int64(i)*BlockBytes
		if want := crc32c.Sum(p.data[lo:min(lo+BlockBytes, at+n)]); s != want {
			p.t.Errorf("the sum at %d is %08x, want %08x", lo, s, want)
			return
		}
	}
}

func (p *peer) Fetch(ctx context.Context, at int64, into []fabric.Sge) error {
	defer p.end()
	if err := p.begin(ctx, at); err != nil {
		return err
	}
	from := at
	for _, s := range into {
		at += int64(copy(s.Buf, p.data[at:]))
	}
	p.count(from, at-from)
	return nil
}

func (p *peer) Check(at int64, sums []uint32) error {
	if at%CheckBytes != 0 {
		p.t.Errorf("a chunk to check begins at %d", at)
	}
	if p.reject != nil {
		if err := p.reject(at); err != nil {
			return err
		}
	}
	n := min(int64(len(sums))*BlockBytes, int64(len(p.data))-at)
	p.compare(at, n, sums)
	p.mu.Lock()
	p.checks += n
	p.mu.Unlock()
	return nil
}

func start(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// within runs fn and fails when it does not end.
func within(t testing.TB, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatal("it does not end")
		return nil
	}
}
