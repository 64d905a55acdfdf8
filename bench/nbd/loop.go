package nbd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// AideCommand is the verb of this program that runs ServeAide: the null server, or the loop.
const AideCommand = "bench-nbd"

const (
	aideNull = "null"
	aideLoop = "loop"
)

// ServeAide is a child of the bench: "null SOCKET BYTES" serves until the context ends, "loop TIME"
// works for that long and prints how many MB/s it has moved.
func ServeAide(ctx context.Context, out io.Writer, args []string) error {
	switch {
	case len(args) == 3 && args[0] == aideNull:
		size, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return err
		}
		return serveNull(ctx, args[1], size)
	case len(args) == 2 && args[0] == aideLoop:
		d, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%.3f\n", triad(ctx, d))
		return err
	}
	return errs.Newf(errs.Invalid, AideCommand, "", "%q is neither null SOCKET BYTES nor loop TIME",
		args)
}

// loopWords is the length of each of the loop's three arrays: 64 MiB, more than caches hold.
const loopWords = 8 << 20

// triad adds one array to a multiple of another into a third one, as STREAM does, over and over:
// a program whose speed is that of the memory. It returns MB/s.
func triad(ctx context.Context, d time.Duration) float64 {
	a, b, c := make([]float64, loopWords), make([]float64, loopWords), make([]float64, loopWords)
	for i := range a {
		a[i], b[i], c[i] = 1, 2, 3 // the memory is there before time is taken
	}
	begin, rounds := time.Now(), 0
	for time.Since(begin) < d && ctx.Err() == nil {
		for i := range a {
			a[i] = b[i] + 3*c[i]
		}
		b, c, a = c, a, b
		rounds++
	}
	return float64(rounds) * 3 * 8 * loopWords / time.Since(begin).Seconds() / 1e6
}

// runLoop runs it as a process.
func runLoop(ctx context.Context, self string, d time.Duration) (rate float64, err error) {
	cmd := exec.CommandContext(ctx, self, AideCommand, aideLoop, d.String())
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err == nil {
		rate, err = strconv.ParseFloat(string(bytes.TrimSpace(out)), 64)
	}
	if err == nil && rate <= 0 {
		err = errs.Newf(errs.IO, "bench nbd", AideCommand, "it printed %q", bench.Tail(out))
	}
	return rate, err
}

// The client begins before the loop and ends after it.
const (
	loopAfter = 500 * time.Millisecond
	loopExtra = time.Second
)

// besides runs the loop while the client works, and tells how many times slower it was than alone.
func (p *play) besides(ctx context.Context, c *contender, w *workload, alone float64) (l load,
	slowed float64, err error) {
	type outcome struct {
		load
		err error
	}
	served := make(chan outcome, 1)
	go func() {
		l, err := w.run(ctx, c.URI, p.opts.Bytes, p.opts.Time+loopExtra)
		served <- outcome{l, err}
	}()
	time.Sleep(loopAfter)
	rate, err := runLoop(ctx, p.opts.Self, p.opts.Time)
	o := <-served
	if err == nil {
		err = o.err
	}
	if err != nil {
		return l, 0, err
	}
	return o.load, alone / rate, nil
}
