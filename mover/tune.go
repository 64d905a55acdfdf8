package mover

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// Side is one end of a connection that is measured. Nothing else uses the endpoint or its queue,
// which is that of both sends and receives, meanwhile. Endpoint and queue of the two sides are
// different ones.
type Side struct {
	Domain   fabric.Domain
	Endpoint fabric.Endpoint
	Queue    fabric.CQ
	Source   mem.Source // of the memory that is moved; nil: anonymous memory
}

// TuneOptions say what is measured.
type TuneOptions struct {
	// Fragments and Sizes, in bytes, are the shapes: each number of pieces with each size, ascending.
	// Default 4, 16, 64 and 256 to 64 Ki, times four.
	Fragments []int
	Sizes     []int

	// Rounds is how often each shape is moved each way, in turns; the medians count. Default 31.
	Rounds int

	// SendDepth is that of the near side's endpoint. Default 64.
	SendDepth int
}

func (o TuneOptions) withDefaults() TuneOptions {
	if o.Fragments == nil {
		o.Fragments = []int{4, 16, 64}
	}
	if o.Sizes == nil {
		o.Sizes = []int{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10}
	}
	if o.Rounds == 0 {
		o.Rounds = 31
	}
	if o.SendDepth == 0 {
		o.SendDepth = 64
	}
	return o
}

func (o TuneOptions) validate() error {
	for _, list := range [][]int{o.Fragments, o.Sizes} {
		if len(list) == 0 || list[0] < 1 || !slices.IsSorted(list) ||
			len(slices.Compact(slices.Clone(list))) != len(list) {
			return errs.Newf(errs.Invalid, "mover.Tune", "", "shapes %v", list)
		}
	}
	if o.Rounds < 1 || slices.Max(o.Fragments) > math.MaxInt32/slices.Max(o.Sizes)/2 {
		return errs.Newf(errs.Invalid, "mover.Tune", "", "no rounds, or shapes beyond 1 GiB")
	}
	return nil
}

// Sample is what one shape costs each way: from Start until the data is in the receiver's pieces.
type Sample struct {
	Fragments, Bytes int // pieces, and the size of each
	Gather, Pack     time.Duration
}

// Tune measures where packing pays on a connection, of which it has both ends, and returns a table.
// It takes as long as its moves do, some 100 ms with the defaults on one host. Memory in pieces is
// twice as far apart as it is long.
func Tune(
	ctx context.Context, near, far Side, opts TuneOptions,
) (Table, []Sample, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return Table{}, nil, err
	}
	t, err := openTuner(near, far, opts)
	if err != nil {
		return Table{}, nil, err
	}
	samples, err := t.measure(ctx, opts)
	if failed := t.close(); err == nil {
		err = failed
	}
	if err != nil {
		return Table{}, nil, errs.Wrap("mover.Tune", near.Endpoint.Name(), err)
	}
	return tableOf(samples), samples, nil
}

// tableOf makes a row for each number of fragments.
func tableOf(samples []Sample) Table {
	var t Table
	for from := 0; from < len(samples); {
		to := from
		for to < len(samples) && samples[to].Fragments == samples[from].Fragments {
			to++
		}
		t.Rows = append(t.Rows, Row{
			Fragments: samples[from].Fragments, PackBelow: crossover(samples[from:to]),
		})
		from = to
	}
	return t
}

// packMargin is how much faster packing must be to be chosen: it costs a copy and a buffer at each
// side.
const packMargin = 1.1

// crossover finds the size up to which packing wins most, over all of the sizes, so that one bad
// sample does not move it far: half-way, as a ratio, between the last size that is packed and the
// next. Gains are compared as ratios, too.
func crossover(samples []Sample) int {
	last, best, gain := -1, 0.0, 0.0
	for i, s := range samples {
		gain += math.Log(float64(s.Gather) / float64(s.Pack) / packMargin)
		if gain > best {
			last, best = i, gain
		}
	}
	switch {
	case last < 0:
		return 0
	case last == len(samples)-1:
		return 2 * samples[last].Bytes
	}
	return int(math.Sqrt(float64(samples[last].Bytes) * float64(samples[last+1].Bytes)))
}

// tuner has the memory of both sides.
type tuner struct {
	near, far  Side
	arenas     []*mem.Arena
	m          *Mover
	src        []byte
	srcReg     fabric.Region
	dst        []byte
	grant      fabric.Remote // on dst
	slot       fabric.Remote
	unpacker   *Unpacker
	jobs       chan job
	ready      chan error
	arrived    chan arrival
	grantsOver func()
}

// job is one move that the far side is to expect.
type job struct {
	tag    uint32
	pieces [][]byte
}

// arrival is when the data was in its pieces.
type arrival struct {
	at  time.Time
	err error
}

func openTuner(near, far Side, opts TuneOptions) (*tuner, error) {
	t := &tuner{near: near, far: far, grantsOver: func() {}}
	most := slices.Max(opts.Fragments) * slices.Max(opts.Sizes)
	err := t.allocate(most)
	if err == nil {
		err = t.open(most, opts.SendDepth)
	}
	if err != nil {
		_ = t.close()
		return nil, errs.Wrap("mover.Tune", near.Endpoint.Name(), err)
	}
	return t, nil
}

