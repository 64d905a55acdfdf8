package mount

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/process"
	"github.com/sluice-storage/sluice/errs"
)

// Long is how long long runs are. They are for sluice only, once: memory that grows is what they
// look for.
type Long struct {
	Files int64 // opens and closes, and entries of a directory
	Bytes int64 // that are copied
}

// The long workloads, and who has memory in their rows.
const (
	longOpen   = "long-open-close"
	longCreate = "long-directory-create"
	longList   = "long-directory-list"
	longRemove = "long-directory-remove"
	longCopy   = "long-copy"

	longMount   = "mount"
	longServers = "servers"

	longParts = 20      // in which a run is cut, to look at memory in between
	partFiles = 50      // the least of a part
	partBytes = 4 << 20 // likewise
	openFiles = 1000    // that are opened in turn
	longPart  = 1 << 30 // the least that a file which is copied over and over has, if there is room
)

func isLong(name string) bool { return strings.HasPrefix(name, "long-") }

type longWork struct {
	name, about, metric string
	run                 func(r *longRun, ctx context.Context) error
}

func longs() []longWork {
	return []longWork{
		{longOpen, "open and close, a million times, 1,000 files in turn", bench.Rate,
			(*longRun).openClose},
		{longCreate, "a directory of a million files: make them", bench.Rate, (*longRun).create},
		{longList, "list it", bench.Rate, (*longRun).list},
		{longRemove, "remove them", bench.Rate, (*longRun).remove},
		{longCopy, "copy 100 GB from one file of the mount to another", bench.Bandwidth,
			(*longRun).copy},
	}
}

// hasMount is a System that can tell its client's process from its servers'.
type hasMount interface{ MountPid() int }

// longRun is a long run.
type longRun struct {
	env
	b     *Bench
	sys   System
	sizes Long
	name  string // of the workload that runs
	rows  []bench.Row
}

// RunLong starts the system and does the long workloads that were chosen.
func RunLong(ctx context.Context, opts Options, long Long, s Starter) (rows []bench.Row,
	err error) {
	b := &Bench{opts: opts}
	if err := b.start(ctx, &s); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	r := &longRun{b: b, sys: b.running[0].System, sizes: long}
	r.env = env{self: opts.Self, home: opts.Dir, dir: filepath.Join(r.sys.Dir(), "bench-long")}
	if err := r.empty(ctx, true); err != nil {
		return nil, err
	}
	for _, w := range longs() {
		if opts.Choose != nil && !opts.Choose(w.name) {
			continue
		}
		r.name = w.name
		b.note(w.name + ": " + w.about)
		if err := w.run(r, ctx); err != nil {
			return r.rows, errs.Wrap("bench mount", w.name, err)
		}
	}
	return r.rows, r.empty(ctx, false)
}

// point notes how far it is, what the last part took, and the memory of now.
func (r *longRun) point(at int64, metric string, value float64) {
	all := process.UsageOf(r.sys.Pids()).RSS
	client := all
	if m, ok := r.sys.(hasMount); ok {
		client = process.UsageOf([]int{m.MountPid()}).RSS
	}
	row := bench.Row{Bench: "mount", Case: r.name, Provider: Sluice, Size: at, Depth: 1,
		Metric: metric, Unit: unitOf(metric), Value: value, Low: value, High: value}
	r.rows = append(r.rows, row)
	for _, who := range []struct {
		name  string
		bytes int64
	}{{longMount, client}, {longServers, all - client}} {
		mib := float64(who.bytes) / bench.MiB
		row.Provider, row.Metric, row.Unit, row.Value, row.Low, row.High = who.name, bench.Memory, "MiB",
			mib, mib, mib
		r.rows = append(r.rows, row)
	}
	r.b.note(fmt.Sprintf("%s at %d: %s %s, mount %.0f MiB, servers %.0f MiB", r.name, at,
		bench.ValueText(value), unitOf(metric), float64(client)/bench.MiB,
		float64(all-client)/bench.MiB))
}

// parts does files in parts, and notes each.
func (r *longRun) parts(ctx context.Context, j Job, metric string) error {
	total := j.Files
	for done := int64(0); done < total; {
		part := j
		part.From, part.Files = done, min(max((total+longParts-1)/longParts, partFiles), total-done)
		o, err := r.jobs(ctx, part)
		if err != nil {
			return err
		}
		done += part.Files
		r.point(done, metric, float64(o.ops)/o.took.Seconds())
	}
	return nil
}

