// Package nbd is bench nbd: a block device in memory beside nbdkit's, fio being the client of both.
// The servers are package main's.
package nbd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// DeviceBytes is the size of the block devices that are measured.
const DeviceBytes = 256 << 20

const (
	depth   = 16
	ceiling = "nbdkit memory"
)

// Cases hold one device against the other. Both are written first, so that reads find data and not
// holes.
func Cases(ctx context.Context, ours, theirs string) ([]bench.Case, error) {
	for _, uri := range []string{ours, theirs} {
		if _, err := fio(ctx, uri, "--rw=write", "--bs=1M", "--iodepth=4"); err != nil {
			return nil, err
		}
	}
	var cases []bench.Case
	for _, c := range []struct {
		name, pattern, metric string
		size                  int64
	}{
		{"sequential read", "read", bench.Bandwidth, bench.MiB},
		{"random read", "randread", bench.Rate, 4 * bench.KiB},
	} {
		cases = append(cases, bench.Case{Bench: "nbd", Name: c.name, Size: c.size, Depth: depth,
			Metric: c.metric, Ceiling: ceiling, Contenders: []bench.Contender{
				{Provider: ceiling, Measure: reads(theirs, c.pattern, c.metric, c.size)},
				{Provider: "memory export", Measure: reads(ours, c.pattern, c.metric, c.size)},
			}})
	}
	return cases, nil
}

func reads(uri, pattern, metric string, size int64) bench.Measure {
	return func(ctx context.Context, d time.Duration) (bench.Result, error) {
		side, err := fio(ctx, uri, "--rw="+pattern, fmt.Sprintf("--bs=%d", size),
			fmt.Sprintf("--iodepth=%d", depth), "--time_based",
			fmt.Sprintf("--runtime=%dms", d.Milliseconds()))
		if metric == bench.Rate {
			return bench.Result{Value: side.IOPS}, err
		}
		return bench.Result{Value: side.Bandwidth / 1e6}, err
	}
}

// report is the part of fio's that is used.
type report struct {
	Jobs []struct {
		Error int  `json:"error"`
		Read  side `json:"read"`
		Write side `json:"write"`
	} `json:"jobs"`
}

type side struct {
	Bandwidth float64 `json:"bw_bytes"`
	IOPS      float64 `json:"iops"`
}

// fio runs one job against an NBD server and returns what it moved.
func fio(ctx context.Context, uri string, args ...string) (side, error) {
	args = append([]string{"--name=bench", "--ioengine=nbd", "--uri=" + uri, "--output-format=json",
		fmt.Sprintf("--size=%d", DeviceBytes)}, args...)
	out, err := exec.CommandContext(ctx, "fio", args...).Output()
	if err != nil {
		return side{}, errs.Newf(errs.IO, "fio", uri, "%w: %s", err, bench.Tail(out))
	}
	// Notes may stand before the report.
	var r report
	text := out[max(0, bytes.IndexByte(out, '{')):]
	if err := json.Unmarshal(text, &r); err != nil || len(r.Jobs) != 1 || r.Jobs[0].Error != 0 {
		return side{}, errs.Newf(errs.IO, "fio", uri, "%v: %s", err, bench.Tail(out))
	}
	if r.Jobs[0].Read.IOPS == 0 {
		return r.Jobs[0].Write, nil
	}
	return r.Jobs[0].Read, nil
}
