package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// streamed is a file of n random bytes, written by a Writer.
func streamed(t *testing.T, fs *FS, path string, n int, o WriterOptions) (*File, []byte) {
	t.Helper()
	ctx := context.Background()
	f, err := fs.Create(ctx, path)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close(ctx)) })
	data := make([]byte, n)
	fill(data, rand.New(rand.NewPCG(1, uint64(n))))
	w := f.Writer(ctx, o)
	for rest, i := data, 1; len(rest) > 0; i++ { // in pieces that do not fit those of the writer
		part := min(len(rest), i*7919)
		k, err := w.Write(rest[:part])
		must(t, err)
		if k != part {
			t.Fatalf("wrote %d of %d bytes", k, part)
		}
		rest = rest[part:]
	}
	must(t, w.Close())
	if errs.KindOf(w.Close()) != errs.Closed {
		t.Error("a writer was closed twice")
	}
	return f, data
}

// TestStreams writes files behind and reads them ahead, by several interfaces and sizes.
func TestStreams(t *testing.T) {
	fs := newWiredBy(t, 3, true).dialNear(buffersMin)
	ctx := context.Background()
	for _, n := range []int{0, 1, 5000, 16 << 10, 100 << 10, 3<<20 + 17, 12<<20 + 1} {
		for _, piece := range []int{0, 4 << 10, 96 << 10} {
			if piece == 4<<10 && n > 1<<20 {
				continue // thousands of requests say no more than a few
			}
			name := fmt.Sprintf("/%d-%d", n, piece)
			f, data := streamed(t, fs, name, n, WriterOptions{Piece: piece, Behind: 4 * piece})
			r := f.Reader(ctx, ReaderOptions{Piece: piece, Ahead: 4 * piece})
			var got bytes.Buffer
			_, err := io.Copy(&got, r)
			must(t, err)
			if !bytes.Equal(got.Bytes(), data) {
				t.Fatalf("%s: copied other data", name)
			}
			_, err = r.Seek(0, io.SeekStart)
			must(t, err)
			all, err := io.ReadAll(bufio.NewReaderSize(r, 1000))
			must(t, err)
			if !bytes.Equal(all, data) {
				t.Fatalf("%s: read other data", name)
			}
			must(t, r.Close())
			if _, err := r.Read(make([]byte, 1)); errs.KindOf(err) != errs.Closed {
				t.Errorf("read after Close: %v", err)
			}
		}
	}
	if st := fs.buffers.zones.Stats(); inUse(&st) != 0 {
		t.Errorf("buffers are still out: %+v", st)
	}
}

// TestReaderSuite is the suite of the standard library for readers.
func TestReaderSuite(t *testing.T) {
	fs := newWired(t, 2).dial("")
	f, data := streamed(t, fs, "/f", 300<<10, WriterOptions{})
	r := f.Reader(context.Background(), ReaderOptions{Piece: 16 << 10, Ahead: 64 << 10})
	defer r.Close()
	must(t, iotest.TestReader(r, data))
}

// TestReaderBounds: what is read ahead is bounded, and begins with little.
func TestReaderBounds(t *testing.T) {
	fs := newWired(t, 2).dial("")
	f, _ := streamed(t, fs, "/f", 8<<20, WriterOptions{})
	r := f.Reader(context.Background(), ReaderOptions{Piece: 256 << 10, Ahead: 1 << 20})
	defer r.Close()
	held := func() (n int) {
		for _, p := range r.pieces {
			n += len(p.mem.Bytes())
		}
		for _, m := range r.spare {
			n += len(m.Bytes())
		}
		return n
	}
	p := make([]byte, 10000)
	most, under := 0, 0
	for i := 0; ; i++ {
		_, err := r.Read(p)
		if err == io.EOF {
			break
		}
		must(t, err)
		if i == 0 && held() > aheadFirst {
			t.Errorf("the first read has led to %d bytes", held())
		}
		most, under = max(most, held()), max(under, len(r.pieces))
	}
	if most > 1<<20+256<<10 {
		t.Errorf("holds %d bytes", most)
	}
	if under < 3 {
		t.Errorf("at most %d requests were under way", under)
	}
}

