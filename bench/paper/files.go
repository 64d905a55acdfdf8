package paper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/partner"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/seg"
)

// Files measures the client library as the programs of the PVFS paper did: pvfs-test, and
// mpi-tile-io.
type Files struct {
	// Dial makes a client of a cluster with four I/O servers, which is reached by one provider. Who
	// gets it closes it.
	Dial func(ctx context.Context, provider string) (*client.FS, error)

	Providers []string // tcp, shm
}

const (
	servers   = 4
	regionMiB = 2  // that a client reads or writes, for each server of the file
	bulkMiB   = 32 // of P12
)

// Cases are those of this package.
func (f *Files) Cases() []bench.Case {
	var cases []bench.Case
	for _, write := range []bool{false, true} {
		for _, s := range []int{1, 2, 4} {
			for _, c := range []int{1, 2, 4} {
				cases = append(cases, f.regions(c, s, write))
			}
		}
		for _, n := range []int{64 * bench.KiB, 256 * bench.KiB, bench.MiB, 2 * bench.MiB,
			8 * bench.MiB, 32 * bench.MiB} {
			cases = append(cases, f.units(n, write))
		}
		cases = append(cases, f.tiles(write), f.apart(write))
	}
	return cases
}

func name(write bool) string {
	if write {
		return "write"
	}
	return "read"
}

func newCase(name, about string, size, depth int) bench.Case {
	return bench.Case{Bench: "paper", Name: name, About: about, Size: int64(size), Depth: depth,
		Metric: bench.Bandwidth}
}

// prepare makes what client i needs, in a folder, and returns its operation.
type prepare func(ctx context.Context, fs *client.FS, dir string, i int) (op, error)

// op is one operation; a client has a number of workers.
type op func(worker int) error

// load is what clients do.
type load struct {
	files    *Files
	provider string
	clients  int
	depth    int // of each client
	size     int // bytes of an operation
	prepare  prepare
	dir      string // of its files
	requests int    // to servers, of one operation of a client; 0: nobody counted

	ops []op
	all []*client.FS // one for each client
}

func (f *Files) contender(c *bench.Case, name string, l *load) bench.Contender {
	l.files = f
	l.dir = "/" + strings.NewReplacer(", ", "-", " ", "-").Replace(c.Name+"-"+name)
	return bench.Contender{Provider: name, Depth: l.clients * max(l.depth, 1), Measure: l.measure,
		Close: l.close}
}

func (l *load) open(ctx context.Context) error {
	for i := len(l.ops); i < l.clients; i++ {
		fs, err := l.files.Dial(ctx, l.provider)
		if err != nil {
			return err
		}
		l.all = append(l.all, fs)
		if err := fs.MkdirAll(ctx, l.dir, 0o777); err != nil {
			return err
		}
		one, err := l.prepare(ctx, fs, l.dir, i)
		if err != nil {
			return err
		}
		l.ops = append(l.ops, one)
	}
	return nil
}

// close ends the clients, and removes their files: a cluster in memory has no room for all cases.
func (l *load) close() (failed error) {
	for i, fs := range l.all {
		if i == 0 {
			failed = fs.RemoveAll(context.Background(), l.dir)
		}
		failed = errors.Join(failed, fs.Close())
	}
	return failed
}

// measure has all clients work at once. Besides bandwidth it tells how busy they are.
func (l *load) measure(ctx context.Context, d time.Duration) (bench.Result, error) {
	if err := l.open(ctx); err != nil {
		return bench.Result{}, err
	}
	before, err := partner.OwnCPU()
	if err != nil {
		return bench.Result{}, err
	}
	depth := max(l.depth, 1)
	r, err := bench.Load{Depth: l.clients * depth, Size: l.size, Op: func(worker, _ int) error {
		return l.ops[worker/depth](worker % depth)
	}}.Run(ctx, d)
	if err != nil {
		return r, err
	}
	after, err := partner.OwnCPU()
	if err != nil {
		return r, err
	}
	cpu := (after - before).Seconds()
	perGiB := cpu / r.GiB()
	r.Cost.LocalCPU = &perGiB
	r.Extras = []bench.Extra{{Metric: bench.Busy, Value: 100 * cpu / r.Took.Seconds()}}
	if l.requests > 0 {
		r.Extras = append(r.Extras, bench.Extra{Metric: bench.Requests, Value: float64(l.requests)})
	}
	return r, nil
}

