package filestore

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// TestPowerCut runs random operations, lets the store die before a random system call, and then
// makes the folder what a power cut could have left: of everything that was not synced, some blocks
// are there and some are not, in any mixture. After that each byte must hold what was last
// acknowledged as durable, or something that was issued later.
//
// FILESTORE_SEED repeats one run, FILESTORE_ROUNDS sets how many there are.
func TestPowerCut(t *testing.T) {
	first, rounds := int(rand.Uint32()), envInt("FILESTORE_ROUNDS", 30)
	if v := envInt("FILESTORE_SEED", -1); v >= 0 {
		first, rounds = v, 1
	}
	for seed := first; seed < first+rounds; seed++ {
		w := newCutWalk(t, seed)
		for range 3 { // the same folder goes down several times
			w.live()
			w.cut()
			w.check()
		}
	}
}

func envInt(name string, def int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return v
	}
	return def
}

var errDead = errors.New("the process is dead")

// cutDisk knows what of each file is stable. It listens to the store's system calls.
type cutDisk struct {
	rnd    *rand.Rand
	calls  int               // left until death
	stable map[string][]byte // by path: content at the last sync
	named  map[string]bool   // by path: the directory entry is stable
	doomed map[string][]byte // by path: content when it was unlinked, until that is stable
}

func (d *cutDisk) hook(call, path string) error {
	if d.calls--; d.calls < 0 {
		return errDead
	}
	switch call {
	case "fdatasync":
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		d.stable[path] = content
	case "unlink":
		if content, err := os.ReadFile(path); err == nil {
			d.doomed[path] = content
		}
	case "fsync":
		for p := range d.stable {
			if _, err := os.Stat(p); err != nil && filepath.Dir(p) == path {
				delete(d.stable, p) // its unlink is stable now
				delete(d.named, p)
				delete(d.doomed, p)
			}
		}
		list, _ := filepath.Glob(filepath.Join(path, "*"))
		for _, p := range list {
			d.named[p] = true
		}
	}
	return nil
}

