package relay

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
	"pgregory.net/rapid"
)

// drawn is a request and an engine of random shape.
func drawn(t *rapid.T) (o Options, how How, off, n int64) {
	o.ChunkBytes = 4096 * rapid.IntRange(1, 20).Draw(t, "chunk")
	o.WindowBytes = int64(o.ChunkBytes) * rapid.Int64Range(1, 9).Draw(t, "window")
	o.Workers = rapid.IntRange(1, 6).Draw(t, "workers")
	o.Ahead = rapid.IntRange(1, 3).Draw(t, "ahead")
	if members := rapid.IntRange(0, 5).Draw(t, "members"); members > 0 {
		o.Place = places{members, 4096 * rapid.Int64Range(1, 30).Draw(t, "stripe")}
	}
	how.Streams = Streams(rapid.IntRange(0, 3).Draw(t, "streams"))
	if rapid.Bool().Draw(t, "own chunk") {
		how.ChunkBytes = 4096 * rapid.IntRange(1, 20).Draw(t, "its chunk")
	}
	off, n = rapid.Int64Range(0, 300_000).Draw(t, "off"), rapid.Int64Range(0, 700_000).Draw(t, "n")
	if rapid.Bool().Draw(t, "aligned") {
		off, n = off&^4095, n&^4095
	}
	return o, how, off, n
}

// bound is what a request may have of memory: the window, or a chunk of its own that is larger; and
// a block for each lane where stream and blocks do not meet.
func bound(o Options, how How, least int64) int64 {
	chunk := int64(how.ChunkBytes)
	if chunk == 0 {
		chunk = int64(o.ChunkBytes)
	}
	window := max(o.WindowBytes, chunk, least)
	return window + window/min(chunk, window, chunkLeast)*4096
}

func TestReadsAnyShape(t *testing.T) {
	d, s := newDisk(t)
	content := fill(1<<20, 3)
	ctx := context.Background()
	err := s.WriteAt(ctx, alpha, [][]byte{content[:900_000]}, 0, wire.Stamp{}, stripe.Volatile)
	if err != nil {
		t.Fatal(err)
	}
	clear(content[900_000:])
	rapid.Check(t, func(rt *rapid.T) {
		o, how, off, n := drawn(rt)
		r := &room{piece: rapid.SampledFrom([]int{0, 4096, 8192, 65_536}).Draw(rt, "piece")}
		o.Disk, o.Room = d, r
		e, err := New(o)
		if err != nil {
			rt.Fatal(err)
		}
		defer e.Close()
		p := newPeer(t, n)
		job := ReadJob{Object: alpha, Off: off, Bytes: n, How: how, To: p}
		if rapid.Bool().Draw(rt, "sums") {
			job.Sums = make([]uint32, SumCount(n))
		}
		if err := e.Read(ctx, &job); err != nil {
			rt.Fatal(err)
		}
		p.all()
		if !bytes.Equal(p.data, content[off:off+n]) {
			rt.Fatal("the bytes differ")
		}
		if job.Sums != nil {
			p.compare(0, n, job.Sums)
		}
		if t.Failed() {
			rt.Fatal("a chunk was wrong")
		}
		now, most := r.outstanding()
		if now != 0 || most > bound(o, how, 0) {
			rt.Fatalf("memory: %d now, %d at most", now, most)
		}
	})
}

