package remote

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/internal/mutanttest"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

const (
	modelFiles = 3
	modelBytes = 64 << 10
)

// model is what files hold after a sequence of operations, one after the other, of two clients.
// Volatile writes of the two never overlap: a crash may change their order. Durable ones do.
type model struct {
	d       *double
	clients [2]*rig
	rng     *rand.Rand
	files   [modelFiles][]byte
}

func newModel(t testing.TB, seed uint64) *model {
	m := &model{d: newDouble(t, seed), rng: rand.New(rand.NewPCG(seed, 2))}
	for i := range m.clients {
		m.clients[i] = newRig(t, m.d, uint64(i+1), Options{RetainBytes: 512 << 10,
			KeepMax: time.Minute})
	}
	for i := range m.files {
		m.files[i] = make([]byte, modelBytes)
	}
	return m
}

// step does one random thing and checks what can be seen of it.
func (m *model) step() error {
	who := m.rng.IntN(2)
	g := m.clients[who]
	f := m.rng.IntN(modelFiles)
	half := int64(who) * modelBytes / 2
	off := m.rng.Int64N(modelBytes / 2)
	n := 1 + m.rng.Int64N(min(modelBytes/2-off, 12<<10))
	switch m.rng.IntN(12) {
	case 0, 1, 2, 3:
		return m.write(g, f, half+off, n, stripe.Volatile)
	case 4:
		if err := m.aware(f); err != nil {
			return err
		}
		return m.write(g, f, m.rng.Int64N(modelBytes-n), n, stripe.Durable)
	case 5:
		return m.list(g, f, half)
	case 6:
		_, err := g.Punch(context.Background(), g.target(uint64(f)+1), half+off, n, stripe.Volatile)
		clear(m.files[f][half+off : half+off+n])
		return err
	case 7:
		return g.sync(uint64(f) + 1)
	case 8:
		m.d.crash()
	case 9:
		m.d.mu.Lock()
		m.d.dieAfter = 1 + m.rng.IntN(3)
		m.d.mu.Unlock()
	default:
		if err := m.aware(f); err != nil {
			return err
		}
		return g.expect(uint64(f)+1, 0, m.files[f])
	}
	return nil
}

// aware lets both clients notice a crash, before one of them sees, or covers, what is the other's
// to send again.
func (m *model) aware(f int) error {
	m.d.mu.Lock()
	m.d.dieAfter = 0
	m.d.mu.Unlock()
	for _, g := range m.clients {
		if _, err := g.read(uint64(f)+1, 0, 1); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) write(g *rig, f int, off, n int64, d stripe.Durability) error {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(m.rng.Uint32())
	}
	copy(m.files[f][off:], p)
	t := g.target(uint64(f) + 1)
	if m.rng.IntN(4) == 0 {
		t.How.Mode = 1 // direct
	}
	t.How.NoSums = m.rng.IntN(4) == 0
	_, err := g.Write(context.Background(), t, seg.Contig(off, n), memory(p), d)
	return err
}

// list writes several pieces at once.
func (m *model) list(g *rig, f int, half int64) error {
	var at []seg.Piece
	var p []byte
	for i := range int64(1 + m.rng.IntN(4)) {
		x := seg.Piece{Off: half + i*8<<10 + m.rng.Int64N(4<<10), Len: 1 + m.rng.Int64N(4<<10)}
		for range x.Len {
			p = append(p, byte(m.rng.Uint32()))
		}
		copy(m.files[f][x.Off:], p[len(p)-int(x.Len):])
		at = append(at, x)
	}
	_, err := g.Write(context.Background(), g.target(uint64(f)+1), seg.List(at), memory(p),
		stripe.Volatile)
	return err
}

// end syncs everything and compares what the server has written with the model.
func (m *model) end() error {
	m.d.crash()
	for _, g := range m.clients {
		if err := g.SyncAll(context.Background()); err != nil {
			return err
		}
		if s := g.Stats(); s.KeptWrites != 0 || s.Lost != 0 || s.KeptBytes != 0 {
			return fmt.Errorf("after a sync of everything: %+v", s)
		}
	}
	m.d.crash()
	for f, want := range m.files { // both have synced: nothing comes back any more
		if err := m.clients[0].expect(uint64(f)+1, 0, want); err != nil {
			return err
		}
	}
	return nil
}

func (m *model) run(steps int) error {
	for i := range steps {
		if err := m.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return m.end()
}

// TestCrashesAgainstModel: whatever the server loses, everything that was acknowledged is there.
func TestCrashesAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for i := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed+i), func(t *testing.T) {
			m := newModel(t, seed+i)
			if err := m.run(300); err != nil {
				t.Fatal(err)
			}
			var resent uint64
			for _, g := range m.clients {
				resent += g.Stats().Resent
			}
			if resent == 0 {
				t.Fatal("nothing had to be sent again: the test tests nothing")
			}
		})
	}
}

// Each mutant of testdata/mutants.txt must be found by the tests that are there for it.
func TestMutantsAreFound(t *testing.T) {
	model := func(name string) mutanttest.Case {
		return mutanttest.Case{Mutant: name, Tests: "TestCrashesAgainstModel", Tries: 10}
	}
	mutanttest.Hunt{Cases: []mutanttest.Case{
		model("ignoreVerifier"), model("forgetOne"), model("outOfOrder"), model("newNumbers"),
		model("shareSlots"),
		{Mutant: "hideCut", Tests: "TestCutBeforeSentAgain"},
		{Mutant: "skipSums", Tests: "TestDamageOnTheWay"},
	}}.Run(t)
}

// TestLossWhileRunning: a server that could not write back goes on under another verifier. What it
// lost comes back, below what it has taken since.
func TestLossWhileRunning(t *testing.T) {
	d := newDouble(t, 1)
	d.lazy = true
	g := newRig(t, d, 1, Options{})
	first := bytes.Repeat([]byte{1}, 8<<10)
	must(t, g.write(1, 0, first, stripe.Volatile))
	must(t, g.write(2, 0, first, stripe.Volatile))
	d.mu.Lock()
	d.loseLocked()
	d.mu.Unlock()
	second := bytes.Repeat([]byte{2}, 4<<10)
	must(t, g.write(1, 2<<10, second, stripe.Volatile))
	want := bytes.Clone(first)
	copy(want[2<<10:], second)
	must(t, g.expect(1, 0, want))
	must(t, g.expect(2, 0, first))
	must(t, g.sync(1))
	must(t, g.sync(2))
	d.crash()
	must(t, g.expect(1, 0, want))
	if s := g.Stats(); s.Restarts == 0 || s.Resent < 3 || s.Lost != 0 {
		t.Fatalf("%+v", s)
	}
}