// TestReaderSeesOwnWrites: data that was read ahead and written since by this client is not shown,
// and the file's end is where it is now.
func TestReaderSeesOwnWrites(t *testing.T) {
	fs := newWired(t, 2).dial("")
	ctx := context.Background()
	f, data := streamed(t, fs, "/f", 4<<20, WriterOptions{})
	r := f.Reader(ctx, ReaderOptions{Piece: 64 << 10})
	defer r.Close()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	p := make([]byte, 100<<10)
	pos := 0
	for step := range 300 {
		switch rng.IntN(8) {
		case 0:
			off := rng.IntN(len(data))
			part := data[off:min(len(data), off+1+rng.IntN(50<<10))]
			fill(part, rng)
			_, err := f.WriteAt(ctx, part, int64(off))
			must(t, err)
		case 1:
			pos = rng.IntN(len(data))
			_, err := r.Seek(int64(pos), io.SeekStart)
			must(t, err)
		case 2:
			size := max(1<<20, len(data)-rng.IntN(30<<10))
			must(t, f.Truncate(ctx, int64(size)))
			data = data[:size]
		default:
			n, err := r.Read(p)
			if err != nil && (err != io.EOF || pos < len(data)) {
				t.Fatalf("step %d: at %d of %d: %v", step, pos, len(data), err)
			}
			if want := data[min(pos, len(data)):]; n > len(want) || !bytes.Equal(p[:n], want[:n]) {
				t.Fatalf("step %d: %d bytes at %d are not those of the file", step, n, pos)
			}
			pos += n
		}
	}
}

// TestReaderTail: a reader at the end of a file goes on when there is more.
func TestReaderTail(t *testing.T) {
	w := newWired(t, 2)
	writer, reader := w.dial(""), w.dial("")
	ctx := context.Background()
	f, data := streamed(t, writer, "/f", 100<<10, WriterOptions{})
	g, err := reader.Open(ctx, "/f")
	must(t, err)
	defer g.Close(ctx)
	r := g.Reader(ctx, ReaderOptions{})
	defer r.Close()
	got, err := io.ReadAll(r)
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Fatal("other data")
	}
	_, err = f.WriteAt(ctx, []byte("more"), int64(len(data)))
	must(t, err)
	if got, err = io.ReadAll(r); err != nil || string(got) != "more" {
		t.Errorf("then %q, %v", got, err)
	}
}

// TestWriterFails: the error of a piece in the background stops the writer, and Close tells it
// again.
func TestWriterFails(t *testing.T) {
	fs := newWired(t, 2).dial("")
	ctx := context.Background()
	must(t, fs.Mkdir(ctx, "/d", 0o755))
	_, err := fs.SetQuota(ctx, "/d", meta.Usage{Bytes: 2 << 20})
	must(t, err)
	f, err := fs.Create(ctx, "/d/f")
	must(t, err)
	defer f.Close(ctx)
	w := f.Writer(ctx, WriterOptions{Piece: 64 << 10, Behind: 256 << 10})
	p := make([]byte, 50000)
	total := 0
	for err = nil; err == nil && total < 64<<20; {
		var n int
		n, err = w.Write(p)
		total += n
	}
	if errs.KindOf(err) != errs.Quota || total > 2<<20+256<<10+len(p) {
		t.Errorf("after %d bytes: %v", total, err)
	}
	for what, call := range map[string]func() error{"Flush": w.Flush, "Sync": w.Sync} {
		if err := call(); errs.KindOf(err) != errs.Quota {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := w.Close(); errs.KindOf(err) != errs.Quota {
		t.Errorf("Close: %v", err)
	}
}

// TestWriterSource: ReadFrom passes on the errors of its source, and keeps what came before.
func TestWriterSource(t *testing.T) {
	fs := newWired(t, 2).dial("")
	ctx := context.Background()
	for _, strict := range []bool{false, true} {
		opts := []OpenOption{WithStrict()}[:b2i(strict)]
		f, err := fs.Create(ctx, "/f", opts...)
		must(t, err)
		w := f.Writer(ctx, WriterOptions{Offset: 10, Piece: 8 << 10})
		broken := errors.New("broken")
		data := bytes.Repeat([]byte("x"), 70000)
		n, err := w.ReadFrom(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)))
		if n != int64(len(data)) || !errors.Is(err, broken) {
			t.Errorf("%d bytes, %v", n, err)
		}
		must(t, w.Close())
		if a, err := f.Stat(ctx); err != nil || a.Size != 10+int64(len(data)) {
			t.Errorf("%d bytes, %v", a.Size, err)
		}
		must(t, f.Close(ctx))
	}
}

