package logstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"sort"
	"strconv"
	"testing"

	"github.com/sluice-storage/sluice/internal/crc32c"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
	"github.com/sluice-storage/sluice/stripe/device/devicetest"
	"github.com/sluice-storage/sluice/wire"
)

// The crash tests drive a store with one request after the other on a recording device, cut the
// power after every event, and open what is left. There is one log, so that what comes back must be
// exactly the state after some request: at least the last one that was acknowledged as durable, at
// most the last one that was issued.

// step is one request against a store and against the model.
type step struct {
	name    string
	run     func(ctx context.Context, s *Store) error
	model   func(m *crashModel)
	durable bool // acknowledged means that it, and all before, are stable
}

type crashObject struct {
	data  []byte
	seq   uint64
	space crashSpace
}

// crashModel is what the store must hold.
type crashModel struct {
	objects map[stripe.ObjectID]*crashObject
	fences  map[uint64]bar
	done    map[stripe.SessionSlot]uint32
}

func newCrashModel() *crashModel {
	return &crashModel{map[stripe.ObjectID]*crashObject{}, map[uint64]bar{},
		map[stripe.SessionSlot]uint32{}}
}

var stateSeed = maphash.MakeSeed()

// stateOf is a hash over everything that the model holds.
func (m *crashModel) stateOf() uint64 {
	var h maphash.Hash
	h.SetSeed(stateSeed)
	var ids []stripe.ObjectID
	for id := range m.objects {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i].String() < ids[j].String() })
	for _, id := range ids {
		o := m.objects[id]
		fmt.Fprintln(&h, id, len(o.data), o.seq)
		h.Write(o.data)
		o.space.hash(&h)
	}
	hashFences(&h, m.fences)
	var slots []string
	for key, seq := range m.done {
		slots = append(slots, fmt.Sprint(key.Session, key.Slot, seq))
	}
	sort.Strings(slots)
	fmt.Fprintln(&h, slots)
	return h.Sum64()
}

func hashFences(h interface{ Write([]byte) (int, error) }, fences map[uint64]bar) {
	var files []uint64
	for f := range fences {
		files = append(files, f)
	}
	sort.Slice(files, func(i, j int) bool { return files[i] < files[j] })
	for _, f := range files {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:], f)
		binary.LittleEndian.PutUint32(b[8:], fences[f].gen)
		binary.LittleEndian.PutUint32(b[12:], fences[f].epoch)
		h.Write(b[:])
	}
}

// storeState is the same of a store. Fenced objects are read below the fence.
func storeState(s *Store) (uint64, error) {
	m := newCrashModel()
	for id, o := range s.members[0].objects {
		data := make([]byte, o.size)
		if err := s.members[0].readGuarded(o, [][]byte{data}, 0, o.size); err != nil {
			return 0, err
		}
		m.objects[id] = &crashObject{data, o.truncSeq, spaceIn(s.members[0], o)}
	}
	for file, f := range s.members[0].fences {
		m.fences[file] = f.bar
	}
	s.members[0].sessions.Each(func(key stripe.SessionSlot, seq uint32) { m.done[key] = seq })
	return m.stateOf(), nil
}

// history is a run of steps: when each was issued and acknowledged.
type history struct {
	rec    *devicetest.Recorder
	opt    Options
	start  *crashModel
	steps  []step
	states map[int]uint64 // see state
	issued []int
	acked  []int // 0: never
}

// model is what the store must hold after the first n steps.
func (h *history) model(n int) *crashModel {
	m := h.start.clone()
	for i := range n {
		h.steps[i].model(m)
	}
	return m
}

// state is the same as a hash, which is kept.
func (h *history) state(n int) uint64 {
	sum, ok := h.states[n]
	if !ok {
		sum = h.model(n).stateOf()
		h.states[n] = sum
	}
	return sum
}

func crashOptions() Options {
	return Options{LogBytes: logBytesMin, PendingBytes: 1 << 20, IndexBytes: 1 << 20,
		Logger: quiet()}
}

// runSteps runs them on a store that begins with content and never ends cleanly.
func runSteps(t testing.TB, content *devicetest.Overlay, opt Options, steps []step,
	m *crashModel) *history {
	t.Helper()
	h := &history{rec: devicetest.NewRecorder("recorder", content), opt: opt, start: m,
		steps: steps, states: map[int]uint64{}}
	opt.Devices = []device.Device{h.rec}
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer s.members[0].abandon()
	for _, st := range steps {
		h.issued = append(h.issued, h.rec.Now())
		if err := st.run(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", st.name, err)
		}
		h.acked = append(h.acked, h.rec.Now())
	}
	return h
}

