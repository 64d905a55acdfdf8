package net

import (
	"github.com/sluice-storage/sluice/bench"
)

// The ways in which tcp keeps others out, as providers that Open knows. Where peers prove that they
// know a secret it is as in the clear: that is done once, when they connect.
const (
	Frames = "tcp+frames" // certificates, and a tag on every record: authenticated plaintext
	TLS    = "tcp+tls"    // certificates, everything encrypted
)

// Securities are the providers of SecurityCases.
func Securities() []string { return []string{TCP, Frames, TLS} }

const (
	secureRTT  = "secure-rtt-8"
	secureRead = "secure-bulk-1m"
)

// SecurityCases compare what security costs: the same requests in the clear, authenticated and
// encrypted, in turns. Ratios are against the first.
func (b *Bench) SecurityCases() []bench.Case {
	ping := Load{Op: OpEcho, Depth: 1}
	var cases []bench.Case
	for _, k := range []struct {
		name, about, metric string
		size                int
		load                Load
	}{
		{secureRTT, "a request with 8 bytes and its answer, one at a time", bench.Latency, PingBytes,
			ping},
		{"secure-rate-4k", "requests with 4 KiB of reply data, 32 under way", bench.Rate, rateSize,
			Rate()},
		{secureRead, "requests with 1 MiB of reply data, 4 under way", bench.Bandwidth, bulkSize,
			Bulk(OpGive)},
		{secureRead + "-out", "requests with 1 MiB of request data, 4 under way", bench.Bandwidth,
			bulkSize, Bulk(OpTake)},
	} {
		c := newCase(k.name, k.about, k.size, k.load.Depth, k.metric)
		c.First = true
		for _, p := range b.Providers {
			by := b.Contender(p, p, "", k.load)
			by.Ceiling = TCP
			c.Add(by)
		}
		cases = append(cases, c)
	}
	return bench.Possible(cases)
}

// SecurityPromises are what is asked of them.
func SecurityPromises() []bench.Promise {
	return []bench.Promise{
		{Name: "authenticated plaintext: 1 MiB reads against plain", Bound: bench.Least, Limit: 0.90,
			Unit: bench.Times, Of: bench.Ratio(secureRead, Frames)},
	}
}

// SecurityFigures are the names of the cases that figures are made of.
func SecurityFigures() []string { return []string{secureRTT, secureRead} }
