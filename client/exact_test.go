package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
)

// world is a tree as it must look to every client at every moment: what one has done is seen by all
// from then on. Operations follow each other, so that there is one right answer to each.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	fs    []*FS
	paths map[string]*entity // all that exists; the root is ""
	open  []opened
	trace []string // what was done last
	runs  int      // a client does up to so many things in a row; 0: they take turns at random
	run   int      // what is left of that
	now   *FS      // whose turn it is
}

// note remembers what is done, for whoever wants to know how something came about.
func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
	if len(w.trace) > 60 {
		w.trace = w.trace[1:]
	}
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.trace {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

// who is the number of a client.
func (w *world) who(fs *FS) int { return slices.Index(w.fs, fs) }

// entity is a file or a directory; several paths may lead to one file.
type entity struct {
	dir   bool
	mode  uint32
	links int
	data  []byte
}

// opened is a handle of one of the clients.
type opened struct {
	f *File
	e *entity
	w bool
}

func newWorld(t *testing.T, seed uint64, fs ...*FS) *world {
	return &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), fs: fs,
		paths: map[string]*entity{"": {dir: true}}}
}

func (w *world) client() *FS {
	if w.run--; w.runs == 0 || w.run < 0 {
		w.now = w.fs[w.rng.IntN(len(w.fs))]
		w.note("by client %d:", w.who(w.now))
	}
	if w.runs > 0 && w.run < 0 { // it looks around first
		w.run = w.rng.IntN(w.runs)
		for p, e := range w.paths {
			if e.dir {
				_ = w.now.ReadDir(context.Background(), p+"/", func(meta.Entry) error { return nil })
			}
		}
	}
	return w.now
}

// path draws a path of one or two of few names.
func (w *world) path() string {
	p := fmt.Sprint("/", string(rune('a'+w.rng.IntN(4))))
	if w.rng.IntN(2) == 0 {
		p += fmt.Sprint("/", string(rune('a'+w.rng.IntN(4))))
	}
	return p
}