// fill makes a file over some servers, of n bytes.
func fill(ctx context.Context, fs *client.FS, path string, width int, n int64) (*client.File,
	error) {
	f, err := fs.Create(ctx, path, client.WithLayout(layout.Policy{Width: width}))
	if err != nil {
		return nil, err
	}
	p := make([]byte, bench.MiB)
	for off := int64(0); off < n; off += int64(len(p)) {
		if _, err := f.WriteAt(ctx, p[:min(int64(len(p)), n-off)], off); err != nil {
			return nil, err
		}
	}
	return f, f.Sync(ctx)
}

// wall is the file of all clients; the first of them makes it.
func wall(ctx context.Context, fs *client.FS, path string, i int, n int64) (*client.File, error) {
	if i == 0 {
		return fill(ctx, fs, path, servers, n)
	}
	return fs.OpenFile(ctx, path, os.O_RDWR, 0)
}

// regions is pvfs-test: each client reads or writes one region of a file that lies on some servers.
func (f *Files) regions(clients, width int, write bool) bench.Case {
	size := regionMiB * width * bench.MiB
	c := newCase(fmt.Sprintf("%s-c%d-s%d", name(write), clients, width),
		"each client moves 2 MiB for each server", size, clients)
	for _, p := range f.Providers {
		c.Add(f.contender(&c, p, &load{provider: p, clients: clients, size: size,
			prepare: func(ctx context.Context, fs *client.FS, dir string, i int) (op, error) {
				file, err := fill(ctx, fs, fmt.Sprint(dir, "/", i), width, int64(size))
				if err != nil {
					return nil, err
				}
				m := fs.Alloc(size)
				quiet := context.WithoutCancel(ctx)
				return func(int) error { return move(quiet, file, m.Bytes(), 0, write) }, nil
			}}))
	}
	return c
}

func move(ctx context.Context, f *client.File, p []byte, off int64, write bool) error {
	var err error
	if write {
		_, err = f.WriteAt(ctx, p, off)
	} else {
		_, err = f.ReadAt(ctx, p, off)
	}
	return err
}

// units is 32 MiB from or to one server, in units of some size, two under way.
func (f *Files) units(size int, write bool) bench.Case {
	c := newCase(fmt.Sprintf("unit-%s-%s", name(write), bench.SizeName(size)),
		"32 MiB of one server in such units, two under way", size, 2)
	for _, p := range f.Providers {
		c.Add(f.contender(&c, p, &load{provider: p, clients: 1, depth: 2, size: size,
			prepare: func(ctx context.Context, fs *client.FS, dir string, _ int) (op, error) {
				file, err := fill(ctx, fs, dir+"/bulk", 1, bulkMiB*bench.MiB)
				if err != nil {
					return nil, err
				}
				m := [2]*client.Memory{fs.Alloc(size), fs.Alloc(size)}
				at := [2]int64{}
				quiet := context.WithoutCancel(ctx)
				return func(w int) error {
					off := (2*at[w] + int64(w)) * int64(size) % (bulkMiB * bench.MiB)
					at[w]++
					return move(quiet, file, m[w].Bytes(), off, write)
				}, nil
			}}))
	}
	return c
}

// The display wall of mpi-tile-io: 2 x 2 tiles.
const (
	wallRows, wallColumns   = 768, 1024
	wallElement             = 24
	apartRows, apartColumns = 384, 512
	apartElement            = 64
)

