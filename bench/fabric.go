package bench

import (
	"errors"
	"fmt"
	"os"

	"github.com/sluice-storage/sluice/fabric"
)

// Fabric is bench fabric: what the providers of package fabric reach between two processes, beside
// what the same sockets and devices do without them.
type Fabric struct {
	Providers []Provider
	Plain     string    // where the peer runs ServePlain
	CPU       string    // where it runs ServeCPU
	Perftest  *Perftest // the ceilings of providers with RDMA; nil: they have none
	Quick     bool      // variants that are not asked for by name are left out

	file *os.File
}

// Operations under way at once.
const (
	writeDepth = 16
	bulkDepth  = 64 // posted in chains of bulkChain, of which the last is signalled
	bulkChain  = 16
	rateDepth  = 32
	pieces     = 16 // that a gathering write has
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// fileBytes is the size of the file that is written from: the largest of its cases.
const fileBytes = mib

// Cases are what is measured, sweep by sweep. Close ends what they need.
func (f *Fabric) Cases() ([]Case, error) {
	if err := f.makeFile(); err != nil {
		return nil, err
	}
	var cases []Case
	for _, size := range []int{8, 64, 512, 4 * kib, 64 * kib} {
		cases = append(cases, f.rtt(size))
	}
	for _, size := range []int{4 * kib, 64 * kib, mib, 4 * mib} {
		cases = append(cases, f.write(size))
	}
	for _, size := range []int{4 * kib, 64 * kib, mib, 4 * mib} {
		cases = append(cases, f.read(size))
	}
	cases = append(cases, f.rate(), f.send(4*kib))
	for _, piece := range []int{4 * kib, 64 * kib} {
		cases = append(cases, f.gather(piece))
	}
	for _, size := range []int{64 * kib, mib} {
		cases = append(cases, f.fromFile(size))
	}
	kept := cases[:0]
	for _, c := range cases {
		if len(c.contenders()) > 0 {
			kept = append(kept, c)
		}
	}
	return kept, nil
}

// makeFile makes the file that writes are sent from, if any provider can do that.
func (f *Fabric) makeFile() error {
	if f.file != nil {
		return nil
	}
	for i := range f.Providers {
		if !f.Providers[i].Domain.Caps().FileRange {
			continue
		}
		file, err := os.CreateTemp("", "sluice-bench")
		if err != nil {
			return err
		}
		f.file = file
		_, err = file.Write(touched(fileBytes))
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// Close ends what the cases needed.
func (f *Fabric) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// start is a case with its ceilings: plain TCP for those without RDMA, perftest for the others.
func (f *Fabric) start(name string, size, depth int, metric string) Case {
	return Case{Bench: "fabric", Name: name, Size: int64(size), Depth: depth, Metric: metric}
}

func (f *Fabric) ceilings(c *Case, plain func() Contender, rdma func(*Perftest) Contender) {
	sockets, devices := false, false
	for i := range f.Providers {
		if f.Providers[i].RDMA {
			devices = true
		} else {
			sockets = true
		}
	}
	if sockets {
		plainly := plain()
		plainly.Ceiling = PlainTCP
		c.Others = append(c.Others, plainly)
	}
	if devices && f.Perftest != nil && rdma != nil {
		c.Others = append(c.Others, rdma(f.Perftest))
	}
}

// against names what a provider is held against.
func (p *Provider) against(tool string) string {
	if p.RDMA {
		return tool
	}
	return PlainTCP
}

func (f *Fabric) rtt(size int) Case {
	c := f.start("rtt-"+sizeName(size), size, 1, Latency)
	c.First = size == 8
	f.ceilings(&c, func() Contender { return plainPings(f.Plain, size) },
		func(t *Perftest) Contender { return t.contender(sendLat, size, 1, Latency) })
	for i := range f.Providers {
		p := &f.Providers[i]
		ours := p.pings(size, false)
		ours.Ceiling = p.against(sendLat)
		c.Others = append(c.Others, ours)
		if size == 8 {
			polls := p.pings(size, true)
			polls.Provider, polls.Ceiling = p.Name+", polling", ours.Ceiling
			c.Others = append(c.Others, polls)
		}
	}
	return c
}

func (f *Fabric) write(size int) Case {
	c := f.start("write-"+sizeName(size), size, writeDepth, Bandwidth)
	named := size == 64*kib || size == mib
	c.First = named
	mine, peers := Meter(OwnCPU), PeerMeter(f.CPU)
	metered := func(c Contender, s stream) Contender {
		c.Measure = s.bandwidth
		if size == mib {
			c = meter(c, s, mine, peers)
		}
		return c
	}
	f.ceilings(&c, func() Contender {
		return metered(Contender{Provider: PlainTCP}, plainWrites(f.Plain, size))
	}, func(t *Perftest) Contender { return t.contender(writeBW, size, 0, Bandwidth) })
	for i := range f.Providers {
		p := &f.Providers[i]
		ours, s := p.transfers(transfer{op: fabric.OpWrite, size: size, depth: writeDepth})
		ours.Ceiling = p.against(writeBW)
		c.Others = append(c.Others, metered(ours, s))
		if f.Quick && !named {
			continue
		}
		bulk, s := p.transfers(transfer{
			op: fabric.OpWrite, size: size, depth: bulkDepth, chain: bulkChain,
		})
		bulk.Provider, bulk.Ceiling, bulk.Measure = p.Name+", bulk", ours.Ceiling, s.bandwidth
		c.Others = append(c.Others, bulk)
	}
	return c
}

func (f *Fabric) read(size int) Case {
	c := f.start("read-"+sizeName(size), size, writeDepth, Bandwidth)
	c.First = size == 64*kib || size == mib
	f.ceilings(&c, func() Contender {
		return Contender{Provider: PlainTCP, Measure: plainReads(f.Plain, size).bandwidth}
	}, func(t *Perftest) Contender { return t.contender(readBW, size, 0, Bandwidth) })
	for i := range f.Providers {
		p := &f.Providers[i]
		ours, s := p.transfers(transfer{op: fabric.OpRead, size: size, depth: writeDepth})
		ours.Ceiling, ours.Measure = p.against(readBW), s.bandwidth
		c.Others = append(c.Others, ours)
	}
	return c
}

// rate is how many of the smallest writes there are in a second.
func (f *Fabric) rate() Case {
	const size = 8
	c := f.start("rate-8", size, rateDepth, Rate)
	f.ceilings(&c, func() Contender {
		return Contender{Provider: PlainTCP, Measure: plainRequests(f.Plain, size, rateDepth).rate}
	}, func(t *Perftest) Contender { return t.contender(writeBW, size, rateDepth, Rate) })
	for i := range f.Providers {
		p := &f.Providers[i]
		ours, s := p.transfers(transfer{
			op: fabric.OpWrite, size: size, depth: rateDepth, inline: true,
		})
		ours.Ceiling, ours.Measure = p.against(writeBW), s.rate
		c.Others = append(c.Others, ours)
	}
	return c
}

// send streams messages. Perftest has no ceiling that flows back credits, so devices have none.
func (f *Fabric) send(size int) Case {
	c := f.start("send-"+sizeName(size), size, recvDepth, Bandwidth)
	f.ceilings(&c, func() Contender {
		return Contender{Provider: PlainTCP, Measure: plainWrites(f.Plain, size).bandwidth}
	}, nil)
	for i := range f.Providers {
		p := &f.Providers[i]
		ours, s := p.sends(size)
		ours.Ceiling, ours.Measure = p.against("nothing"), s.bandwidth
		c.Others = append(c.Others, ours)
	}
	return c
}

// gather holds writes of many pieces against contiguous ones of the same provider.
func (f *Fabric) gather(piece int) Case {
	size := pieces * piece
	c := f.start(fmt.Sprintf("gather-%dx%s", pieces, sizeName(piece)), size, writeDepth, Bandwidth)
	for i := range f.Providers {
		p := &f.Providers[i]
		if p.Domain.Caps().MaxSge < pieces {
			continue
		}
		whole := transfer{op: fabric.OpWrite, size: size, depth: writeDepth}
		parts := whole
		parts.pieces = pieces
		f.pair(&c, p, p.Name+", contiguous", whole, parts)
	}
	return c
}

// fromFile holds writes from a file against those from memory.
func (f *Fabric) fromFile(size int) Case {
	c := f.start("file-"+sizeName(size), size, writeDepth, Bandwidth)
	for i := range f.Providers {
		p := &f.Providers[i]
		if !p.Domain.Caps().FileRange {
			continue
		}
		memory := transfer{op: fabric.OpWrite, size: size, depth: writeDepth}
		file := memory
		file.file = f.file
		f.pair(&c, p, p.Name+", memory", memory, file)
	}
	return c
}

// pair adds a provider's own ceiling and what is held against it.
func (f *Fabric) pair(c *Case, p *Provider, ceiling string, plain, ours transfer) {
	a, s := p.transfers(plain)
	a.Provider, a.Ceiling, a.Measure = ceiling, ceiling, s.bandwidth
	b, s := p.transfers(ours)
	b.Ceiling, b.Measure = ceiling, s.bandwidth
	c.Others = append(c.Others, a, b)
}

// sizeName is a size as the names of cases have it: 8, 4k, 1m.
func sizeName(n int) string {
	switch {
	case n >= mib && n%mib == 0:
		return fmt.Sprintf("%dm", n/mib)
	case n >= kib && n%kib == 0:
		return fmt.Sprintf("%dk", n/kib)
	}
	return fmt.Sprint(n)
}
