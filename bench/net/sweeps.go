package net

import (
	"fmt"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/mover"
	"github.com/sluice-storage/sluice/msg"
)

// The figures of the papers that go over sizes, or over service times: bench paper asks for them.
// Their names end in what they go over, so that they are drawn as lines.

// The ways of progress that the message paper compares.
func progresses() []struct {
	name string
	how  msg.Progress
} {
	return []struct {
		name string
		how  msg.Progress
	}{{"", msg.ProgressAny}, {", polling", msg.ProgressPoll}, {", thread", msg.ProgressThread}}
}

// serviceSize is how much data the replies have that are worked for.
const serviceSize = 64

func (b *Bench) sweeps() []bench.Case {
	var cases []bench.Case
	for _, n := range []int{64, 512, 4 * bench.KiB, 32 * bench.KiB, 256 * bench.KiB} {
		cases = append(cases, b.latency(n))
	}
	for _, n := range []int{64, bench.KiB, 4 * bench.KiB, 16 * bench.KiB, 64 * bench.KiB,
		256 * bench.KiB} {
		cases = append(cases, b.throughput(n))
	}
	for _, n := range []int{128, bench.KiB, 4 * bench.KiB, 16 * bench.KiB, 64 * bench.KiB} {
		cases = append(cases, b.small(n))
	}
	for _, us := range []int{1, 10, 100, 1000} {
		cases = append(cases, b.service(us))
	}
	for _, n := range []int{4 * bench.KiB, 64 * bench.KiB, 256 * bench.KiB, bench.MiB,
		4 * bench.MiB} {
		cases = append(cases, b.inPieces(n))
	}
	for _, n := range []int{16 * bench.KiB, 64 * bench.KiB, 256 * bench.KiB, bench.MiB} {
		cases = append(cases, b.pinned("pinned-latency", n, 1, bench.Latency),
			b.pinned("pinned-throughput", n, 4, bench.Bandwidth))
	}
	for _, n := range []int{4 * bench.KiB, 16 * bench.KiB, 64 * bench.KiB, 256 * bench.KiB,
		bench.MiB} {
		cases = append(cases, b.registering(n))
	}
	return cases
}

// latency is a request with reply data, one at a time, in each way of progress.
func (b *Bench) latency(n int) bench.Case {
	c := newCase("latency-"+bench.SizeName(n),
		"a request and its reply with data, one at a time, by who polls", n, 1, bench.Latency)
	for _, p := range b.Providers {
		for _, how := range progresses() {
			l := Load{Op: OpGive, Size: n, Depth: 1, timed: true}
			l.args.Progress = how.how
			c.Add(b.Contender(p, p+how.name, "", l))
		}
	}
	return c
}

// throughput is many of them at once.
func (b *Bench) throughput(n int) bench.Case {
	c := newCase("throughput-"+bench.SizeName(n),
		"requests with reply data, 8 under way, by who polls", n, 8, bench.Bandwidth)
	for _, p := range b.Providers {
		for _, how := range progresses() {
			l := Load{Op: OpGive, Size: n, Depth: 8}
			l.args.Progress = how.how
			c.Add(b.Contender(p, p+how.name, "", l))
		}
	}
	return c
}

// small is request data by each protocol: within the message, through a slot that the sender owns
// at the receiver, or fetched by the receiver.
func (b *Bench) small(n int) bench.Case {
	const little, much = 64, 64 * bench.KiB
	c := newCase("small-"+bench.SizeName(n), "a request with data, one at a time, by protocol", n, 1,
		bench.Latency)
	for _, p := range b.Providers {
		for _, way := range []struct {
			name   string
			limits msg.Limits
			most   int
		}{
			{inline, msg.Limits{InlineMax: 8 * bench.KiB, EagerMax: -1}, 8 * bench.KiB},
			{"eager", msg.Limits{InlineMax: little, EagerMax: much}, much},
			{"server-driven", msg.Limits{InlineMax: little, EagerMax: -1}, much},
		} {
			if n > way.most {
				continue
			}
			l := Load{Op: OpTake, Size: n, Depth: 1, timed: true}
			l.args.Limits = way.limits
			by := b.Contender(p, p+", "+way.name, way.name, l)
			by.Ceiling = p + ", server-driven"
			c.Add(by)
		}
	}
	return c
}

// service is requests that are worked on for a time, by one worker that polls, or by several behind
// a thread that does.
func (b *Bench) service(us int) bench.Case {
	c := newCase(fmt.Sprintf("service-%d", us),
		"requests that take so many microseconds of work, 16 under way, by workers", serviceSize, 16,
		bench.Rate)
	for _, p := range b.Providers {
		for _, way := range []struct {
			name    string
			how     msg.Progress
			workers int
		}{
			{"polling, 1 worker", msg.ProgressPoll, 1},
			{"thread, 1 worker", msg.ProgressThread, 1},
			{"thread, 2 workers", msg.ProgressThread, 2},
			{"thread, 3 workers", msg.ProgressThread, 3},
			{"thread, 4 workers", msg.ProgressThread, 4},
		} {
			l := Load{Op: OpGive, Size: serviceSize, Depth: 16}
			l.args.Progress, l.args.Service, l.args.Workers = way.how, us, way.workers
			by := b.Contender(p, p+", "+way.name, "", l)
			by.Ceiling = p + ", polling, 1 worker"
			c.Add(by)
		}
	}
	return c
}

// inPieces is memory in 16 pieces of n bytes together: gathered, packed, and beside them the same
// bytes in one piece.
func (b *Bench) inPieces(n int) bench.Case {
	c := newCase("pieces-"+bench.SizeName(n),
		"16 pieces to 16 at the peer: gathered, packed, contiguous", n, 1, bench.Bandwidth)
	for _, p := range b.Providers {
		whole := p + ", contiguous"
		for _, way := range []struct {
			name   string
			shape  shape
			method mover.Method
		}{
			{whole, shape{1, n}, mover.Gather},
			{p + ", gather", shape{pieces, n / pieces}, mover.Gather},
			{p + ", pack", shape{pieces, n / pieces}, mover.Pack},
		} {
			m := &moveCase{b: b, provider: p, shape: way.shape, method: way.method}
			c.Add(b.Costs(bench.Contender{Provider: way.name, Ceiling: whole, Depth: 1,
				Optional: p == Verbs, Protocol: way.method.String(), Measure: m.measure,
				Close: m.undo.Close}, p))
		}
	}
	return c
}
