package client

import (
	"bytes"
	"context"
	"io"
	"os"
	"testing"

	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/meta/store"
	"github.com/sluice-storage/sluice/seg"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const unit = layout.UnitMin // small units make many stripes of little data

// create makes a file with small stripe units, whose data is at the I/O servers from the start.
func create(t testing.TB, fs *FS, name string, width int) *File {
	t.Helper()
	f := createSmall(t, fs, name, width)
	must(t, fs.moveOut(context.Background(), f))
	return f
}

// createSmall makes a file whose data lies with its metadata until it grows.
func createSmall(t testing.TB, fs *FS, name string, width int) *File {
	t.Helper()
	f, err := fs.CreateIno(context.Background(), *fs.opts.Cred, fs.root, name,
		meta.NewFile{Mode: 0o644, Unit: unit, Width: width}, meta.OpenRead|meta.OpenWrite)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// model is a file as a slice of bytes.
type model struct{ b []byte }

func (m *model) grow(end int64) {
	if int64(len(m.b)) < end {
		m.b = append(m.b, make([]byte, end-int64(len(m.b)))...)
	}
}

func (m *model) write(p []byte, off int64) {
	m.grow(off + int64(len(p)))
	copy(m.b[off:], p)
}

func (m *model) truncate(size int64) {
	m.grow(size)
	m.b = m.b[:size:size]
}

// machine runs random operations on a file and on its model.
type machine struct {
	f     *File
	fs    *FS
	m     model
	stamp byte
}

func offsets() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(0, 9*unit),
		rapid.Map(rapid.Int64Range(0, 9), func(u int64) int64 { return u * unit }),
		rapid.Map(rapid.Int64Range(1, 9), func(u int64) int64 { return u*unit - 1 }),
	)
}

func lengths() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(0, 64), rapid.Int64Range(0, 5*unit),
		rapid.Map(rapid.Int64Range(0, 5), func(u int64) int64 { return u * unit }))
}

// fresh makes data that differs from everything written before.
func (x *machine) fresh(n int64) []byte {
	x.stamp++
	b := make([]byte, n)
	for i := range b {
		b[i] = x.stamp + byte(i%251)
	}
	return b
}

// scatter cuts memory into pieces of drawn lengths.
func scatter(t *rapid.T, b []byte) [][]byte {
	var out [][]byte
	for len(b) > 0 {
		n := rapid.IntRange(0, len(b)).Draw(t, "piece")
		if rapid.Bool().Draw(t, "all") {
			n = len(b)
		}
		out = append(out, b[:n:n])
		b = b[n:]
	}
	return out
}

// accesses draws a list or a vector whose pieces do not overlap.
func accesses(t *rapid.T) seg.Access {
	if rapid.Bool().Draw(t, "vector") {
		block := rapid.Int64Range(1, unit/2).Draw(t, "block")
		inner := block + rapid.Int64Range(0, unit).Draw(t, "gap")
		count := rapid.Int64Range(1, 6).Draw(t, "count")
		outer := inner*count + rapid.Int64Range(0, unit).Draw(t, "outer gap")
		return seg.Strided(seg.Vector{Off: offsets().Draw(t, "off"), Block: block, Dims: []seg.Dim{
			{Count: rapid.Int64Range(1, 3).Draw(t, "rows"), Stride: outer}, {Count: count, Stride: inner}}})
	}
	var list []seg.Piece
	at := int64(0)
	for range rapid.IntRange(1, 8).Draw(t, "pieces") {
		at += rapid.Int64Range(0, 2*unit).Draw(t, "skip")
		n := rapid.Int64Range(0, 2*unit).Draw(t, "len")
		list = append(list, seg.Piece{Off: at, Len: n})
		at += n
	}
	if rapid.Bool().Draw(t, "swap") && len(list) > 1 {
		list[0], list[len(list)-1] = list[len(list)-1], list[0]
	}
	return seg.List(list)
}

