package meta

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/meta"
)

// The cases with many files are asked for by name. Each is measured once, however many rounds there
// are, because a round takes minutes.
const (
	bigDepth = 32 // goroutines that make and open

	bigDirectory = "big-directory"
	bigHandles   = "big-handles"
	bigBytes     = "big-bytes"
	bigIdle      = "big-idle"
)

// BigCases are those with many files, in the order in which they build on each other: the bytes of
// a file are those of the files of big-directory, and compacting ends the cluster.
func (b *Bench) BigCases() []bench.Case {
	one := func(name, about, metric string, depth int, measure bench.Measure) bench.Case {
		return bench.Case{Bench: "meta", Name: name, About: about, Metric: metric, Depth: depth,
			Contenders: []bench.Contender{{Provider: Service, Measure: once(measure)}}}
	}
	return []bench.Case{
		one(bigIdle, "resident memory of a service that nobody has used, and after what was measured",
			bench.Memory, 1, b.idle),
		one(bigDirectory, fmt.Sprintf("%d files are made in one directory, which is listed then",
			b.Files), bench.Rate, bigDepth, b.directory),
		one(bigHandles, fmt.Sprintf("the last of %d handles of one file are closed", b.Handles),
			bench.Latency, 1, b.handles),
		one(bigBytes, "what the metadata of a file takes on disk after compaction; ends the cluster",
			bench.FileBytes, 1, b.bytes),
	}
}

// once measures the first time, and says the same later.
func once(measure bench.Measure) bench.Measure {
	var done bool
	var r bench.Result
	return func(ctx context.Context, d time.Duration) (bench.Result, error) {
		if done {
			return r, nil
		}
		var err error
		r, err = measure(ctx, d)
		done = err == nil
		return r, err
	}
}

const mib = float64(bench.MiB)

func (b *Bench) idle(ctx context.Context, _ time.Duration) (r bench.Result, err error) {
	s, err := b.open(ctx)
	if err != nil {
		return r, err
	}
	r.Value = float64(s.Idle) / mib
	return r, nil
}

// bigDir makes a directory at the root.
func (b *Bench) bigDir(ctx context.Context, s *Site, name string) (meta.Ino, error) {
	b.built++
	a, err := s.FS.Meta().Make(ctx, s.FS.Caller(meta.Cred{}), s.FS.Root(),
		fmt.Sprintf("%s-%d", name, b.built), meta.NewFile{Type: meta.Directory, Mode: 0o755})
	return a.Ino, err
}

// directory makes files and compares the rate of the last tenth with that of the first, then lists
// all of them.
func (b *Bench) directory(ctx context.Context, _ time.Duration) (r bench.Result, err error) {
	s, err := b.open(ctx)
	if err != nil {
		return r, err
	}
	dir, err := b.bigDir(ctx, s, "big")
	if err != nil {
		return r, err
	}
	d := &drive{b: b, fs: s.FS, names: s.FS.Meta()}
	tenth := max(b.Files/10, 1)
	var times []time.Duration
	for made := 0; made < b.Files; made += tenth {
		n := min(tenth, b.Files-made)
		begin := time.Now()
		err := together(n, func(i int) error {
			return d.make(ctx, spot{dir: dir, n: uint64(made + i)})
		})
		if err != nil {
			return r, err
		}
		if n == tenth {
			times = append(times, time.Since(begin))
		}
		r.Ops += n
		r.Took += time.Since(begin)
	}
	first, last := times[0].Seconds(), times[len(times)-1].Seconds()
	r.Extras = []bench.Extra{{Metric: bench.EndToStart, Value: first / last}}
	return r, b.listBig(ctx, s, dir, &r)
}

// listBig lists a directory by pages, and tells how much more memory service and client have then.
func (b *Bench) listBig(ctx context.Context, s *Site, dir meta.Ino, r *bench.Result) error {
	memory := func() (float64, error) {
		theirs, err := s.Memory()
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(theirs) + float64(m.HeapAlloc), err
	}
	before, err := memory()
	if err != nil {
		return err
	}
	begin, n, most := time.Now(), 0, before
	for cookie := uint64(0); ; {
		page, err := s.FS.Meta().ReadDir(ctx, s.FS.Caller(meta.Cred{}), dir, cookie,
			meta.DirPageMax, false)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		n, cookie = n+len(page), page[len(page)-1].Cookie
		if n%(100*meta.DirPageMax) == 0 {
			now, err := memory()
			if err != nil {
				return err
			}
			most = max(most, now)
		}
	}
	now, err := memory()
	r.Extras = append(r.Extras,
		bench.Extra{Metric: bench.ListEntries, Value: float64(n) / time.Since(begin).Seconds()},
		bench.Extra{Metric: bench.ListMemory, Value: (max(most, now) - before) / mib})
	return err
}

// handles opens one file many times, and compares how long the first and the last closings take.
func (b *Bench) handles(ctx context.Context, _ time.Duration) (r bench.Result, err error) {
	s, err := b.open(ctx)
	if err != nil {
		return r, err
	}
	dir, err := b.bigDir(ctx, s, "handles")
	if err != nil {
		return r, err
	}
	names, c := s.FS.Meta(), s.FS.Caller(meta.Cred{})
	a, err := names.Make(ctx, c, dir, "file", regular())
	if err != nil {
		return r, err
	}
	ids := make([]uint64, b.Handles)
	err = together(b.Handles, func(i int) error {
		h, err := names.Open(ctx, c, a.Ino, meta.OpenRead|meta.OpenWrite)
		ids[i] = h.ID
		return err
	})
	if err != nil {
		return r, err
	}
	closing := func(ids []uint64) (us float64, err error) {
		var times []float64
		for _, id := range ids {
			begin := time.Now()
			if err := closeClean(ctx, names, c, id); err != nil {
				return 0, err
			}
			times = append(times, float64(time.Since(begin).Nanoseconds())/1e3)
		}
		return bench.Median(times), nil
	}
	few := min(1000, b.Handles/3)
	first, err := closing(ids[:few])
	if err != nil {
		return r, err
	}
	rest := ids[few : len(ids)-few]
	err = together(len(rest), func(i int) error { return closeClean(ctx, names, c, rest[i]) })
	if err != nil {
		return r, err
	}
	last, err := closing(ids[len(ids)-few:])
	r.Value = last
	r.Extras = []bench.Extra{{Metric: bench.EndToStart, Value: last / first}}
	return r, err
}

// bytes compacts what is there, and divides by the files.
func (b *Bench) bytes(ctx context.Context, _ time.Duration) (r bench.Result, err error) {
	s, err := b.open(ctx)
	if err != nil {
		return r, err
	}
	st, err := s.FS.Meta().StatFS(ctx, meta.RootIno)
	if err != nil {
		return r, err
	}
	bytes, err := s.Compact(ctx)
	r.Value = float64(bytes) / float64(max(st.Files, 1))
	return r, err
}

// together does n operations, bigDepth at a time, and returns the first error.
func together(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	failed := make([]error, bigDepth)
	for w := range bigDepth {
		wg.Go(func() {
			for i := w; i < n && failed[w] == nil; i += bigDepth {
				failed[w] = do(i)
			}
		})
	}
	wg.Wait()
	if i := slices.IndexFunc(failed, func(err error) bool { return err != nil }); i >= 0 {
		return failed[i]
	}
	return nil
}