// tiles is mpi-tile-io, by one vector for each tile, and row by row.
func (f *Files) tiles(write bool) bench.Case {
	const size = wallRows * wallColumns * wallElement
	c := newCase("tile-"+name(write), "four clients move a tile each, by a vector or row by row", size,
		4)
	for _, p := range f.Providers {
		for _, rows := range []bool{true, false} {
			way := p + ", vector"
			if rows {
				way = p + ", rows"
			}
			l := &load{provider: p, clients: 4, size: size}
			l.prepare = func(ctx context.Context, fs *client.FS, dir string, i int) (op, error) {
				one, requests, err := tile(ctx, fs, dir+"/wall", i, write, rows)
				l.requests = requests
				return one, err
			}
			by := f.contender(&c, way, l)
			by.Ceiling = p + ", rows"
			c.Add(by)
		}
	}
	return c
}

// tile is one client's tile: what moves it, and how many requests to servers that takes.
func tile(ctx context.Context, fs *client.FS, path string, i int, write, rows bool) (op, int,
	error) {
	const row = wallColumns * wallElement
	file, err := wall(ctx, fs, path, i, 4*wallRows*row)
	if err != nil {
		return nil, 0, err
	}
	m := fs.Alloc(wallRows * row)
	quiet := context.WithoutCancel(ctx)
	at := func(r int64) int64 { return (((int64(i/2)*wallRows)+r)*2 + int64(i%2)) * row }
	if rows {
		requests := 0
		lay := file.Layout()
		for r := range int64(wallRows) {
			lay.Walk(seg.Contig(at(r), row), func(int, seg.Piece) { requests++ })
		}
		return func(int) error {
			for r := range int64(wallRows) {
				if err := move(quiet, file, m.Bytes()[r*row:(r+1)*row], at(r), write); err != nil {
					return err
				}
			}
			return nil
		}, requests, nil
	}
	var how client.Explanation
	t := client.Transfer{Write: write, Bufs: [][]byte{m.Bytes()}, File: seg.Strided(seg.Vector{
		Off: at(0), Block: row, Dims: []seg.Dim{{Count: wallRows, Stride: 2 * row}}})}
	once := t
	once.Explain = &how
	if _, err := file.Transfer(ctx, &once); err != nil {
		return nil, 0, err
	}
	return func(int) error {
		again := t
		_, err := file.Transfer(quiet, &again)
		return err
	}, how.Requests, nil
}

// apart is mpi-tile-io whose tiles lie in the whole array in memory, too: with a hint that all rows
// are of one allocation, and without.
func (f *Files) apart(write bool) bench.Case {
	const size = apartRows * apartColumns * apartElement
	c := newCase("apart-"+name(write), "tiles that lie apart in memory, too, with and without a hint",
		size, 4)
	for _, p := range f.Providers {
		for _, hint := range []bool{false, true} {
			way := p + ", no hint"
			if hint {
				way = p + ", hint"
			}
			by := f.contender(&c, way, &load{provider: p, clients: 4, size: size,
				prepare: func(ctx context.Context, fs *client.FS, dir string, i int) (op, error) {
					return scattered(ctx, fs, dir+"/wall", i, write, hint)
				}})
			by.Ceiling = p + ", no hint"
			c.Add(by)
		}
	}
	return c
}

// scattered is one client's tile, which has the same place in its memory as in the file.
func scattered(ctx context.Context, fs *client.FS, path string, i int, write, hint bool) (
	op, error) {
	const row, all = apartColumns * apartElement, 4 * apartRows * apartColumns * apartElement
	file, err := wall(ctx, fs, path, i, all)
	if err != nil {
		return nil, err
	}
	whole := make([]byte, all)
	first := (int64(i/2)*apartRows*2 + int64(i%2)) * row
	t := client.Transfer{Write: write, File: seg.Strided(seg.Vector{Off: first, Block: row,
		Dims: []seg.Dim{{Count: apartRows, Stride: 2 * row}}})}
	for at := range int64(apartRows) {
		off := first + at*2*row
		t.Bufs = append(t.Bufs, whole[off:off+row:off+row])
	}
	if hint {
		t.Parents = []client.Parent{{Bytes: whole}}
	}
	quiet := context.WithoutCancel(ctx)
	return func(int) error {
		once := t
		_, err := file.Transfer(quiet, &once)
		return err
	}, nil
}
