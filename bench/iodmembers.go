package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/iod"
)

// How fast throttled members are together.
const (
	paceSlow  = "slow"  // each member as fast as a disk of old: more members are faster
	paceNet   = "net"   // all members together as fast as the network
	paceLarge = "large" // the same, with the largest requests that there are
)

const (
	memberRate  = 200 * mib // of a slow member, in bytes a second
	memberBytes = mib       // of one request: every member has a part of it
)

// memberSize is how large requests are.
func memberSize(pace string) int {
	if pace == paceLarge {
		return iod.TransferMax
	}
	return memberBytes
}

// atNetPace makes the members of a server together as fast as its network. Where that is tcp, the
// kernel paces the server's sockets to what four slow members do: two cores have the time to move
// that much from disks and through sockets at once, as hosts with faster networks have. Shared
// memory cannot be paced; its members are in memory, faster than any disk here.
func atNetPace(s *IodSpec, provider string) {
	rate := int64(4 * memberRate)
	if s.Memory = provider == shmProvider; s.Memory {
		rate = 4096 * mib
	} else {
		s.Pace = rate
	}
	s.Rate = rate / int64(s.Members)
}

// memberModes are the ways to serve one large request.
func memberModes() []mode {
	direct := func(streams uint8) iod.How { return iod.How{Mode: iod.Direct, Streams: streams} }
	return []mode{{"plain", direct(iod.StreamsPlain)}, {"single", direct(iod.StreamsSingle)},
		{"multiple", direct(iod.StreamsMultiple)}}
}

// members is one large request after the other from throttled members.
func (b *Iod) members(pace string, members, depth int) Case {
	size := memberSize(pace)
	c := iodCase(fmt.Sprintf("members-%s-%d-d%d", pace, members, depth), size, depth, Bandwidth,
		fmt.Sprintf("direct reads of %s from throttled members: %d, under way: %d; plain, single and "+
			"multiple streams", sizeText(int64(size)), members, depth))
	c.First = pace == paceLarge && members == 4 && depth != 2
	for _, p := range b.Providers {
		s := IodSpec{Kind: IodUnifier, Bytes: b.data(iodSmall), Cache: b.data(iodDirect),
			Members: members, Rate: memberRate, Cold: true}
		if pace != paceSlow {
			atNetPace(&s, p)
		}
		for _, m := range memberModes() {
			l := iodLoad{size: size, depth: depth, how: m.how}
			c.Others = append(c.Others, b.caller(s, p, p+", "+m.name, c.Metric, p+", plain", l))
		}
	}
	return c
}

// LoopAlone is a memory-bound loop that nothing disturbs.
const LoopAlone = "loop alone"

// beside is a memory-bound loop in a third process, and how much each way to serve the same load
// slows it down.
func (b *Iod) beside() Case {
	c := iodCase("beside", 256*kib, iodDepth, Bandwidth,
		"a loop that copies memory, alone and beside a server that moves "+
			sizeText(spinePace)+" a second in each mode")
	c.Others = append(c.Others, Contender{Provider: LoopAlone, Ceiling: LoopAlone,
		Measure: func(ctx context.Context, d time.Duration) (float64, error) {
			return loopFor(ctx, b.Loop, d)
		}})
	for _, p := range b.Providers {
		for _, w := range b.besideWays() {
			w.load.size, w.load.depth, w.load.pace = 256*kib, iodDepth, spinePace
			c.Others = append(c.Others, b.disturbed(w, p))
		}
	}
	return c
}

// besideWay is a server and what is asked of it.
type besideWay struct {
	name string
	spec IodSpec
	load iodLoad
}

func (b *Iod) besideWays() []besideWay {
	hot := IodSpec{Kind: IodUnifier, Bytes: b.data(iodCached), Cache: b.data(iodCache)}
	cold := IodSpec{Kind: IodUnifier, Bytes: b.Bytes, Cache: b.data(iodDirect), Cold: true}
	return []besideWay{
		{name: "normal", spec: IodSpec{Kind: IodNormal, Bytes: b.data(iodCached)}},
		{name: "mmap", spec: IodSpec{Kind: IodMmap, Bytes: b.data(iodCached)}},
		{name: "unifier, cached", spec: hot},
		{name: "unifier, cold", spec: cold},
		{name: "unifier, direct", spec: cold, load: iodLoad{how: iod.How{Mode: iod.Direct}}},
	}
}

// disturbed is the loop beside a load.
func (b *Iod) disturbed(w besideWay, provider string) Contender {
	if w.spec.Kind != IodUnifier {
		w.load.how.NoSums = true
	}
	call := &iodCaller{site: b.site(w.spec), provider: provider, load: w.load}
	var moves float64
	return Contender{Provider: provider + ", " + w.name, Ceiling: LoopAlone, Depth: iodDepth,
		Close: call.close,
		Measure: func(ctx context.Context, d time.Duration) (float64, error) {
			if err := call.open(ctx); err != nil {
				return 0, err
			}
			type result struct {
				m   moved
				err error
			}
			over := make(chan result, 1)
			go func() {
				m, err := call.stream(ctx, d)
				over <- result{m, err}
			}()
			v, err := loopFor(ctx, b.Loop, d)
			r := <-over
			if err == nil {
				err = r.err
			}
			if err == nil {
				moves = perSecond(r.m.bytes, r.m.took)
			}
			return v, err
		},
		Extras: func() []Extra { return []Extra{{BesideLoad, moves}} }}
}