// bounds says which states are allowed after a crash at an event.
func (h *history) bounds(at int) (lo, hi int) {
	for i := range h.issued {
		if h.issued[i] < at {
			hi = i + 1
		}
		if h.steps[i].durable && h.acked[i] <= at {
			lo = i + 1
		}
	}
	return lo, max(hi, lo)
}

// recover opens what a crash left and tells what is wrong with it, or which state it is in.
func (h *history) recover(dev device.Device, at int) (s *Store, state int, err error) {
	opt := h.opt
	opt.Devices = []device.Device{dev}
	s, err = Open(opt)
	if err != nil {
		return nil, 0, fmt.Errorf("does not open: %w", err)
	}
	got, err := storeState(s)
	if err != nil {
		s.members[0].abandon()
		return nil, 0, fmt.Errorf("does not read: %w", err)
	}
	s.members[0].audit(func(p Problem) {
		if err == nil {
			err = fmt.Errorf("audit: %v", p)
		}
	})
	lo, hi := h.bounds(at)
	state = -1
	for i := lo; i <= hi; i++ {
		if h.state(i) == got {
			state = i
		}
	}
	if err == nil && state < 0 {
		where := "no state at all"
		for i := range len(h.steps) + 1 {
			if h.state(i) == got {
				where = fmt.Sprintf("the state after step %d", i)
			}
		}
		err = fmt.Errorf("it is %s; allowed are %d (durable: %v) to %d", where, lo,
			h.steps[max(lo-1, 0)].name, hi)
	}
	if err != nil {
		s.members[0].abandon()
		return nil, 0, err
	}
	return s, state, nil
}

// enumerate cuts the power after every event that stride picks and calls bad for what does not
// recover; bad returns false to stop.
func (h *history) enumerate(
	seed uint64, stride, few int, bad func(at int, err error) bool,
) (n int) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for at := 0; at <= h.rec.Now(); at += stride {
		stop := false
		c := h.rec.CrashAt(at)
		c.Choices(rnd, few, func(ch devicetest.Choice) {
			if stop {
				return
			}
			n++
			s, _, err := h.recover(c.Device("after the crash", ch), at)
			if err != nil {
				stop = !bad(at, err)
				return
			}
			s.members[0].abandon()
		})
		if stop {
			return n
		}
	}
	return n
}

// freshMemory is an empty store for the crash tests.
func freshMemory(t testing.TB, opt Options, size int64) *device.Memory {
	t.Helper()
	dev := device.NewMemory("fresh", size)
	opt.Devices = []device.Device{dev}
	if _, err := Create(opt); err != nil {
		t.Fatal(err)
	}
	return dev
}

func freshContent(t testing.TB, opt Options, size int64) *devicetest.Overlay {
	t.Helper()
	return devicetest.NewOverlay("fresh", freshMemory(t, opt, size).Bytes())
}

func stepWrite(id stripe.ObjectID, off, n int64, tag byte, st wire.Stamp,
	d stripe.Durability) step {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7+i>>8) + tag | 1
	}
	return step{
		name:    fmt.Sprintf("write %v [%d, +%d) tag %d durability %d", id, off, n, tag, d),
		durable: d != stripe.Volatile,
		run: func(ctx context.Context, s *Store) error {
			return s.WriteAt(ctx, id, [][]byte{p}, off, st, d)
		},
		model: func(m *crashModel) {
			o := m.object(id)
			o.resize(max(int64(len(o.data)), off+n))
			copy(o.data[off:], p)
			o.space.wrote(off, n)
			if stripe.Numbered(st) {
				m.done[stripe.SessionSlot{Session: st.Session, Slot: st.Slot}] = st.Seq
			}
		},
	}
}

// stepMerged is a write of whole blocks whose sums are given, and that includes further requests.
func stepMerged(id stripe.ObjectID, off, n int64, tag byte, stamps []wire.Stamp,
	d stripe.Durability) step {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*5+i>>8) + tag | 1
	}
	sums := make([]uint32, n/blockBytes)
	for i := range sums {
		sums[i] = crc32c.Sum(p[i*blockBytes : (i+1)*blockBytes])
	}
	return step{
		name: fmt.Sprintf("merged write %v [%d, +%d) tag %d durability %d stamps %v", id, off, n, tag,
			d, stamps),
		durable: d != stripe.Volatile,
		run: func(ctx context.Context, s *Store) error {
			return s.WriteSums(ctx, id, [][]byte{p}, off, sums, stamps, d)
		},
		model: func(m *crashModel) {
			o := m.object(id)
			o.resize(max(int64(len(o.data)), off+n))
			copy(o.data[off:], p)
			o.space.wrote(off, n)
			for _, st := range stamps {
				if stripe.Numbered(st) {
					m.done[stripe.SessionSlot{Session: st.Session, Slot: st.Slot}] = st.Seq
				}
			}
		},
	}
}

