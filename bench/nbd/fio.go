package nbd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// load is what the client has done.
type load struct {
	bytes           int64
	bandwidth, iops float64
	client          time.Duration // processor time of the client while it did it
}

// report is the part of fio's that is used.
type report struct {
	Jobs []job `json:"jobs"`
}

type job struct {
	Error   int     `json:"error"`
	User    float64 `json:"usr_cpu"` // of a hundred
	System  float64 `json:"sys_cpu"`
	Runtime float64 `json:"job_runtime"` // ms
	Read    side    `json:"read"`
	Write   side    `json:"write"`
}

type side struct {
	Bytes     int64   `json:"io_bytes"`
	Bandwidth float64 `json:"bw_bytes"`
	IOPS      float64 `json:"iops"`
}

// fio runs a job against an NBD server, a process of its own, and returns what it did.
func fio(ctx context.Context, uri string, size int64, args ...string) (load, error) {
	args = append([]string{"--name=bench", "--ioengine=nbd", "--uri=" + uri, "--output-format=json",
		"--thread", "--randrepeat=0", "--norandommap", fmt.Sprintf("--size=%d", size)}, args...)
	cmd := exec.CommandContext(ctx, "fio", args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if err == nil {
		var l load
		if l, err = parseReport(out.Bytes()); err == nil {
			return l, nil
		}
	}
	return load{}, errs.Newf(errs.IO, "fio", uri, "%w: %s %s", err, bench.Tail(out.Bytes()),
		bench.Tail(problems.Bytes()))
}

// parseReport adds up the jobs, which are connections.
func parseReport(text []byte) (sum load, err error) {
	var r report
	// Notes may stand before the report.
	if err := json.Unmarshal(text[max(0, bytes.IndexByte(text, '{')):], &r); err != nil {
		return sum, err
	}
	if len(r.Jobs) == 0 {
		return sum, errs.Newf(errs.IO, "fio", "", "no jobs")
	}
	for _, j := range r.Jobs {
		if j.Error != 0 {
			return sum, errs.Wrap("fio", "", syscall.Errno(j.Error))
		}
		for _, s := range []side{j.Read, j.Write} {
			sum.bytes += s.Bytes
			sum.bandwidth += s.Bandwidth
			sum.iops += s.IOPS
		}
		sum.client += time.Duration((j.User + j.System) / 100 * j.Runtime * float64(time.Millisecond))
	}
	if sum.bytes == 0 { // fio ends well when it could not connect
		return sum, errs.Newf(errs.IO, "fio", "", "it has done nothing")
	}
	return sum, nil
}

// fill writes all of a device, so that reads find data and not holes.
func fill(ctx context.Context, uri string, size int64) error {
	_, err := fio(ctx, uri, size, "--rw=write", "--bs=1M", "--iodepth=4", "--end_fsync=1")
	return err
}

// socketURI is how clients reach the device x behind a socket.
func socketURI(path string) string {
	return "nbd+unix:///" + ExportName + "?socket=" + strings.ReplaceAll(path, "%", "%25")
}

// ExportName is what every server calls its device.
const ExportName = "x"