// cut rewrites every file: of the blocks that differ from the stable content some are old, some
// new.
func (d *cutDisk) cut(t testing.TB, s *Store) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.objectsDir(), "*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, s.fences.path())
	for p := range d.stable {
		if _, err := os.Stat(p); err != nil {
			files = append(files, p) // an unlink that may not have reached the disk
		}
	}
	for _, p := range files {
		now, err := os.ReadFile(p)
		if err != nil {
			now = d.doomed[p] // the file may be back, with the blocks that it had
		}
		gone := err != nil || !d.named[p]
		if p != s.fences.path() && gone && d.rnd.IntN(2) == 0 {
			os.Remove(p)
			continue
		}
		if err := os.WriteFile(p, d.mix(d.stable[p], now), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (d *cutDisk) mix(old, now []byte) []byte {
	size := len(now)
	if d.rnd.IntN(2) == 0 {
		size = len(old)
	}
	out := make([]byte, size)
	for at := 0; at < size; at += 512 {
		from := old
		if d.rnd.IntN(2) == 0 {
			from = now
		}
		if at < len(from) {
			copy(out[at:min(at+512, size)], from[at:])
		}
	}
	return out
}

// image is one state that an object was in, or was asked to be in. A nil image is no object.
type image struct {
	data []byte
	seq  uint64
}

// history is what an object may be after a cut: the first image is durable, the others came later.
type history []*image

func (h history) last() *image { return h[len(h)-1] }

type cutWalk struct {
	testing.TB
	seed    int
	rnd     *rand.Rand
	dir     string
	s       *Store
	disk    *cutDisk
	objects map[stripe.ObjectID]history
	minGen  uint32 // of file 9: acknowledged
	asked   uint32 // and asked for
}

func newCutWalk(t testing.TB, seed int) *cutWalk {
	return &cutWalk{
		TB: t, seed: seed, rnd: rand.New(rand.NewPCG(uint64(seed), 0)), dir: t.TempDir(),
		objects: map[stripe.ObjectID]history{},
	}
}

func (w *cutWalk) fatal(format string, args ...any) {
	w.Helper()
	w.Fatalf("seed %d (again with FILESTORE_SEED=%d): "+format,
		append([]any{w.seed, w.seed}, args...)...)
}

func (w *cutWalk) open() {
	w.Helper()
	s, err := Open(Options{Dir: w.dir, OpenFiles: 2, hook: w.disk.hook})
	if err != nil {
		w.fatal("open: %v", err)
	}
	w.s = s
}

// live opens the store and works until it dies.
func (w *cutWalk) live() {
	w.disk = &cutDisk{
		rnd: w.rnd, calls: 1 << 30, stable: map[string][]byte{}, named: map[string]bool{},
		doomed: map[string][]byte{},
	}
	// What the last run left is on the disk.
	old, _ := filepath.Glob(filepath.Join(w.dir, "objects", "*", "*", "*"))
	for _, p := range append(old, filepath.Join(w.dir, fencesName)) {
		if content, err := os.ReadFile(p); err == nil {
			w.disk.stable[p], w.disk.named[p] = content, true
		}
	}
	w.open()
	if content, err := os.ReadFile(w.s.fences.path()); err == nil {
		w.disk.stable[w.s.fences.path()] = content
	}
	w.disk.calls = w.rnd.IntN(60)
	for w.disk.calls >= 0 {
		w.step()
	}
}

func (w *cutWalk) step() {
	id := stripe.ObjectID{File: 1 + w.rnd.Uint64N(3), Gen: 1}
	ctx := context.Background()
	h := w.objects[id]
	if h == nil {
		h = history{nil}
	}
	now := h.last()
	var next *image
	var err error
	durable := false
	switch n := w.rnd.IntN(10); {
	case n < 5:
		d := stripe.Durability(w.rnd.IntN(2))
		durable = d == stripe.Durable
		off, p := w.rnd.Int64N(20_000), fill(1+w.rnd.IntN(9000), byte(w.rnd.Uint32()))
		next = now.write(off, p)
		err = w.s.WriteAt(ctx, id, [][]byte{p}, off, wire.Stamp{TruncSeq: next.seq}, d)
	case n < 7:
		durable = true
		seq := uint64(1)
		if now != nil {
			seq = now.seq + 1
		}
		size := w.rnd.Int64N(30_000)
		next = now.truncate(size, seq)
		err = w.s.Truncate(ctx, id, size, wire.Stamp{TruncSeq: seq})
		// Cut short, it may have met any of the states that were still possible.
		for _, im := range h {
			h = append(h, im.truncate(size, seq))
		}
	case n < 8:
		durable, next = true, now
		err = w.s.Sync(ctx, id)
	case n < 9:
		durable = true
		err = w.s.Remove(ctx, id)
	default:
		w.fence(ctx)
		return
	}
	h = append(h, next)
	if err == nil && durable {
		h = history{next}
	}
	w.objects[id] = h
}

func (w *cutWalk) fence(ctx context.Context) {
	w.asked++
	if w.s.SetMinGeneration(ctx, 9, w.asked) == nil {
		w.minGen = w.asked
	}
}

func fill(n int, v byte) []byte { return bytes.Repeat([]byte{v | 1}, n) }

func (im *image) write(off int64, p []byte) *image {
	next := im.truncate(0, 0)
	if im != nil {
		*next = image{bytes.Clone(im.data), im.seq}
	}
	if need := off + int64(len(p)) - int64(len(next.data)); need > 0 {
		next.data = append(next.data, make([]byte, need)...)
	}
	copy(next.data[off:], p)
	return next
}

func (im *image) truncate(size int64, seq uint64) *image {
	next := &image{make([]byte, size), seq}
	if im != nil {
		copy(next.data, im.data)
	}
	return next
}

// cut ends the process without a word and makes the folder what the power cut left.
func (w *cutWalk) cut() {
	w.s.table.closeAll()
	w.s.fences.close()
	w.disk.cut(w.TB, w.s)
	w.s.lock.release() // after a reboot nothing is left in memory that Open would have to sync
}

func (w *cutWalk) check() {
	w.Helper()
	w.disk.calls = 1 << 30
	w.open()
	ctx := context.Background()
	for id, h := range w.objects {
		in, err := w.s.Stat(ctx, id)
		if err != nil {
			w.fatal("object %v: %v", id, err)
		}
		got := make([]byte, 40_000)
		if err := w.s.ReadAt(ctx, id, [][]byte{got}, 0); err != nil {
			w.fatal("object %v: %v", id, err)
		}
		w.compare(id, h, in, got)
		// What is there now is the truth of the next run, once it is stable.
		w.objects[id] = history{{bytes.Clone(got[:in.Size]), in.TruncSeq}}
		if in.Size == 0 && in.TruncSeq == 0 {
			w.objects[id] = history{nil}
		}
	}
	err := w.s.ReadAt(ctx, stripe.ObjectID{File: 9, Gen: w.minGen - 1}, nil, 0)
	if w.minGen > 0 && !errors.Is(err, errs.Fenced) {
		w.fatal("the fence at %d is gone: %v", w.minGen, err)
	}
	if err := w.s.ReadAt(ctx, stripe.ObjectID{File: 9, Gen: w.asked}, nil, 0); err != nil {
		w.fatal("a fence that nobody asked for: %v", err)
	}
	if err := w.s.Close(); err != nil {
		w.fatal("close: %v", err)
	}
}

// compare checks that the object is made of images with one truncate sequence: an unfinished
// truncate has happened or has not.
func (w *cutWalk) compare(id stripe.ObjectID, h history, in stripe.Info, got []byte) {
	w.Helper()
	var same history
	for _, im := range h {
		if im == nil && in.TruncSeq == 0 {
			same = append(same, &image{})
		}
		if im != nil && im.seq == in.TruncSeq {
			same = append(same, im)
		}
	}
	sizeKnown := false
	for _, im := range same {
		sizeKnown = sizeKnown || int64(len(im.data)) == in.Size
	}
	if !sizeKnown {
		w.fatal("object %v: size %d, sequence %d is none of its states", id, in.Size, in.TruncSeq)
	}
	for i, b := range got {
		known := false
		for _, im := range same {
			var v byte
			if i < len(im.data) {
				v = im.data[i]
			}
			known = known || v == b || int64(i) >= in.Size && b == 0
		}
		if !known {
			w.fatal("object %v: byte %d is %#02x, which is neither durable nor later", id, i, b)
		}
	}
}

// TestOrder pins down the calls that durability consists of.
func TestOrder(t *testing.T) {
	ctx := context.Background()
	var calls []string
	s := mustOpen(t, Options{Dir: t.TempDir(), hook: func(call, path string) error {
		calls = append(calls, call)
		return nil
	}})
	defer s.Close()
	id := stripe.ObjectID{File: 1}
	p := [][]byte{fill(10, 1)}
	for _, c := range []struct {
		want string
		do   func() error
	}{
		{"mkdir fsync mkdir fsync create header pwritev fdatasync fsync", func() error {
			return s.WriteAt(ctx, id, p, 0, wire.Stamp{}, stripe.Durable)
		}},
		{"pwritev", func() error { return s.WriteAt(ctx, id, p, 5, wire.Stamp{}, 0) }},
		{"fdatasync", func() error { return s.Sync(ctx, id) }},
		{"", func() error { return s.Sync(ctx, id) }},
		{"header fdatasync ftruncate fdatasync header", func() error {
			return s.Truncate(ctx, id, 3, wire.Stamp{TruncSeq: 1})
		}},
		{"", func() error { return s.Truncate(ctx, id, 3, wire.Stamp{TruncSeq: 1}) }},
		{"append fdatasync", func() error { return s.SetMinGeneration(ctx, 8, 2) }},
		{"unlink fsync", func() error { return s.Remove(ctx, id) }},
		{"", func() error { return s.Remove(ctx, id) }},
	} {
		calls = nil
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(calls, " "); got != c.want {
			t.Errorf("calls %q, want %q", got, c.want)
		}
	}
}