func (m *crashModel) object(id stripe.ObjectID) *crashObject {
	if m.objects[id] == nil {
		m.objects[id] = &crashObject{space: newCrashSpace()}
	}
	return m.objects[id]
}

func (o *crashObject) resize(n int64) {
	if n <= int64(len(o.data)) {
		o.data = o.data[:n:n]
		return
	}
	o.data = append(o.data, make([]byte, n-int64(len(o.data)))...)
}

func stepTruncate(id stripe.ObjectID, size int64, seq uint64) step {
	return step{
		name: fmt.Sprintf("truncate %v to %d", id, size), durable: true,
		run: func(ctx context.Context, s *Store) error {
			return s.Truncate(ctx, id, size, wire.Stamp{TruncSeq: seq})
		},
		model: func(m *crashModel) {
			o := m.object(id)
			o.resize(size)
			o.space.cut(size)
			o.seq = seq
		},
	}
}

func stepPunch(id stripe.ObjectID, off, n int64, seq uint64, d stripe.Durability) step {
	return step{
		name: fmt.Sprintf("punch %v [%d, +%d)", id, off, n), durable: d != stripe.Volatile,
		run: func(ctx context.Context, s *Store) error {
			return s.Punch(ctx, id, off, n, wire.Stamp{TruncSeq: seq}, d)
		},
		model: func(m *crashModel) {
			if o := m.objects[id]; o != nil {
				o.cleared(off, n, false)
			}
		},
	}
}

func stepRemove(id stripe.ObjectID) step {
	return step{name: fmt.Sprint("remove ", id), durable: true,
		run:   func(ctx context.Context, s *Store) error { return s.Remove(ctx, id) },
		model: func(m *crashModel) { delete(m.objects, id) },
	}
}

func stepFence(file uint64, gen uint32) step {
	return step{name: fmt.Sprint("fence ", file), durable: true,
		run: func(ctx context.Context, s *Store) error {
			return s.SetMinGeneration(ctx, file, gen)
		},
		model: func(m *crashModel) { m.fences[file] = m.fences[file].raised(bar{gen: gen}) },
	}
}

// stepDepose fences the writers of a file below an epoch.
func stepDepose(file uint64, epoch uint32) step {
	return step{name: fmt.Sprint("depose ", file), durable: true,
		run: func(ctx context.Context, s *Store) error {
			return s.SetMinEpoch(ctx, file, epoch)
		},
		model: func(m *crashModel) { m.fences[file] = m.fences[file].raised(bar{epoch: epoch}) },
	}
}

func stepSync() step {
	return step{name: "sync", durable: true, model: func(*crashModel) {},
		run: func(ctx context.Context, s *Store) error { return s.Sync(ctx, stripe.ObjectID{}) }}
}

// stepCheckpoint makes one where the test wants it.
func stepCheckpoint() step {
	return step{name: "checkpoint", durable: true, model: func(*crashModel) {},
		run: func(_ context.Context, s *Store) error { return s.members[0].checkpoint(false) }}
}

func seedOf(t testing.TB, env string) uint64 {
	seed := rand.Uint64() >> 1
	if v, err := strconv.ParseUint(os.Getenv(env), 10, 64); err == nil {
		seed = v
	}
	t.Logf("seed %d (again with %s=%d)", seed, env, seed)
	return seed
}

func numberOf(env string, def int) int {
	if v, err := strconv.Atoi(os.Getenv(env)); err == nil {
		return v
	}
	return def
}

