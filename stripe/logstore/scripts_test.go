package logstore

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device/devicetest"
	"github.com/sluice-storage/sluice/wire"
)

// script is a run whose power cuts are enumerated.
type script struct {
	name     string
	bytes    int64 // of the device
	logBytes int64
	steps    func() []step
	earlier  func() []step // of a life before, whose power cut left the last unsynced write only
}

func scripts() []script {
	return []script{
		{"every kind of request", 3 << 20, logBytesMin, everyKind, nil},
		{"clusters that are used again", tightBytes, logBytesMin, tight, nil},
		{"writes while blocks are put in place", 3 << 20, logBytesMin, duringApply, nil},
		{"writes while pages are written", 4 << 20, 2 << 20, duringPages, nil},
		{"space that is reserved", 3 << 20, logBytesMin, reserves, nil},
		{"a second life", 3 << 20, logBytesMin, secondLife, firstLife},
	}
}

func (sc *script) run(t testing.TB) *history {
	opt := crashOptions()
	opt.LogBytes = sc.logBytes
	content, m := freshContent(t, opt, sc.bytes), newCrashModel()
	if sc.earlier != nil {
		h := runSteps(t, content, opt, sc.earlier(), m)
		at := h.rec.Now()
		c := h.rec.CrashAt(at)
		last := devicetest.Choice{Keep: make([]bool, c.Open()), Torn: -1}
		last.Keep[c.Open()-1] = true
		content = c.Device("the second life", last)
		s, state, err := h.recover(content.Fork("a look"), at)
		if err != nil {
			t.Fatal(err)
		}
		s.members[0].abandon()
		m = h.model(state)
	}
	return runSteps(t, content, opt, sc.steps(), m)
}

func TestCrashEnumeration(t *testing.T) {
	seed := seedOf(t, "LOGSTORE_SEED")
	for _, sc := range scripts() {
		t.Run(sc.name, func(t *testing.T) {
			h := sc.run(t)
			n := h.enumerate(seed, numberOf("LOGSTORE_CRASH_STRIDE", 1),
				numberOf("LOGSTORE_CRASH_FEW", 2), func(at int, err error) bool {
					t.Errorf("power cut after event %d of %d: %v", at, h.rec.Now(), err)
					return false
				})
			t.Logf("%d events, %d states recovered", h.rec.Now(), n)
		})
	}
}

var (
	crashA = stripe.ObjectID{File: 1, Gen: 1}
	crashB = stripe.ObjectID{File: 2, Gen: 1, Stripe: 3}
)

// everyKind is the first script: every kind of request, overwrites of what was checkpointed,
// clusters that are freed and used again, and a log that wraps.
func everyKind() []step {
	none, trunc1 := wire.Stamp{}, wire.Stamp{TruncSeq: 1}
	numbered := wire.Stamp{Session: 5, Slot: 1, Seq: 1}
	steps := []step{
		stepWrite(crashA, 0, 70_000, 1, none, stripe.Durable),
		stepWrite(crashA, 4096, 8192, 2, none, stripe.Volatile),
		stepWrite(crashB, 100, 5000, 3, numbered, stripe.Durable),
		stepCheckpoint(),
		stepWrite(crashA, 5000, 100, 4, none, stripe.Durable),
		stepWrite(crashA, 0, 131_072, 5, none, stripe.Volatile),
		stepWrite(crashA, 8192, 4096, 6, none, stripe.Volatile),
		stepSync(),
		stepWrite(crashA, 65_536, 65_536, 7, none, stripe.Volatile),
		stepWrite(crashB, 0, 4096, 8, none, stripe.Volatile),
		stepCheckpoint(),
		stepTruncate(crashA, 9000, 1),
		stepWrite(crashA, 50_000, 10, 9, trunc1, stripe.Durable),
		stepPunch(crashA, 4000, 5000, 1, stripe.Durable),
		stepWrite(crashB, 60_000, 140_000, 10, none, stripe.Durable),
		stepRemove(crashB),
		stepWrite(crashB, 4096, 4096, 11, none, stripe.Durable),
		stepFence(9, 4),
		stepDepose(9, 2),
		stepDepose(8, 1),
		stepCheckpoint(),
		stepDepose(8, 3),
		stepMerged(crashA, 8192, 8192, 12, []wire.Stamp{trunc1, {Session: 6, Slot: 1, Seq: 4},
			{Session: 6, Slot: 2, Seq: 1}}, stripe.Volatile),
		stepMerged(crashA, 65_536, 135_168, 13, []wire.Stamp{trunc1, {Session: 6, Slot: 1, Seq: 5},
			{Session: 7, Slot: 9, Seq: 9}}, stripe.Durable),
	}
	for i := range 14 { // round the log, with overwrites in place and of whole clusters
		d := stripe.Durability(i % 2)
		steps = append(steps,
			stepWrite(crashA, int64(i%3)*20_000, 30_000, byte(20+i), trunc1, d),
			stepWrite(crashB, int64(i%2)*65_536, 65_536+int64(i%3)*5000, byte(50+i), none, 1-d))
	}
	return append(steps, stepDepose(9, 7), stepFence(9, 6), stepDepose(8, 4),
		stepTruncate(crashB, 70_001, 1),
		stepTruncate(crashB, 200_000, 2))
}

