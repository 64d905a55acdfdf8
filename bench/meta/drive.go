package meta

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// drive does one kind of operation in directories of its own, which it makes, with the files that
// the operation needs, before the first measurement.
type drive struct {
	b     *Bench
	op    *op
	v     variant
	do    step
	site  *Site
	fs    *client.FS
	names meta.Service

	dirs []meta.Ino
	path []string
	inos map[string][]meta.Ino // of the files that are there, by their directory
	next []uint64              // by goroutine: how many operations it has done
	made []uint64              // takes: by goroutine, how many files it has made
	data []byte
	bufs [][]byte
	rate float64 // takes: operations a second, as measured last
}

// contender is an operation done by somebody.
func (b *Bench) contender(name string, o *op, v variant, do step) bench.Contender {
	d := &drive{b: b, op: o, v: v, do: do}
	return bench.Contender{Provider: name, Measure: d.measure}
}

func (d *drive) caller() meta.Caller { return d.fs.Caller(meta.Cred{}) }

// open makes directories and files.
func (d *drive) open(ctx context.Context) (err error) {
	if d.site != nil {
		return nil
	}
	site, err := d.b.open(ctx)
	if err != nil {
		return err
	}
	d.fs, d.names = site.FS, site.FS.Meta()
	d.data, d.inos = make([]byte, smallBytes), map[string][]meta.Ino{}
	d.next, d.made = make([]uint64, d.v.depth), make([]uint64, d.v.depth)
	for range d.v.depth {
		d.bufs = append(d.bufs, make([]byte, smallBytes))
	}
	dirs := 1
	if d.v.many {
		dirs = d.v.depth
	}
	for range dirs {
		d.b.built++
		path := fmt.Sprintf("/bench-%d", d.b.built)
		a, err := d.names.Make(ctx, d.caller(), d.fs.Root(), path[1:],
			meta.NewFile{Type: meta.Directory, Mode: 0o755})
		if err != nil {
			return err
		}
		d.dirs, d.path = append(d.dirs, a.Ino), append(d.path, path)
	}
	if err := d.stock(ctx); err != nil {
		return err
	}
	d.site = site
	return nil
}

// stock makes the files that are looked at, or renamed.
func (d *drive) stock(ctx context.Context) error {
	switch d.op.uses {
	case looks:
		for i, path := range d.path {
			for n := range uint64(stockFiles) {
				at := spot{dir: d.dirs[i], path: path, n: n}
				if err := d.clientWrite(ctx, at); err != nil {
					return err
				}
				a, err := d.fs.Stat(ctx, at.full())
				if err != nil {
					return err
				}
				d.inos[path] = append(d.inos[path], a.Ino)
			}
		}
	case turns:
		for w := range d.v.depth {
			at := d.spot(w, 0)
			from, _ := at.turned()
			if _, err := d.names.Make(ctx, d.caller(), at.dir, from, regular()); err != nil {
				return err
			}
		}
	}
	return nil
}

// spot is where a goroutine does its n-th operation. Names of several goroutines in one directory
// differ, and come in order, as those of programs do.
func (d *drive) spot(worker int, n uint64) spot {
	i := worker % len(d.dirs)
	at := spot{dir: d.dirs[i], path: d.path[i], worker: worker, n: n, sync: d.v.sync}
	if d.op.uses == makesNew || d.op.uses == takes {
		at.n = n*uint64(d.v.depth) + uint64(worker)
	}
	return at
}

// measure works for about t.
func (d *drive) measure(ctx context.Context, t time.Duration) (r bench.Result, err error) {
	if err := d.open(ctx); err != nil {
		return r, err
	}
	if d.op.uses == takes {
		return d.measureTaking(ctx, t)
	}
	return d.site.costs(ctx, func() (bench.Result, error) {
		return bench.Load{Depth: d.v.depth, Size: d.op.size, Op: func(w, _ int) error {
			n := d.next[w]
			d.next[w]++
			return d.do(d, ctx, d.spot(w, n))
		}}.Run(ctx, t)
	})
}

// measureTaking makes files, and measures how they are removed: as many as will last for t, going
// by the rate of the last time.
func (d *drive) measureTaking(ctx context.Context, t time.Duration) (r bench.Result, err error) {
	each := max(20, int(d.rate*t.Seconds())/d.v.depth)
	_, err = bench.Load{Depth: d.v.depth, Least: each * d.v.depth, Op: func(w, i int) error {
		if i >= each {
			return nil // others are not through
		}
		at := d.spot(w, d.made[w])
		d.made[w]++
		_, err := d.names.Make(ctx, d.caller(), at.dir, at.name(), regular())
		return err
	}}.Run(ctx, 0)
	if err != nil {
		return r, err
	}
	var removed atomic.Int64
	r, err = d.site.costs(ctx, func() (bench.Result, error) {
		r, err := bench.Load{Depth: d.v.depth, Least: int(sum(d.made) - sum(d.next)),
			Op: func(w, _ int) error {
				if d.next[w] == d.made[w] {
					return nil
				}
				n := d.next[w]
				d.next[w]++
				removed.Add(1)
				return d.do(d, ctx, d.spot(w, n))
			}}.Run(ctx, 0)
		r.Ops = int(removed.Load())
		return r, err
	})
	d.rate = r.In(bench.Rate)
	return r, err
}

func sum(list []uint64) (s uint64) {
	for _, n := range list {
		s += n
	}
	return s
}
