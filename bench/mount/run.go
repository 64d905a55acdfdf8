package mount

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// outcome is what a workload has done once.
type outcome struct {
	took   time.Duration
	ops    int64
	files  int64 // that it was about; 0: it is not about files
	bytes  int64
	reader time.Duration // processor time of the programs, the kernel's work for them included
}

// endMax is how long a program that is killed may take to end: it may wait for a file system.
const endMax = 10 * time.Second

// await is cmd.Wait that does not wait for ever: a program that hangs in a file system which hangs
// ends when the bench ends that.
func await(ctx context.Context, cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return errors.Join(ctx.Err(), err)
	case <-time.After(endMax):
		return errs.Newf(errs.TimedOut, "bench mount", cmd.Path, "it hangs")
	}
}

// child is a program that ends with the bench. It runs in no folder of a mount.
func child(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// program runs a program and measures it. What it prints goes to out, which may be nil.
func (e *env) program(ctx context.Context, out io.Writer, name string, args ...string) (o outcome,
	err error) {
	var problems strings.Builder
	cmd := child(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+e.home, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
	cmd.Stdout, cmd.Stderr = out, &problems
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return o, err
	}
	err = await(ctx, cmd)
	o.took = time.Since(begin)
	if err != nil {
		return o, errs.Newf(errs.IO, name, strings.Join(args, " "), "%v: %s", err,
			bench.Tail([]byte(problems.String())))
	}
	o.reader = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return o, nil
}

// worker is a child that does a Job.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func (e *env) startWorker(ctx context.Context, j Job) (*worker, error) {
	cmd := child(ctx, e.self, JobCommand)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &worker{cmd: cmd, in: in, out: json.NewDecoder(bufio.NewReader(out))}
	if err := json.NewEncoder(in).Encode(j); err != nil {
		return w, err
	}
	return w, w.err(&Done{})
}

// err reads an answer.
func (w *worker) err(d *Done) error {
	if err := w.out.Decode(d); err != nil {
		return errs.Newf(errs.IO, "bench mount", JobCommand, "it says nothing: %v", err)
	}
	if d.Error != "" {
		return errs.Newf(errs.IO, "bench mount", JobCommand, "%s", d.Error)
	}
	return nil
}

// JobCommand is the verb of this program that runs ServeJob.
const JobCommand = "bench-job"

// jobs runs jobs at once, each in a child, from when all of them are ready until the last is done.
func (e *env) jobs(ctx context.Context, all ...Job) (o outcome, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var workers []*worker
	defer func() {
		if err != nil {
			cancel() // ends those that still work
		}
		for _, w := range workers {
			_ = w.in.Close()
			_ = await(ctx, w.cmd) // it has said what matters
		}
		cancel()
	}()
	for _, j := range all {
		w, err := e.startWorker(ctx, j)
		if w != nil {
			workers = append(workers, w)
		}
		if err != nil {
			return o, err
		}
	}
	begin := time.Now()
	for _, w := range workers {
		if _, err := fmt.Fprintln(w.in); err != nil {
			return o, err
		}
	}
	for _, w := range workers {
		var d Done
		if err := w.err(&d); err != nil {
			return o, errors.Join(ctx.Err(), err)
		}
		o.ops += d.Ops
		o.bytes += d.Bytes
		o.reader += d.CPU
	}
	o.took = time.Since(begin)
	return o, nil
}