func TestWritesAnyShape(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		o, how, off, n := drawn(rt)
		d, s := newDisk(t)
		content := fill(1<<20, 9)
		err := s.WriteAt(ctx, alpha, [][]byte{content}, 0, wire.Stamp{}, stripe.Volatile)
		if err != nil {
			rt.Fatal(err)
		}
		r := &room{piece: rapid.SampledFrom([]int{0, 4096, 8192, 65_536}).Draw(rt, "piece")}
		o.Disk, o.Room = d, r
		e, err := New(o)
		if err != nil {
			rt.Fatal(err)
		}
		defer e.Close()
		p := newPeer(t, n)
		copy(p.data, fill(int(n), 77))
		copy(content[off:], p.data)
		job := WriteJob{Object: alpha, Off: off, Bytes: n, How: how, From: p,
			Unchecked:  rapid.Bool().Draw(rt, "unchecked"),
			Stamp:      wire.Stamp{Session: 3, Slot: 1, Seq: 5, Epoch: 2},
			Durability: stripe.Durability(rapid.IntRange(0, 2).Draw(rt, "durability"))}
		if err := e.Write(ctx, &job); err != nil {
			rt.Fatal(err)
		}
		p.all()
		sums := make([]uint32, len(content)/4096)
		got := make([]byte, len(content))
		if err := s.ReadSums(ctx, alpha, [][]byte{got}, 0, sums); err != nil {
			rt.Fatal(err)
		}
		if !bytes.Equal(got, content) || t.Failed() {
			rt.Fatal("the bytes differ, or a chunk was wrong")
		}
		if want := n; !job.Unchecked && p.checks != want || job.Unchecked && p.checks != 0 {
			rt.Fatalf("%d bytes of %d were checked", p.checks, want)
		}
		now, most := r.outstanding()
		if now != 0 || most > bound(o, how, CheckBytes) {
			rt.Fatalf("memory: %d now, %d at most", now, most)
		}
		finished(rt, d, o, job)
	})
}

// finished checks the end of a write: its number on each member, behind all data, then one sync.
func finished(t *rapid.T, d *disk, o Options, job WriteJob) {
	members := map[int]bool{}
	for at := int64(0); at < max(job.Bytes, 1); {
		m, n := 0, max(job.Bytes, 1)
		if o.Place != nil {
			m, n = o.Place.Place(job.Object, job.Off+at)
		}
		members[m] = true
		at += n
	}
	var tail []string
	for range members {
		tail = append(tail, "number")
	}
	if job.Durability != stripe.Volatile {
		tail = append(tail, "sync")
	}
	at := slices.IndexFunc(d.events, func(s string) bool { return s != "stored" })
	if at < 0 || !slices.Equal(d.events[at:], tail) {
		t.Fatalf("events %v, want them to end in %v", d.events, tail)
	}
	for _, st := range d.stamps {
		if st != job.Stamp {
			t.Fatalf("remembered %+v", st)
		}
	}
}

// The next chunk is read while the last one is sent: the receiver of the first chunk waits until
// the second one is being read, which would be for ever if it was not.
func TestReadingOverlapsSending(t *testing.T) {
	for _, streams := range []Streams{Single, Multiple} {
		d, _ := newDisk(t)
		second := make(chan struct{})
		d.before = func(off int64, _ int) error {
			if off == 64<<10 {
				close(second)
			}
			return nil
		}
		p := newPeer(t, 256<<10)
		p.on = func(_ context.Context, at int64) error {
			if at == 0 {
				<-second
			}
			return nil
		}
		e := start(t, Options{Disk: d, Room: &room{}, ChunkBytes: 64 << 10, Streams: streams,
			WindowBytes: 128 << 10, Ahead: 1})
		err := within(t, func() error {
			return e.Read(context.Background(), &ReadJob{Object: alpha, Bytes: 256 << 10, To: p})
		})
		if err != nil {
			t.Fatal(err)
		}
		p.all()
		if _, most := d.look(); most != 1 {
			t.Fatalf("%v: a single member reads %d chunks at once, want 1", streams, most)
		}
	}
}