// randomStep makes a request that the store must accept in the model's present state.
func randomStep(rnd *rand.Rand, m *crashModel) step {
	id := stripe.ObjectID{File: 1 + rnd.Uint64N(3), Gen: 3}
	var seq uint64
	if o := m.objects[id]; o != nil {
		seq = o.seq
	}
	st := wire.Stamp{TruncSeq: seq}
	if slot := uint16(rnd.IntN(4)); slot > 0 {
		st.Session, st.Slot = 77, slot
		st.Seq = m.done[stripe.SessionSlot{Session: 77, Slot: slot}] + 1
	}
	d := stripe.Durability(rnd.IntN(3))
	off, n := rnd.Int64N(100_000), 1+rnd.Int64N(9000)
	switch rnd.IntN(4) {
	case 0:
		n = 1 + rnd.Int64N(140_000)
	case 1:
		off, n = off&^4095, (n+4095)&^4095
	}
	switch k := rnd.IntN(100); {
	case k < 20 && off%blockBytes == 0 && n%blockBytes == 0:
		stamps := []wire.Stamp{{TruncSeq: seq}}
		for slot := uint16(10); slot < 10+uint16(rnd.IntN(4)); slot++ {
			key := stripe.SessionSlot{Session: 78, Slot: slot}
			stamps = append(stamps, wire.Stamp{Session: 78, Slot: slot, Seq: m.done[key] + 1})
		}
		return stepMerged(id, off, n, byte(rnd.Uint32()), stamps, d)
	case k < 5:
		return stepReserve(id, off, n, n%2 == 0, seq)
	case k < 9:
		st := stepUnreserve(id, off, n, seq)
		st.durable = m.objects[id] != nil
		return st
	case k < 14:
		st := stepBlank(id, off, n, seq, d)
		st.durable = st.durable && m.objects[id] != nil
		return st
	case k < 60:
		return stepWrite(id, off, n, byte(rnd.Uint32()), st, d)
	case k < 68:
		return stepTruncate(id, off, seq+1)
	case k < 76:
		st := stepPunch(id, off, n, seq, d)
		st.durable = st.durable && m.objects[id] != nil // else there is nothing to sync
		return st
	case k < 82:
		st := stepRemove(id)
		st.durable = m.objects[id] != nil
		return st
	case k < 85:
		if rnd.IntN(2) == 0 {
			return stepDepose(8+id.File, 1+rnd.Uint32N(3)) // a file that the steps do not write to
		}
		return stepFence(id.File, 1+rnd.Uint32N(3))
	case k < 92:
		return stepSync()
	}
	return stepCheckpoint()
}

// lives are what random lives begin with.
type lives struct {
	opt     [2]Options
	content [2]*devicetest.Overlay
}

func newLives(t testing.TB) *lives {
	var l lives
	l.opt = [2]Options{crashOptions(), crashOptions()}
	// A log that does not fit into memory when it is replayed.
	l.opt[1].LogBytes, l.opt[1].PendingBytes = 1<<20, blockBytes
	for i, opt := range l.opt {
		l.content[i] = freshContent(t, opt, 3<<20)
	}
	return &l
}

// run runs one seed: some lives of a store, each ended by a power cut.
func (l *lives) run(t testing.TB, seed uint64, bad func(err error)) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	opt, content := l.opt[seed%2], l.content[seed%2]
	m := newCrashModel()
	for range 2 {
		scratch := m.clone()
		var steps []step
		for range 3 + rnd.IntN(12) {
			st := randomStep(rnd, scratch)
			st.model(scratch)
			steps = append(steps, st)
		}
		h := runSteps(t, content, opt, steps, m)
		for range 2 { // the second one is where the next life begins
			at := rnd.IntN(h.rec.Now() + 1)
			c := h.rec.CrashAt(at)
			left := c.Device("after the crash", c.Random(rnd))
			content = left.Fork("the same before it is opened")
			s, state, err := h.recover(left, at)
			if err != nil {
				bad(fmt.Errorf("power cut after event %d of %d: %w", at, h.rec.Now(), err))
				return
			}
			s.members[0].abandon()
			m = h.model(state)
		}
	}
}

func (m *crashModel) clone() *crashModel {
	c := newCrashModel()
	for id, o := range m.objects {
		c.objects[id] = &crashObject{append([]byte(nil), o.data...), o.seq, o.space.clone()}
	}
	maps.Copy(c.fences, m.fences)
	maps.Copy(c.done, m.done)
	return c
}

// TestCrashRandom lets many stores live and die. LOGSTORE_SEED repeats a run, LOGSTORE_SEEDS says
// how many seeds there are.
func TestCrashRandom(t *testing.T) {
	seed := seedOf(t, "LOGSTORE_SEED")
	l := newLives(t)
	seeds, workers := uint64(numberOf("LOGSTORE_SEEDS", 1000)), uint64(runtime.GOMAXPROCS(0))
	for w := range workers {
		t.Run(fmt.Sprint(w), func(t *testing.T) {
			t.Parallel()
			for i := w; i < seeds; i += workers {
				l.run(t, seed+i, func(err error) {
					t.Fatalf("LOGSTORE_SEEDS=1 LOGSTORE_SEED=%d: %v", seed+i, err)
				})
			}
		})
	}
}
