package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// DeviceBytes is the size of the block devices that are measured.
const DeviceBytes = 256 << 20

// fioResult is the part of fio's report that is used.
type fioResult struct {
	Jobs []struct {
		Error int     `json:"error"`
		Read  fioSide `json:"read"`
		Write fioSide `json:"write"`
	} `json:"jobs"`
}

type fioSide struct {
	Bandwidth float64 `json:"bw_bytes"`
	IOPS      float64 `json:"iops"`
}

// runFio runs one job against an NBD server and returns what it moved.
func runFio(ctx context.Context, uri string, args ...string) (fioSide, error) {
	args = append([]string{"--name=bench", "--ioengine=nbd", "--uri=" + uri, "--output-format=json",
		fmt.Sprintf("--size=%d", DeviceBytes)}, args...)
	out, err := exec.CommandContext(ctx, "fio", args...).Output()
	if err != nil {
		return fioSide{}, errs.Newf(errs.IO, "fio", uri, "%w: %s", err, tail(out))
	}
	// Notes may stand before the report.
	var r fioResult
	report := out[max(0, bytes.IndexByte(out, '{')):]
	if err := json.Unmarshal(report, &r); err != nil || len(r.Jobs) != 1 || r.Jobs[0].Error != 0 {
		return fioSide{}, errs.Newf(errs.IO, "fio", uri, "%v: %s", err, tail(out))
	}
	side := r.Jobs[0].Read
	if side.IOPS == 0 {
		side = r.Jobs[0].Write
	}
	return side, nil
}

func tail(text []byte) []byte { return text[max(0, len(text)-500):] }

// FillDevice writes all of a device once, so that reads find data and not holes.
func FillDevice(ctx context.Context, uri string) error {
	_, err := runFio(ctx, uri, "--rw=write", "--bs=1M", "--iodepth=4")
	return err
}

// DeviceRead measures reads with fio, the same client for everybody: sequential for Bandwidth,
// random for Rate.
func DeviceRead(provider, uri, metric string, size int64, depth int) Contender {
	pattern := "read"
	if metric == Rate {
		pattern = "randread"
	}
	return Contender{Provider: provider, Measure: func(ctx context.Context,
		d time.Duration) (float64, error) {
		side, err := runFio(ctx, uri, "--rw="+pattern, fmt.Sprintf("--bs=%d", size),
			fmt.Sprintf("--iodepth=%d", depth), "--time_based",
			fmt.Sprintf("--runtime=%dms", d.Milliseconds()))
		if metric == Rate {
			return side.IOPS, err
		}
		return side.Bandwidth / 1e6, err
	}}
}