// The reverse: the first chunk is being stored while the second one is fetched.
func TestStoringOverlapsFetching(t *testing.T) {
	for _, streams := range []Streams{Single, Multiple} {
		d, _ := newDisk(t)
		second := make(chan struct{})
		d.before = func(off int64, _ int) error {
			if off == 0 {
				<-second
			}
			return nil
		}
		p := newPeer(t, 256<<10)
		p.on = func(_ context.Context, at int64) error {
			if at == 64<<10 {
				close(second)
			}
			return nil
		}
		e := start(t, Options{Disk: d, Room: &room{}, ChunkBytes: 64 << 10, Streams: streams,
			WindowBytes: 128 << 10, Ahead: 1})
		err := within(t, func() error {
			return e.Write(context.Background(), &WriteJob{Object: alpha, Bytes: 256 << 10, From: p})
		})
		if err != nil {
			t.Fatal(err)
		}
		p.all()
		if _, most := d.look(); most != 1 {
			t.Fatalf("%v: a single member stores %d chunks at once, want 1", streams, most)
		}
	}
}

// Plain is one piece: disk and network never work at the same time.
func TestPlainDoesNotOverlap(t *testing.T) {
	d, _ := newDisk(t)
	p := newPeer(t, 1<<20)
	var reads atomic.Int32
	d.before = func(int64, int) error {
		reads.Add(1)
		if p.look() != 0 {
			t.Error("read while something is sent")
		}
		return nil
	}
	p.on = func(context.Context, int64) error {
		if under, _ := d.look(); under != 0 {
			t.Error("sent while something is read")
		}
		return nil
	}
	r := &room{}
	e := start(t, Options{Disk: d, Room: r, WindowBytes: 512 << 10, Streams: Plain,
		Place: places{4, 64 << 10}})
	err := e.Read(context.Background(), &ReadJob{Object: alpha, Bytes: 1 << 20, To: p})
	if err != nil {
		t.Fatal(err)
	}
	p.all()
	if _, most := r.outstanding(); reads.Load() != 2 || most != 512<<10 {
		t.Fatalf("%d reads, %d bytes at most; want two of half the request", reads.Load(), most)
	}
}

// barrier lets n callers pass when all of them are there.
type barrier struct {
	mu   sync.Mutex
	left int
	open chan struct{}
}

func newBarrier(n int) *barrier { return &barrier{left: n, open: make(chan struct{})} }

func (b *barrier) wait() {
	b.mu.Lock()
	if b.left--; b.left == 0 {
		close(b.open)
	}
	b.mu.Unlock()
	<-b.open
}

// All members work at the same time: the first chunk of each waits until each has one. With single
// there is one at a time.
func TestMembersWorkInParallel(t *testing.T) {
	const members, stripeBytes = 4, 128 << 10
	for _, write := range []bool{false, true} {
		d, _ := newDisk(t)
		b := newBarrier(members)
		d.before = func(off int64, _ int) error {
			if off%stripeBytes == 0 && off < members*stripeBytes {
				b.wait()
			}
			return nil
		}
		e := start(t, Options{Disk: d, Room: &room{}, ChunkBytes: 64 << 10,
			WindowBytes: members * 64 << 10, Place: places{members, stripeBytes}})
		p := newPeer(t, 8*stripeBytes)
		move := func(how How) error {
			return within(t, func() error {
				if write {
					return e.Write(context.Background(),
						&WriteJob{Object: alpha, Bytes: 8 * stripeBytes, From: p, How: how})
				}
				return e.Read(context.Background(),
					&ReadJob{Object: alpha, Bytes: 8 * stripeBytes, To: p, How: how})
			})
		}
		if err := move(How{}); err != nil {
			t.Fatal(err)
		}
		p.all()
		d.before, d.most = nil, 0
		p = newPeer(t, 8*stripeBytes)
		if err := move(How{Streams: Single}); err != nil {
			t.Fatal(err)
		}
		p.all()
		if _, most := d.look(); most != 1 {
			t.Fatalf("write %v: single streams have %d chunks at the disk at once", write, most)
		}
	}
}

