package nbd

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/bench"
)

// workload is what the client does: a column of a scene.
type workload struct {
	random, write bool
	size          int64
	depth, conns  int
	flush         int   // FLUSH after so many writes; 0: never
	rate          int64 // bytes a second, at most; 0: as many as can be
	beside        bool  // a memory-bound loop runs meanwhile
	usual         bool  // is measured unless others are chosen
}

const (
	flushEach = 16

	// besideRate is what every server is asked for while a loop runs beside it: a fast one must not
	// be blamed for doing more.
	besideRate = 400 << 20
	besideName = "beside"
)

// matrix is all of them: sequential and random, reads and writes, 4 KiB to 4 MiB, depths of 1 to
// 32, 1 to 4 connections; small writes with flushes in between; and a loop beside large reads.
func matrix() (all []workload) {
	for _, write := range []bool{false, true} {
		for _, random := range []bool{false, true} {
			for _, size := range []int64{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20} {
				for _, depth := range []int{1, 2, 4, 8, 16, 32} {
					for _, conns := range []int{1, 2, 4} {
						w := workload{random: random, write: write, size: size, depth: depth, conns: conns}
						all = append(all, w)
						if w.flush = flushEach; write && random && size == 4<<10 {
							all = append(all, w)
						}
					}
				}
			}
		}
	}
	return append(all, workload{size: 1 << 20, depth: 4, conns: 1, rate: besideRate, beside: true})
}

// pattern is fio's word.
func (w *workload) pattern() string {
	text := "read"
	if w.write {
		text = "write"
	}
	if w.random {
		text = "rand" + text
	}
	return text
}

// name says everything: randwrite-4k-d16-c4-flush. One connection is not mentioned.
func (w *workload) name() string {
	if w.beside {
		return besideName
	}
	text := fmt.Sprintf("%s-%s-d%d", w.pattern(), bench.SizeName(int(w.size)), w.depth)
	if w.conns > 1 {
		text += fmt.Sprintf("-c%d", w.conns)
	}
	if w.flush > 0 {
		text += "-flush"
	}
	return text
}

func (w *workload) about() string {
	if w.beside {
		return fmt.Sprintf("what a memory-bound loop loses to %d MiB/s of large reads", w.rate>>20)
	}
	order, what := "sequential", "reads"
	if w.random {
		order = "random"
	}
	if w.write {
		what = "writes"
	}
	text := fmt.Sprintf("%s %s of %s, %d under way", order, what, bench.SizeText(w.size), w.depth)
	if w.conns > 1 {
		text += fmt.Sprintf(" on each of %d connections", w.conns)
	}
	if w.flush > 0 {
		text += fmt.Sprintf(", a flush after %d", w.flush)
	}
	return text
}

// metric is a rate for what is small, a bandwidth for what is large.
func (w *workload) metric() string {
	switch {
	case w.beside:
		return bench.SlowDown
	case w.size < 64<<10:
		return bench.Rate
	}
	return bench.Bandwidth
}

// fits tells whether a column means anything for a server: the null server keeps nothing, so that
// flushing it says nothing.
func (w *workload) fits(k Kind) bool { return k != Ceiling || w.flush == 0 }

// run has the client do it.
func (w *workload) run(ctx context.Context, uri string, bytes int64, d time.Duration) (load,
	error) {
	args := []string{"--rw=" + w.pattern(), fmt.Sprintf("--bs=%d", w.size),
		fmt.Sprintf("--iodepth=%d", w.depth), fmt.Sprintf("--numjobs=%d", w.conns), "--time_based",
		fmt.Sprintf("--runtime=%dms", d.Milliseconds())}
	if w.flush > 0 {
		args = append(args, fmt.Sprintf("--fsync=%d", w.flush))
	}
	if w.rate > 0 {
		args = append(args, fmt.Sprintf("--rate=%d", w.rate))
	}
	if w.conns > 1 && !w.random { // each connection has a part of its own
		part := bytes / int64(w.conns)
		args = append(args, fmt.Sprintf("--offset_increment=%d", part))
		bytes = part
	}
	return fio(ctx, uri, bytes, args...)
}

// value is the figure of a measurement.
func (m *measured) value(metric string) float64 {
	switch metric {
	case bench.SlowDown:
		return m.slowed
	case bench.Rate:
		return m.iops
	}
	return m.bandwidth / 1e6
}

// text is for those who watch.
func (m *measured) text(w *workload) string {
	return fmt.Sprintf("%s %s, processor %.2f s + %.2f s", bench.ValueText(m.value(w.metric())),
		bench.Unit(w.metric()), m.server.Seconds(), m.client.Seconds())
}