func (r *longRun) openClose(ctx context.Context) error {
	files := Job{Kind: jobCreate, Path: r.dir, Files: min(openFiles, r.sizes.Files), Block: 4 << 10}
	if _, err := r.jobs(ctx, files); err != nil {
		return err
	}
	for done := int64(0); done < r.sizes.Files; {
		times := max(1, r.sizes.Files/longParts/files.Files)
		o, err := r.jobs(ctx, Job{Kind: jobOpen, Path: r.dir, Files: files.Files, Times: times})
		if err != nil {
			return err
		}
		done += o.ops
		r.point(done, bench.Rate, float64(o.ops)/o.took.Seconds())
	}
	files.Kind, files.Block = jobUnlink, 0
	_, err := r.jobs(ctx, files)
	return err
}

func (r *longRun) directory() Job {
	return Job{Path: r.path("directory"), Files: r.sizes.Files}
}

// need makes the directory if the workload that does was not chosen.
func (r *longRun) need(ctx context.Context) error {
	if exists(r.directory().Path) {
		return nil
	}
	name := r.name
	r.name = longCreate
	defer func() { r.name = name }()
	return r.create(ctx)
}

func (r *longRun) create(ctx context.Context) error {
	j := r.directory()
	if _, err := r.program(ctx, nil, "mkdir", j.Path); err != nil {
		return err
	}
	j.Kind = jobCreate
	return r.parts(ctx, j, bench.Rate)
}

func (r *longRun) list(ctx context.Context) error {
	if err := r.need(ctx); err != nil {
		return err
	}
	j := r.directory()
	j.Kind = jobList
	for range 2 { // what the first leaves behind, the second would add to
		o, err := r.jobs(ctx, j)
		if err != nil {
			return err
		}
		if o.ops != j.Files {
			return errs.Newf(errs.Corrupt, "list", j.Path, "%d names of %d", o.ops, j.Files)
		}
		r.point(o.ops, bench.Rate, float64(o.ops)/o.took.Seconds())
	}
	return nil
}

func (r *longRun) remove(ctx context.Context) error {
	if err := r.need(ctx); err != nil {
		return err
	}
	j := r.directory()
	j.Kind = jobUnlink
	if err := r.parts(ctx, j, bench.Rate); err != nil {
		return err
	}
	_, err := r.program(ctx, nil, "rmdir", j.Path)
	return err
}

// copy reads one file and writes another. If the disk has no room for both they are shorter, and
// copied over and over.
func (r *longRun) copy(ctx context.Context) error {
	size, err := r.copySize()
	if err != nil {
		return err
	}
	if size < r.sizes.Bytes {
		r.b.note(fmt.Sprintf("%s: the disk has no room for two files of %.1f GB: files of %.1f GB are "+
			"read and written over and over", r.name, float64(r.sizes.Bytes)/1e9, float64(size)/1e9))
	}
	from, to := r.path("from"), r.path("to")
	if _, err := r.jobs(ctx, Job{Kind: jobWrite, Path: from, Block: bench.MiB,
		Bytes: size, Seed: 1}); err != nil {
		return err
	}
	part := max((r.sizes.Bytes/longParts+bench.MiB-1)&^(bench.MiB-1), partBytes)
	for done := int64(0); done < r.sizes.Bytes; {
		var bytes int64
		begin := time.Now()
		for bytes < part && done < r.sizes.Bytes {
			at := done % size
			n := min(part-bytes, size-at, r.sizes.Bytes-done)
			if _, err := r.jobs(ctx, Job{Kind: jobCopy, Path: from, To: to, Block: bench.MiB, From: at,
				Bytes: n}); err != nil {
				return err
			}
			bytes, done = bytes+n, done+n
		}
		r.point(done, bench.Bandwidth, float64(bytes)/time.Since(begin).Seconds()/1e6)
	}
	_, err = r.jobs(ctx, Job{Kind: jobCheck, Path: to, Block: bench.MiB,
		Bytes: min(size, r.sizes.Bytes)})
	return err
}

// copySize is how large the two files are: a quarter of what is free at most, because what is
// overwritten is not given back at once.
func (r *longRun) copySize() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.home, &st); err != nil {
		return 0, err
	}
	free := int64(st.Bavail) * st.Bsize
	size := min(r.sizes.Bytes, free/4&^(bench.MiB-1))
	if size < min(longPart, r.sizes.Bytes) {
		return 0, errs.Newf(errs.NoSpace, "bench mount", r.home, "%d bytes are free", free)
	}
	return size, nil
}

func exists(name string) bool {
	var st unix.Stat_t
	return unix.Lstat(name, &st) == nil
}