// Chunks may come in any order: the first member is the slowest, and everything else has been
// delivered before its first chunk is.
func TestChunksOvertake(t *testing.T) {
	d, _ := newDisk(t)
	p := newPeer(t, 512<<10)
	others := make(chan struct{})
	var delivered atomic.Int32
	d.before = func(off int64, _ int) error {
		if off/(64<<10)%2 == 0 {
			<-others
		}
		return nil
	}
	p.on = func(_ context.Context, at int64) error {
		if at/(64<<10)%2 == 1 && delivered.Add(1) == 4 {
			close(others)
		}
		return nil
	}
	e := start(t, Options{Disk: d, Room: &room{}, ChunkBytes: 64 << 10, WindowBytes: 192 << 10,
		Place: places{2, 64 << 10}})
	err := within(t, func() error {
		return e.Read(context.Background(), &ReadJob{Object: alpha, Bytes: 512 << 10, To: p})
	})
	if err != nil {
		t.Fatal(err)
	}
	p.all()
}

// Sums of a write's chunks can be joined to sums of CheckBytes, wherever members begin.
func TestWriteChunksCanBeChecked(t *testing.T) {
	d, _ := newDisk(t)
	p := newPeer(t, 700_000)
	copy(p.data, fill(700_000, 5))
	var want []uint32
	for at := 0; at < len(p.data); at += CheckBytes {
		want = append(want, crc32c.Sum(p.data[at:min(at+CheckBytes, len(p.data))]))
	}
	e := start(t, Options{Disk: d, Room: &room{}, ChunkBytes: 4096 * 3,
		Place: places{3, 100 << 10}})
	c := &cells{peer: p, want: want}
	err := e.Write(context.Background(),
		&WriteJob{Object: alpha, Off: 4096 * 5, Bytes: 700_000, From: c})
	if err != nil {
		t.Fatal(err)
	}
	if n := c.seen.Load(); int(n) != len(want) {
		t.Fatalf("%d cells of %d were compared", n, len(want))
	}
}

type cells struct {
	*peer
	want []uint32
	seen atomic.Int32
}

func (c *cells) Check(at int64, sums []uint32) error {
	const each = CheckBytes / BlockBytes
	for len(sums) > 0 {
		k := min(each, len(sums))
		end := min(at+CheckBytes, int64(len(c.data)))
		full := (end - at) / BlockBytes
		sum := crc32c.JoinBlocks(sums[:full])
		if rest := (end - at) % BlockBytes; rest > 0 {
			sum = crc32c.Join(sum, sums[full], rest)
		}
		if sum != c.want[at/CheckBytes] {
			return errs.Newf(errs.Corrupt, "", "", "cell at %d: %08x", at, sum)
		}
		c.seen.Add(1)
		sums, at = sums[k:], end
	}
	return nil
}

func TestOptionsAreChecked(t *testing.T) {
	d, _ := newDisk(t)
	for _, o := range []Options{
		{Room: &room{}}, {Disk: d}, {Disk: d, Room: &room{}, ChunkBytes: 5000},
		{Disk: d, Room: &room{}, ChunkBytes: 4 << 20}, {Disk: d, Room: &room{}, WindowBytes: 4096},
		{Disk: d, Room: &room{}, Streams: 9}, {Disk: d, Room: &room{}, Ahead: -1},
		{Disk: d, Room: &room{}, Workers: -1},
	} {
		if _, err := New(o); !errors.Is(err, errs.Invalid) {
			t.Fatalf("%+v: %v", o, err)
		}
	}
	e := start(t, Options{Disk: d, Room: &room{}})
	ctx := context.Background()
	for _, j := range []ReadJob{
		{Object: alpha, Off: -1}, {Bytes: 5}, {Object: alpha, How: How{ChunkBytes: 5}},
		{Object: alpha, How: How{Streams: 4}}, {Object: alpha, Bytes: 5000, Sums: make([]uint32, 1)},
	} {
		if err := e.Read(ctx, &j); !errors.Is(err, errs.Invalid) {
			t.Fatalf("%+v: %v", j, err)
		}
	}
	if err := e.Write(ctx, &WriteJob{Object: alpha, How: How{Streams: 9}}); err == nil {
		t.Fatal("streams 9 exist")
	}
}