// TestWriterAppends: pieces of several writers with O_APPEND do not mix, and each writer's follow
// each other.
func TestWriterAppends(t *testing.T) {
	w := newWired(t, 2)
	ctx := context.Background()
	const piece, pieces = 32 << 10, 20
	var done [2]chan error
	for i, fs := range []*FS{w.dial(""), w.dial("")} {
		f, err := fs.OpenFile(ctx, "/log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		must(t, err)
		done[i] = make(chan error, 1)
		go func() {
			w := f.Writer(ctx, WriterOptions{Piece: piece})
			var err error
			for k := range pieces * piece / 1024 {
				line := bytes.Repeat([]byte{byte('a' + i)}, 1024)
				line[0] = byte(k / (piece / 1024))
				if _, err = w.Write(line); err != nil {
					break
				}
			}
			err = errors.Join(err, w.Close(), f.Close(ctx))
			done[i] <- err
		}()
	}
	must(t, <-done[0])
	must(t, <-done[1])
	f, err := w.dial("").Open(ctx, "/log")
	must(t, err)
	defer f.Close(ctx)
	all, err := io.ReadAll(f.IO(ctx))
	must(t, err)
	if len(all) != 2*pieces*piece {
		t.Fatalf("%d bytes", len(all))
	}
	next := map[byte]byte{}
	for ; len(all) > 0; all = all[piece:] {
		who := all[1]
		for k := 0; k < piece; k += 1024 {
			if all[k] != next[who] || all[k+1] != who {
				t.Fatalf("piece %d of %c is mixed with others", next[who], who)
			}
		}
		next[who]++
	}
}

// TestStrict: another client cuts a file that both have open for writing. A strict handle sees its
// end; another one may go on with the length that it knows, which is what the option is for.
func TestStrict(t *testing.T) {
	w := newWired(t, 2)
	a, b := w.dial(""), w.dial("")
	ctx := context.Background()
	f, data := streamed(t, a, "/f", 1<<20, WriterOptions{})
	open := func(opts ...OpenOption) *File {
		g, err := b.OpenFile(ctx, "/f", os.O_RDWR, 0, opts...)
		must(t, err)
		t.Cleanup(func() { must(t, g.Close(ctx)) })
		return g
	}
	plain, strict := open(), open(WithStrict())
	p := make([]byte, len(data))
	for _, g := range []*File{plain, strict} {
		n, err := g.ReadAt(ctx, p, 0)
		if n != len(data) || err != nil || !bytes.Equal(p, data) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	must(t, f.Truncate(ctx, 100<<10))
	if n, err := plain.ReadAt(ctx, p, 0); n != len(p) || err != nil {
		t.Errorf("a handle that is not strict read %d bytes, %v: the option changes nothing", n, err)
	}
	if n, err := strict.ReadAt(ctx, p, 0); n != 100<<10 || err != io.EOF {
		t.Errorf("a strict handle read %d bytes, %v", n, err)
	}
	_, err := f.WriteAt(ctx, []byte("new"), 50)
	must(t, err)
	r := strict.Reader(ctx, ReaderOptions{Offset: 50})
	defer r.Close()
	_, err = r.Read(p[:3])
	must(t, err)
	must(t, f.Truncate(ctx, 53))
	if _, err = r.Read(p); err != io.EOF || string(p[:3]) != "new" {
		t.Errorf("a strict reader read %q, then %v", p[:3], err)
	}
}

// TestAlloc: memory of every size, from buffers, of its own and plain, is as good as any, and what
// is not freed goes with the client.
func TestAlloc(t *testing.T) {
	w := newWiredBy(t, 2, true)
	fs := w.dialNear(buffersMin)
	ctx := context.Background()
	f, err := fs.Create(ctx, "/f")
	must(t, err)
	defer f.Close(ctx)
	var kept []*Memory
	shared := 0
	for i, n := range []int{0, 1, 4096, 1 << 20, 1<<20 + 1, 5 << 20, 1 << 20, 1 << 20, 1 << 20} {
		m := fs.Alloc(n)
		if len(m.Bytes()) != n {
			t.Fatalf("%d bytes in place of %d", len(m.Bytes()), n)
		}
		if m.Shared() {
			shared++
		}
		fill(m.Bytes(), rand.New(rand.NewPCG(2, uint64(i))))
		want := bytes.Clone(m.Bytes())
		_, err := f.WriteAtDurable(ctx, m.Bytes(), 0)
		must(t, err)
		clear(m.Bytes())
		_, err = f.ReadAt(ctx, m.Bytes(), 0)
		must(t, err)
		if !bytes.Equal(m.Bytes(), want) {
			t.Errorf("%d bytes came back changed", n)
		}
		kept = append(kept, m)
	}
	if n := shared; n < 5 || n == 9 {
		t.Errorf("%d of 9 are shared; there are buffers for a few, and not for all", n)
	}
	for _, m := range kept[:len(kept)-4] {
		m.Free()
		m.Free()
	}
	for _, m := range kept[len(kept)-4:] {
		if m.buf != nil {
			m.Free() // buffers that are out are the program's mistake; what was mapped is not
		}
	}
	if plain := w.dial("").Alloc(10); plain.Shared() || len(plain.Bytes()) != 10 {
		t.Error("without such memory there is some")
	}
}