func (x *machine) actions() map[string]func(*rapid.T) {
	ctx := context.Background()
	return map[string]func(*rapid.T){
		"write": func(t *rapid.T) {
			off, p := offsets().Draw(t, "off"), x.fresh(lengths().Draw(t, "len"))
			if n, err := x.f.WriteAt(ctx, p, off); err != nil || n != len(p) {
				t.Fatalf("write of %d at %d: %d, %v", len(p), off, n, err)
			}
			if len(p) > 0 {
				x.m.write(p, off)
			}
		},
		"read": func(t *rapid.T) {
			x.compare(t, offsets().Draw(t, "off"), lengths().Draw(t, "len"))
		},
		"write list": x.writeList,
		"read list":  x.readList,
		"truncate": func(t *rapid.T) {
			size := offsets().Draw(t, "size")
			if err := x.f.Truncate(ctx, size); err != nil {
				t.Fatal(err)
			}
			x.m.truncate(size)
		},
		"punch": func(t *rapid.T) {
			off, n := offsets().Draw(t, "off"), lengths().Draw(t, "len")
			if err := x.f.Punch(ctx, off, n); err != nil {
				t.Fatal(err)
			}
			if size := int64(len(x.m.b)); off < size {
				clear(x.m.b[off:min(off+n, size)])
			}
		},
		"map": x.checkMap,
		"sync": func(t *rapid.T) {
			if err := x.f.Sync(ctx); err != nil {
				t.Fatal(err)
			}
		},
		"stat": func(t *rapid.T) {
			if a, err := x.f.Stat(ctx); err != nil || a.Size != int64(len(x.m.b)) {
				t.Fatalf("size %d, want %d (%v)", a.Size, len(x.m.b), err)
			}
		},
		"": func(t *rapid.T) { x.compare(t, 0, int64(len(x.m.b))+1) },
	}
}