// allocate makes an arena a side: twice the data, since it lies in pieces, and once what is packed.
func (t *tuner) allocate(most int) error {
	for _, s := range []Side{t.near, t.far} {
		const slack = 64 << 10 // for alignment
		a, err := mem.NewArena(3*most+slack, s.Source)
		if err != nil {
			return err
		}
		t.arenas = append(t.arenas, a)
		if err := a.Attach(s.Domain); err != nil {
			return err
		}
	}
	return nil
}

func (t *tuner) open(most, depth int) error {
	pool, err := mem.NewPool(t.arenas[0], most, 1)
	if err != nil {
		return err
	}
	t.m, err = New(Options{
		Domain: t.near.Domain, Endpoint: t.near.Endpoint, SendDepth: depth, Staging: FromPool(pool),
	})
	if err != nil {
		return err
	}
	if t.src, err = t.arenas[0].Cut(2*most, 4096); err != nil {
		return err
	}
	t.srcReg = t.arenas[0].Region()
	all, reg := t.arenas[1].Bytes(), t.arenas[1].Region()
	t.dst = all[:2*most]
	t.unpacker = NewUnpacker(all[2*most : 3*most])
	t.grant, err = reg.Grant(t.far.Endpoint, 0, 2*most, fabric.RemoteWrite)
	if err != nil {
		return err
	}
	t.grantsOver = func() { reg.Revoke(t.grant) }
	t.slot, err = reg.Grant(t.far.Endpoint, 2*most, most, fabric.RemoteWrite)
	if err != nil {
		return err
	}
	t.grantsOver = func() { reg.Revoke(t.grant); reg.Revoke(t.slot) }
	return nil
}

// close frees the memory. No move is under way.
func (t *tuner) close() error {
	t.grantsOver()
	var first error
	for _, a := range t.arenas {
		if err := a.Close(); first == nil {
			first = err
		}
	}
	return first
}

// measure moves all shapes. The far side runs on a goroutine of its own.
func (t *tuner) measure(ctx context.Context, opts TuneOptions) ([]Sample, error) {
	ctx, cancel := context.WithCancel(ctx)
	t.jobs, t.ready = make(chan job), make(chan error)
	t.arrived = make(chan arrival, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		t.receive(ctx)
	}()
	defer func() {
		cancel()
		close(t.jobs)
		<-gone
	}()
	var samples []Sample
	for _, count := range opts.Fragments {
		for _, size := range opts.Sizes {
			s, err := t.shape(ctx, count, size, opts.Rounds)
			if err != nil {
				return nil, err
			}
			samples = append(samples, s)
		}
	}
	return samples, nil
}

// shape moves one shape both ways, in turns, so that what disturbs the host disturbs both.
func (t *tuner) shape(ctx context.Context, count, size, rounds int) (Sample, error) {
	pieces, segments, views := t.cut(count, size)
	p, err := t.m.NewPlan(Put, pieces, segments)
	if err != nil {
		return Sample{}, err
	}
	const warmup = 2
	var times [2][]time.Duration
	for i := range rounds + warmup {
		for k, method := range []Method{Gather, Pack} {
			took, err := t.once(ctx, p, method, job{tag: uint32(2*i + k), pieces: views})
			if err != nil {
				return Sample{}, err
			}
			if i >= warmup {
				times[k] = append(times[k], took)
			}
		}
	}
	return Sample{
		Fragments: count, Bytes: size, Gather: median(times[0]), Pack: median(times[1]),
	}, nil
}

// cut is count pieces of size bytes at both sides, each followed by a gap of its size.
func (t *tuner) cut(count, size int) ([]fabric.Sge, []fabric.Remote, [][]byte) {
	var pieces []fabric.Sge
	var segments []fabric.Remote
	var views [][]byte
	for i := range count {
		from, to := 2*i*size, (2*i+1)*size
		pieces = append(pieces, fabric.Sge{Reg: t.srcReg, Buf: t.src[from:to:to]})
		segments = append(segments, t.grant.Slice(uint64(from), uint64(size)))
		views = append(views, t.dst[from:to:to])
	}
	return pieces, segments, views
}

// once times one move, from Start until the far side has the data in its pieces.
func (t *tuner) once(ctx context.Context, p *Plan, method Method, j job) (time.Duration, error) {
	t.jobs <- j
	if err := <-t.ready; err != nil {
		return 0, err
	}
	begin := time.Now()
	err := t.m.Move(ctx, p, Run{
		Method: method, Slot: t.slot, Notice: Notice{How: Immediate, Tag: j.tag},
	}, t.near.Queue)
	if err != nil {
		return 0, err
	}
	got := <-t.arrived
	return got.at.Sub(begin), got.err
}

// receive is the far side.
func (t *tuner) receive(ctx context.Context) {
	recvs, batch := make([]fabric.Recv, 1), make([]fabric.Completion, 1)
	for j := range t.jobs {
		err := t.unpacker.Expect(j.tag, j.pieces)
		if err == nil {
			err = t.far.Endpoint.PostRecv(recvs)
		}
		t.ready <- err
		if err != nil {
			continue
		}
		n := 0
		for n == 0 && err == nil {
			n, err = t.far.Queue.Wait(ctx, batch)
		}
		if err == nil {
			err = batch[0].Err
		}
		if err == nil {
			err = t.unpacker.Imm(batch[0].Imm)
		}
		t.unpacker.Forget()
		t.arrived <- arrival{time.Now(), err}
	}
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
