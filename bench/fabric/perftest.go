package fabric

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// The programs of perftest that are ceilings of RDMA. Each runs as two processes, one of which
// serves the other, through the device and back.
const (
	sendLat = "ib_send_lat"
	writeBW = "ib_write_bw"
	readBW  = "ib_read_bw"
)

// Perftest says through which device they run.
type Perftest struct {
	Device string // as the host calls it, such as "mlx5_0" or "rxe0"
	Port   int    // of the device, from 1; 0: the first
}

// perftestMissing tells which of the programs are not installed: nil or errs.Unsupported.
func perftestMissing() error {
	for _, tool := range []string{sendLat, writeBW, readBW} {
		if _, err := exec.LookPath(tool); err != nil {
			return errs.Newf(errs.Unsupported, "bench fabric", "",
				"%s is not installed (Debian: package perftest)", tool)
		}
	}
	return nil
}

const (
	perftestLimit = 20 * time.Second // of one run; a device that does not answer ends with it
	readyMax      = 10 * time.Second
	itersMin      = 5     // perftest refuses less
	itersMax      = 20000 // and measures less precisely above
	itersFirst    = 20
)

// contender runs a program over and over. How many operations fit into the time it learns from the
// run before. Where depth is 0 the program chooses.
func (p *Perftest) contender(tool string, size, depth int, metric string) bench.Contender {
	var each time.Duration
	measure := func(ctx context.Context, d time.Duration) (found bench.Result, err error) {
		iters := itersFirst
		if each > 0 {
			iters = max(itersMin, min(int(d/each), itersMax))
		}
		r, err := p.run(ctx, tool, size, depth, iters)
		if err != nil {
			return found, err
		}
		each = r.each(size)
		found.Value, err = r.value(metric)
		return found, err
	}
	return bench.Contender{Provider: tool, Depth: depth, Ceiling: tool, Optional: true,
		Measure: measure}
}

// run runs a program once, as server and as client, and returns what the client prints.
func (p *Perftest) run(ctx context.Context, tool string, size, depth, iters int) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, perftestLimit)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{"-F", "-d", p.Device, "-i", strconv.Itoa(max(1, p.Port)), "-p",
		strconv.Itoa(port), "-s", strconv.Itoa(size), "-n", strconv.Itoa(iters)}
	if depth > 0 && tool != sendLat {
		args = append(args, "-t", strconv.Itoa(depth))
	}
	var said bytes.Buffer
	server := perftestCommand(ctx, tool, args)
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	out, err := perftestClient(ctx, tool, args, port, ended)
	if err != nil {
		cancel() // kills the server
	}
	<-ended
	if err != nil {
		return nil, errs.Newf(errs.IO, tool, p.Device, "%w: %s%s", err, bench.Tail(said.Bytes()),
			bench.Tail(out))
	}
	return parsePerftest(out)
}

// perftestClient runs the client once the server listens. ended gets a value when the server ends,
// and has one again when this returns.
func perftestClient(ctx context.Context, tool string, args []string, port int,
	ended chan error) ([]byte, error) {
	for limit := time.Now().Add(readyMax); !listening(port); {
		select {
		case err := <-ended:
			ended <- err
			return nil, errs.Newf(errs.IO, tool, "", "the serving side ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(limit) {
			return nil, errs.Newf(errs.TimedOut, tool, "", "the serving side does not listen")
		}
	}
	return perftestCommand(ctx, tool, append(args, "127.0.0.1")).CombinedOutput()
}

func perftestCommand(ctx context.Context, tool string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	return cmd
}

// freePort is a port that is free now. Another process may take it; the run then fails and says so.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// listening looks at the kernel's table, because these programs take the first connection for their
// client, and keep what they print until they end.
func listening(port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line) // number, local address, remote address, state
			if len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}

// report is the line of figures that a program printed, by the names above it.
type report struct {
	columns []string // as they are printed: "t_typical[usec]", "BW average[MB/sec]"
	values  []float64
}

// columnRE finds the names in the line above the figures: they are separated by blanks and have
// some inside.
func columnRE() *regexp.Regexp {
	return regexp.MustCompile(`#\w+|[\w%.]+(?: \w+)?\[[\w/]+\]`)
}

// parsePerftest finds the first line of figures.
//
//	#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
//	65536      100              42.46              35.61              0.000570
func parsePerftest(text []byte) (*report, error) {
	var r report
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "#bytes") {
			r.columns = columnRE().FindAllString(line, -1)
			continue
		}
		fields := strings.Fields(line)
		if len(r.columns) < 3 || len(fields) < len(r.columns) {
			continue
		}
		if _, err := strconv.Atoi(fields[0]); err != nil {
			continue // a warning
		}
		for _, f := range fields[:len(r.columns)] {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil || !(v >= 0 && v < 1e15) {
				return nil, errs.Newf(errs.Protocol, "perftest", "", "%q in %q", f, line)
			}
			r.values = append(r.values, v)
		}
		return &r, nil
	}
	return nil, errs.Newf(errs.Protocol, "perftest", "", "no figures in: %s", bench.Tail(text))
}

// find returns a figure and its unit.
func (r *report) find(name string) (v float64, unit string, ok bool) {
	for i, c := range r.columns {
		if rest, ok := strings.CutPrefix(c, name+"["); ok {
			return r.values[i], strings.TrimSuffix(rest, "]"), true
		}
	}
	return 0, "", false
}

// value is a figure in this package's unit. What perftest calls MB is 2^20 bytes, and its latency
// is half of a round trip.
func (r *report) value(metric string) (float64, error) {
	names := map[string]string{bench.Latency: "t_typical", bench.Bandwidth: "BW average",
		bench.Rate: "MsgRate"}
	factors := map[string]float64{"usec": 2, "MB/sec": 1 << 20 / 1e6, "MiB/sec": 1 << 20 / 1e6,
		"Gb/sec": 1e9 / 8 / 1e6, "Mpps": 1e6}
	v, unit, ok := r.find(names[metric])
	factor := factors[unit]
	if !ok || factor == 0 || v <= 0 {
		return 0, errs.Newf(errs.Protocol, "perftest", "", "no %s in %q", metric, r.columns)
	}
	return v * factor, nil
}

// each is how long one operation took, as far as that can be told; at least a nanosecond.
func (r *report) each(size int) time.Duration {
	us := 0.0
	if v, err := r.value(bench.Latency); err == nil {
		us = v
	} else if v, err := r.value(bench.Bandwidth); err == nil {
		us = float64(size) / v
	}
	return max(1, time.Duration(us*1e3))
}