// parent tells what making or finding something at p fails with.
func (w *world) parent(p string) errs.Kind {
	up := w.paths[path.Dir(p)[:len(path.Dir(p))-b2i(path.Dir(p) == "/")]]
	switch {
	case up == nil:
		return errs.NotFound
	case !up.dir:
		return errs.NotDir
	}
	return errs.OK
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (w *world) want(what string, err error, kinds ...errs.Kind) bool {
	w.t.Helper()
	w.note("%s: %v", what, err)
	if !slices.Contains(kinds, errs.KindOf(err)) {
		w.fatalf("%s: %v, want one of %v", what, err, kinds)
	}
	return err == nil
}

func (w *world) stat() {
	p := w.path()
	a, err := w.client().Lstat(context.Background(), p)
	e := w.paths[p]
	if e == nil {
		k := w.parent(p)
		if k == errs.OK {
			k = errs.NotFound
		}
		w.want("stat "+p, err, k)
		return
	}
	if !w.want("stat "+p, err, errs.OK) {
		return
	}
	if (a.Type == meta.Directory) != e.dir || a.Mode != e.mode {
		w.fatalf("stat %s: type %d mode %o, want %+v", p, a.Type, a.Mode, e)
	}
	if !e.dir && (a.Size != int64(len(e.data)) || int(a.Nlink) != e.links) {
		w.fatalf("stat %s: size %d links %d, want %d, %d", p, a.Size, a.Nlink, len(e.data), e.links)
	}
}

func (w *world) list() {
	p := path.Dir(w.path())
	if p == "/" {
		p = ""
	}
	var got []string
	err := w.client().ReadDir(context.Background(), p+"/", func(e meta.Entry) error {
		got = append(got, e.Name)
		if f := w.paths[p+"/"+e.Name]; e.Attr != nil && f != nil && !f.dir &&
			e.Attr.Size != int64(len(f.data)) {
			w.fatalf("listing %s: %s has %d bytes, want %d", p, e.Name, e.Attr.Size, len(f.data))
		}
		return nil
	})
	if e := w.paths[p]; e == nil || !e.dir {
		w.want("list "+p, err, errs.NotFound, errs.NotDir)
		return
	}
	w.want("list "+p, err, errs.OK)
	var names []string
	for q := range w.paths {
		if q != "" && path.Dir(q) == path.Join("/", p) {
			names = append(names, path.Base(q))
		}
	}
	slices.Sort(names)
	if slices.Sort(got); !slices.Equal(got, names) {
		w.fatalf("listing %s: %v, want %v", p, got, names)
	}
}

func (w *world) mkdir() {
	p := w.path()
	err := w.client().Mkdir(context.Background(), p, 0o755)
	switch k := w.parent(p); {
	case k != errs.OK:
		w.want("mkdir "+p, err, k)
	case w.paths[p] != nil:
		w.want("mkdir "+p, err, errs.Exists)
	case w.want("mkdir "+p, err, errs.OK):
		w.paths[p] = &entity{dir: true, mode: 0o755}
	}
}

// size draws one around the limits of small files, or a usual one.
func (w *world) size() int64 {
	switch w.rng.IntN(6) {
	case 0:
		return meta.SmallMax + w.rng.Int64N(100) - 50
	case 1:
		return 3 * meta.SmallMax
	}
	return w.rng.Int64N(5000)
}

func (w *world) bytes(n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return b
}

// create makes, writes and closes a file, or keeps it open.
func (w *world) create() {
	ctx, p := context.Background(), w.path()
	flag := os.O_CREATE | os.O_RDWR
	if w.rng.IntN(3) == 0 {
		flag |= os.O_TRUNC
	}
	f, err := w.client().OpenFile(ctx, p, flag, 0o644)
	e := w.paths[p]
	switch k := w.parent(p); {
	case k != errs.OK:
		w.want("create "+p, err, k)
		return
	case e != nil && e.dir:
		w.want("create "+p, err, errs.IsDir)
		return
	case !w.want("create "+p, err, errs.OK):
		return
	}
	if e == nil {
		e = &entity{mode: 0o644, links: 1}
		w.paths[p] = e
	}
	if flag&os.O_TRUNC != 0 {
		e.data = nil
	}
	w.open = append(w.open, opened{f, e, true})
	if n := len(w.open) - 1; w.rng.IntN(4) > 0 {
		w.write(n)
		w.close(n)
	}
}

func (w *world) write(n int) {
	o := &w.open[n]
	if !o.w {
		return
	}
	off, p := min(w.size(), int64(len(o.e.data))+10), w.bytes(1+w.rng.Int64N(4000))
	if w.rng.IntN(4) == 0 {
		at, err := o.f.Append(context.Background(), p)
		if w.want("append", err, errs.OK); at != int64(len(o.e.data)) {
			w.fatalf("append went to %d, the file has %d bytes", at, len(o.e.data))
		}
		off = at
	} else {
		_, err := o.f.WriteAt(context.Background(), p, off)
		w.want("write", err, errs.OK)
	}
	w.note("%d bytes at %d of inode %d by client %d", len(p), off, o.f.Ino(), w.who(o.f.fs))
	if end := off + int64(len(p)); end > int64(len(o.e.data)) {
		o.e.data = append(o.e.data, make([]byte, end-int64(len(o.e.data)))...)
	}
	copy(o.e.data[off:], p)
}

func (w *world) read(n int) {
	o := &w.open[n]
	// While others have the file open for writing, and it is not small, only this asks how long it
	// is.
	a, err := o.f.Stat(context.Background())
	if err != nil || a.Size != int64(len(o.e.data)) {
		w.fatalf("stat of an open file: %d bytes, %v, want %d", a.Size, err, len(o.e.data))
	}
	got := make([]byte, len(o.e.data)+10)
	k, err := o.f.ReadAt(context.Background(), got, 0)
	if err != io.EOF || !bytes.Equal(got[:k], o.e.data) {
		w.fatalf("read %d bytes, %v; the file has %d, different from %d on", k, err, len(o.e.data),
			firstDifference(got[:min(k, len(o.e.data))], o.e.data))
	}
}

func (w *world) close(n int) {
	o := &w.open[n]
	w.want(fmt.Sprintf("close of inode %d by client %d", o.f.Ino(), w.who(o.f.fs)),
		o.f.Close(context.Background()), errs.OK)
	w.open = slices.Delete(w.open, n, n+1)
}

// openRead opens a file for reading, reads it, and sometimes keeps it open.
func (w *world) openRead() {
	p := w.path()
	f, err := w.client().Open(context.Background(), p)
	e := w.paths[p]
	switch {
	case e == nil:
		w.want("open "+p, err, errs.NotFound, errs.NotDir)
	case e.dir:
		w.want("open "+p, err, errs.IsDir)
	case w.want("open "+p, err, errs.OK):
		w.open = append(w.open, opened{f, e, false})
		n := len(w.open) - 1
		if w.read(n); w.rng.IntN(4) > 0 {
			w.close(n)
		}
	}
}

func (w *world) truncate() {
	p, size := w.path(), w.size()
	err := w.client().Truncate(context.Background(), p, size)
	e := w.paths[p]
	switch {
	case e == nil:
		w.want("truncate "+p, err, errs.NotFound, errs.NotDir)
	case e.dir:
		w.want("truncate "+p, err, errs.IsDir, errs.Invalid)
	case w.want("truncate "+p, err, errs.OK):
		e.data = append(e.data[:min(size, int64(len(e.data))):min(size, int64(len(e.data)))],
			make([]byte, max(size-int64(len(e.data)), 0))...)
	}
}

func (w *world) chmod() {
	p, mode := w.path(), []uint32{0o700, 0o711, 0o755}[w.rng.IntN(3)]
	err := w.client().Chmod(context.Background(), p, os.FileMode(mode))
	if e := w.paths[p]; e == nil {
		w.want("chmod "+p, err, errs.NotFound, errs.NotDir)
	} else if w.want("chmod "+p, err, errs.OK) {
		e.mode = mode
	}
}

func (w *world) empty(p string) bool {
	for q := range w.paths {
		if len(q) > len(p) && q[:len(p)+1] == p+"/" {
			return false
		}
	}
	return true
}

func (w *world) remove() {
	p := w.path()
	err := w.client().Remove(context.Background(), p)
	e := w.paths[p]
	switch {
	case e == nil:
		w.want("remove "+p, err, errs.NotFound, errs.NotDir)
	case e.dir && !w.empty(p):
		w.want("remove "+p, err, errs.NotEmpty)
	case w.want("remove "+p, err, errs.OK):
		delete(w.paths, p)
		e.links--
	}
}

func (w *world) link() {
	p, q := w.path(), w.path()
	e := w.paths[p]
	if e == nil || e.dir || w.paths[q] != nil || w.parent(q) != errs.OK {
		return
	}
	w.want("link "+p+" "+q, w.client().Link(context.Background(), p, q), errs.OK)
	w.paths[q] = e
	e.links++
}

// rename moves files, and directories that are empty.
func (w *world) rename() {
	p, q := w.path(), w.path()
	from, to := w.paths[p], w.paths[q]
	if from == nil || w.parent(q) != errs.OK || from.dir && (!w.empty(p) || len(q) > len(p)) {
		return
	}
	err := w.client().Rename(context.Background(), p, q)
	switch {
	case from == to:
		w.want("rename "+p+" "+q, err, errs.OK)
	case to != nil && from.dir != to.dir:
		w.want("rename "+p+" "+q, err, errs.IsDir, errs.NotDir)
	case to != nil && to.dir && !w.empty(q):
		w.want("rename "+p+" "+q, err, errs.NotEmpty)
	case w.want("rename "+p+" "+q, err, errs.OK):
		if to != nil {
			to.links--
		}
		delete(w.paths, p)
		w.paths[q] = from
	}
}

func (w *world) step() {
	if len(w.open) > 0 && w.rng.IntN(3) == 0 {
		n := w.rng.IntN(len(w.open))
		switch w.rng.IntN(4) {
		case 0:
			w.write(n)
		case 1:
			w.close(n)
		default:
			w.read(n)
		}
		return
	}
	if w.runs > 0 && w.rng.IntN(2) == 0 {
		[]func(){w.remove, w.create, w.mkdir}[w.rng.IntN(3)]()
		return
	}
	[]func(){w.stat, w.stat, w.stat, w.list, w.list, w.mkdir, w.create, w.create, w.create, w.openRead,
		w.openRead, w.truncate, w.chmod, w.remove, w.link, w.rename}[w.rng.IntN(16)]()
}

// TestClientsAgree: what one client has done all others see, without waiting: names, attributes,
// sizes, data of files that are small, grow, are cut, linked, renamed, removed while they are open.
func TestClientsAgree(t *testing.T) {
	first := rand.Uint64()
	t.Logf("seeds from %d", first)
	for i := range uint64(6) {
		c := newCluster(t, 2, store.Options{})
		w := newWorld(t, first+i, c.client(Options{}), c.client(Options{}), c.client(Options{}))
		t.Logf("seed %d", first+i)
		for range 500 {
			w.step()
		}
	}
}

// TestClientsAgreeInRuns: the same, with clients that do several things in a row in directories
// that they have listed, so that they hold these alone, and others take them away.
func TestClientsAgreeInRuns(t *testing.T) {
	first := rand.Uint64()
	t.Logf("seeds from %d", first)
	held := uint64(0)
	for i := range uint64(8) {
		c := newCluster(t, 2, store.Options{Calm: 1})
		w := newWorld(t, first+i, c.client(Options{}), c.client(Options{}), c.client(Options{}))
		for _, fs := range w.fs {
			fs.deferral.wishes.again = 1
		}
		w.runs = 20
		t.Logf("seed %d", first+i)
		for range 1000 {
			w.step()
		}
		for _, fs := range w.fs {
			held += fs.Deferred().Held
		}
	}
	if t.Logf("%d directories were held", held); held < 8 {
		t.Error("this shows nothing")
	}
}

// TestClientsAgreeOverRestarts: the same over the network, with a metadata service that is
// restarted now and then.
func TestClientsAgreeOverRestarts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := newWired(t, 2)
	w := newWorld(t, seed, c.dial(""), c.dial(""))
	for i := range 600 {
		if i%120 == 100 {
			c.restartMeta()
			w.note("restart")
		}
		w.step()
	}
	for len(w.open) > 0 {
		w.close(0)
	}
}