// firstLife leaves a batch behind, two blocks from where the second life's log begins.
func firstLife() []step {
	none := wire.Stamp{}
	return []step{
		stepWrite(crashA, 0, 4096, 1, none, stripe.Durable),
		stepWrite(crashA, 0, 4096, 2, none, stripe.Volatile),
		stepWrite(crashB, 0, 4096, 3, none, stripe.Volatile),
	}
}

// secondLife writes exactly up to it: a mark, when it is opened, and a truncate.
func secondLife() []step {
	trunc1 := wire.Stamp{TruncSeq: 1}
	return []step{
		stepTruncate(crashA, 0, 1),
		stepWrite(crashA, 0, 5000, 5, trunc1, stripe.Volatile),
		stepTruncate(crashA, 100, 2),
	}
}

// tightBytes leaves room for eight clusters.
const tightBytes = logAt + logBytesMin + 4*17*blockBytes + 9*clusterBytes

// tight fills the store but for a cluster or two, so that what is freed is used again at once.
func tight() []step {
	none := wire.Stamp{}
	steps := []step{
		stepWrite(crashA, 0, clusterBytes, 1, none, stripe.Durable),
		stepWrite(crashB, 0, 5*clusterBytes, 2, none, stripe.Durable),
		stepCheckpoint(),
	}
	for i := range 6 { // each goes where the one before came from, if that was freed too early
		steps = append(steps, stepWrite(crashA, 0, clusterBytes, byte(10+i), none, stripe.Volatile))
	}
	return append(steps, stepSync(), stepCheckpoint(),
		stepWrite(crashB, clusterBytes, clusterBytes, 30, none, stripe.Durable),
		stepTruncate(crashB, clusterBytes, 1),
		stepWrite(crashA, clusterBytes, 2*clusterBytes, 31, none, stripe.Durable),
		stepWrite(crashA, 0, 4096, 32, none, stripe.Durable),
		stepWrite(crashA, 0, clusterBytes, 33, none, stripe.Volatile),
		stepWrite(crashA, 0, clusterBytes, 34, none, stripe.Volatile))
}

// held is a checkpoint that waits in the middle.
type held struct {
	once    sync.Once
	gate    chan struct{}
	reached chan struct{}
	done    chan error
}

func (h *held) release() { h.once.Do(func() { close(h.gate) }) }

// stepHold starts a checkpoint and lets it wait at its first write to a region. It does not wait
// for ever: a sound store may have to wait for the checkpoint.
func stepHold(h *held, region func(g *geometry) (lo, hi int64)) step {
	return step{name: "hold a checkpoint", model: func(*crashModel) {},
		run: func(_ context.Context, s *Store) error {
			m := s.members[0]
			lo, hi := region(&m.g)
			var held atomic.Bool // not sync.Once, which would hold everybody else up, too
			m.dev.(*devicetest.Recorder).Before = func(off int64) {
				if off >= lo && off < hi && held.CompareAndSwap(false, true) {
					close(h.reached)
					<-h.gate
				}
			}
			go func() { h.done <- m.checkpoint(false) }()
			<-h.reached
			time.AfterFunc(200*time.Millisecond, h.release)
			return nil
		}}
}

// stepRelease lets the checkpoint go on and waits for it.
func stepRelease(h *held) step {
	return step{name: "release the checkpoint", model: func(*crashModel) {},
		run: func(context.Context, *Store) error {
			h.release()
			return <-h.done
		}}
}

func newHeld() *held {
	return &held{gate: make(chan struct{}), reached: make(chan struct{}), done: make(chan error, 1)}
}

// duringApply switches clusters, without a sync, while a checkpoint is between log and pages.
func duringApply() []step {
	none := wire.Stamp{}
	h := newHeld()
	return []step{
		stepWrite(crashA, 0, 2*clusterBytes, 1, none, stripe.Durable),
		stepCheckpoint(),
		stepWrite(crashA, 0, 8192, 2, none, stripe.Durable),
		stepHold(h, func(g *geometry) (int64, int64) { return g.dataAt, 1 << 60 }),
		stepWrite(crashA, 0, clusterBytes, 3, none, stripe.Volatile),
		stepWrite(crashB, 0, 5000, 4, none, stripe.Volatile),
		stepWrite(crashA, clusterBytes, 5000, 5, none, stripe.Volatile),
		stepRelease(h),
		stepWrite(crashA, 0, 4096, 6, none, stripe.Durable),
	}
}

// duringPages goes round the log while a checkpoint has not written the superblock.
func duringPages() []step {
	none := wire.Stamp{}
	h := newHeld()
	steps := []step{stepWrite(crashA, 0, 30_000, 1, none, stripe.Durable), stepCheckpoint()}
	// Less than half of what the log takes, so that no checkpoint comes by itself; then more than
	// the log has.
	for i := range 21 {
		steps = append(steps, stepWrite(crashA, 0, 30_000, byte(10+i), none, stripe.Durable))
	}
	steps = append(steps, stepHold(h, func(g *geometry) (int64, int64) {
		return g.tableAt[0], g.tableAt[1]
	}))
	for i := range 48 {
		steps = append(steps, stepWrite(crashA, 0, 30_000, byte(30+i), none, stripe.Durable))
	}
	return append(steps, stepRelease(h))
}