func (x *machine) compare(t *rapid.T, off, n int64) {
	p := make([]byte, n)
	got, err := x.f.ReadAt(context.Background(), p, off)
	want := x.m.b[min(off, int64(len(x.m.b))):min(off+n, int64(len(x.m.b)))]
	if !bytes.Equal(p[:got], want) {
		t.Fatalf("read %d at %d: %d bytes, want %d, or other bytes", n, off, got, len(want))
	}
	if wantErr := error(nil); n > 0 && int64(got) < n {
		wantErr = io.EOF
		if err != wantErr {
			t.Fatalf("short read: %v", err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
}

func (x *machine) writeList(t *rapid.T) {
	a := accesses(t)
	p := x.fresh(a.Len())
	n, err := x.f.WriteList(context.Background(), scatter(t, p), a)
	if err != nil || n != a.Len() {
		t.Fatalf("write list: %d, %v", n, err)
	}
	seg.Zip(a, seg.Contig(0, a.Len()), func(file, stream seg.Piece) bool {
		x.m.write(p[stream.Off:stream.End()], file.Off)
		return true
	})
}

func (x *machine) readList(t *rapid.T) {
	a := accesses(t)
	p := make([]byte, a.Len())
	for i := range p {
		p[i] = 0xee // must be overwritten, by zeroes behind the end
	}
	n, err := x.f.ReadList(context.Background(), scatter(t, p), a)
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	want, short := make([]byte, 0, len(p)), int64(-1)
	seg.Zip(a, seg.Contig(0, a.Len()), func(file, _ seg.Piece) bool {
		for i := file.Off; i < file.End(); i++ {
			if i >= int64(len(x.m.b)) {
				if short < 0 {
					short = int64(len(want))
				}
				want = append(want, 0)
				continue
			}
			want = append(want, x.m.b[i])
		}
		return true
	})
	if !bytes.Equal(p, want) {
		t.Fatalf("list of %d pieces reads other bytes", a.Pieces())
	}
	if short < 0 && (n != a.Len() || err != nil) || short >= 0 && (n != short || err != io.EOF) {
		t.Fatalf("read list: %d of %d, %v; end at %d", n, a.Len(), err, short)
	}
}

// checkMap demands that the map covers the file and that its holes are zero.
func (x *machine) checkMap(t *rapid.T) {
	off, n := offsets().Draw(t, "off"), lengths().Draw(t, "len")
	extents, err := x.f.Map(context.Background(), off, n)
	if err != nil {
		t.Fatal(err)
	}
	at, end := off, min(off+n, int64(len(x.m.b)))
	for i, e := range extents {
		if e.Off != at || e.Len <= 0 || i > 0 && e.Hole == extents[i-1].Hole {
			t.Fatalf("extent %d: %+v at %d, %+v", i, e, at, extents)
		}
		at += e.Len
		if at > end {
			t.Fatalf("extent %+v goes beyond %d", e, end)
		}
		if e.Hole && !zero(x.m.b[e.Off:at]) {
			t.Fatalf("%+v is no hole", e)
		}
	}
	if at != max(end, off) {
		t.Fatalf("map of [%d, %d) ends at %d", off, end, at)
	}
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// TestFileAgainstModel runs random reads, writes, lists, vectors, holes and truncations, of every
// alignment and on every width, against a slice of bytes.
func TestFileAgainstModel(t *testing.T) {
	c := newCluster(t, 5, store.Options{})
	fs := c.client(Options{})
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		name := "model"
		make := create
		if rapid.Bool().Draw(rt, "small") {
			make = createSmall
		}
		f := make(t, fs, name, rapid.IntRange(1, 5).Draw(rt, "width"))
		defer func() {
			if err := f.Close(context.Background()); err != nil {
				rt.Fatal(err)
			}
			if err := fs.Remove(context.Background(), "/"+name); err != nil {
				rt.Fatal(err)
			}
		}()
		x := &machine{f: f, fs: fs}
		rt.Repeat(x.actions())
	})
}

// TestOneRequestPerServer counts: however many pieces an access has, a server is asked once.
func TestOneRequestPerServer(t *testing.T) {
	c := newCluster(t, 4, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "tile", 4)
	defer f.Close(ctx)
	if err := f.Truncate(ctx, 32*unit); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16*unit)
	rows := seg.Strided(seg.Vector{Block: 1000, Dims: []seg.Dim{{Count: 600, Stride: 1700}}})
	var pieces []seg.Piece
	for i := range int64(512) {
		pieces = append(pieces, seg.Piece{Off: i * 2000, Len: 1000 + i%3})
	}
	for _, test := range []struct {
		name string
		a    seg.Access
		bufs func(n int64) [][]byte
		most int
	}{
		{"contiguous", seg.Contig(5, 15*unit), func(n int64) [][]byte { return [][]byte{buf[:n]} }, 1},
		{"one byte", seg.Contig(5, 1), func(n int64) [][]byte { return [][]byte{buf[:n]} }, 1},
		{"rows", rows, func(n int64) [][]byte { return [][]byte{buf[:n]} }, 1},
		{"list", seg.List(pieces), func(n int64) [][]byte { return [][]byte{buf[:n]} }, 1},
		{"list into three buffers", seg.List(pieces), func(n int64) [][]byte {
			return [][]byte{buf[:100], buf[100:7777], buf[7777:n]}
		}, 1},
	} {
		bufs := test.bufs(test.a.Len())
		for op, fn := range map[iod.Op]func() error{
			iod.OpWrite: func() error { _, err := f.WriteList(ctx, bufs, test.a); return err },
			iod.OpRead:  func() error { _, err := f.ReadList(ctx, bufs, test.a); return err },
		} {
			got := c.counted(op, func() {
				if err := fn(); err != nil {
					t.Fatal(err)
				}
			})
			for server, n := range got {
				if n > test.most {
					t.Errorf("%s: op %d: server %d got %d requests", test.name, op, server, n)
				}
			}
			if len(got) == 0 {
				t.Errorf("%s: nobody was asked", test.name)
			}
		}
	}
}

// TestHugeLists are split at the limits of a message and still arrive whole.
func TestHugeLists(t *testing.T) {
	c := newCluster(t, 3, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "huge", 3)
	defer f.Close(ctx)
	var pieces []seg.Piece
	var bufs [][]byte
	want := map[int64]byte{}
	at := int64(0)
	for i := range 20000 {
		at += int64(1 + i%7)
		pieces = append(pieces, seg.Piece{Off: at, Len: 1})
		bufs = append(bufs, []byte{byte(i*7 + 1)})
		want[at] = byte(i*7 + 1)
		at++
	}
	if n, err := f.WriteList(ctx, bufs, seg.List(pieces)); err != nil || n != 20000 {
		t.Fatalf("%d, %v", n, err)
	}
	got := make([]byte, at)
	if _, err := f.ReadAt(ctx, got, 0); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i] != want[int64(i)] {
			t.Fatalf("byte %d: %d, want %d", i, got[i], want[int64(i)])
		}
	}
	back := make([]byte, 20000)
	if _, err := f.ReadList(ctx, [][]byte{back}, seg.List(pieces)); err != nil {
		t.Fatal(err)
	}
	for i := range back {
		if back[i] != byte(i*7+1) {
			t.Fatalf("piece %d: %d", i, back[i])
		}
	}
}

// TestRefusals are errors of the caller.
func TestRefusals(t *testing.T) {
	c := newCluster(t, 2, store.Options{})
	fs := c.client(Options{})
	ctx := context.Background()
	f := create(t, fs, "f", 2)
	if _, err := f.WriteAt(ctx, []byte("x"), -1); err == nil {
		t.Error("negative offset accepted")
	}
	if _, err := f.WriteAt(ctx, []byte("x"), layout.FileSizeMax); err == nil {
		t.Error("offset beyond the largest file accepted")
	}
	if _, err := f.ReadList(ctx, [][]byte{make([]byte, 3)}, seg.Contig(0, 4)); err == nil {
		t.Error("unequal lengths accepted")
	}
	r, err := fs.OpenFile(ctx, "f", os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.WriteAt(ctx, []byte("x"), 0); err == nil {
		t.Error("write to a file open for reading accepted")
	}
	if err := f.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(ctx, make([]byte, 1), 0); err == nil {
		t.Error("read of a closed file accepted")
	}
}
