package vmtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/vmtest/frame"
)

// killWait is how long a command that was killed has to end. A process in the kernel's hands
// (a stuck verb, say) may take forever; the guest is then of no use.
const killWait = time.Minute

// Command is a script to be run in a guest.
type Command struct {
	// Script is what bash -c runs, as root. At most 1 MiB less quoting. Required.
	Script string

	// Env is added to PATH (the host's) and HOME, as NAME=value.
	Env []string

	// Dir is where it runs, a folder as the guest sees it. Default "/".
	Dir string

	// Limit is how long it may take. When it is over, the script and all that it started are
	// killed. Default 1 minute; the context may end it earlier.
	Limit time.Duration

	// OutputMax is how many bytes of each output are kept. Default 4 MiB.
	OutputMax int

	// Stdout and Stderr get a copy of all the output as it comes, if they are set. They are not
	// called concurrently, and a Write that blocks holds up all commands of the guest.
	Stdout, Stderr io.Writer
}

func (c Command) withDefaults() Command {
	if c.Dir == "" {
		c.Dir = "/"
	}
	if c.Limit == 0 {
		c.Limit = time.Minute
	}
	if c.OutputMax == 0 {
		c.OutputMax = 4 << 20
	}
	return c
}

func (c Command) validate() error {
	if c.Script == "" || c.Limit < 0 || c.OutputMax < 0 {
		return errs.Newf(errs.Invalid, "vmtest.Exec", "", "no script, or a negative limit")
	}
	return nil
}

// Result is what a command printed and how it ended.
type Result struct {
	Stdout, Stderr string
	Code           int  // the script's exit code; 128+n if signal n ended it
	Truncated      bool // an output was longer than OutputMax
}

// Err is nil for code 0, and otherwise an error that quotes the output.
func (r Result) Err() error {
	if r.Code == 0 {
		return nil
	}
	return errs.Newf(errs.IO, "vmtest.Run", "", "exit code %d\nstdout: %s\nstderr: %s", r.Code,
		end(r.Stdout), end(r.Stderr))
}

// end is the last part of an output, for error texts.
func end(s string) string {
	const most = 4 << 10
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("[%d bytes before this] %s", len(s)-most, s[len(s)-most:])
}

// Run runs a script with bash in the guest and waits for it. An exit code other than 0 is no error
// of Run; see Result.Err. Many commands may run at once. A program that the script leaves in the
// background lives on, but its output must go to a file.
func (g *Guest) Run(ctx context.Context, script string) (Result, error) {
	return g.Exec(ctx, Command{Script: script})
}

// Exec is Run with all the choices. When a limit ends the command, the error is of kind
// errs.TimedOut (or errs.Canceled) and the Result has what was printed by then. When the guest
// dies, it is of kind errs.Disconnected.
func (g *Guest) Exec(ctx context.Context, c Command) (Result, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	out := sinks{keep: c.OutputMax, stdout: c.Stdout, stderr: c.Stderr}
	return g.call(ctx, out, func(id uint32) ([]byte, error) {
		return frame.AppendJSON(nil, frame.Run, id, frame.Command{
			Script: c.Script, Env: append(guestEnv(), c.Env...), Dir: c.Dir,
		})
	})
}

// guestEnv is the host's PATH, because the guest has the host's programs.
func guestEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH") + ":" + systemFolders, "HOME=/root", "TERM=dumb"}
}

// ReadFile returns a file of the guest of at most 4 MiB. Larger ones go through the shared folder.
func (g *Guest) ReadFile(ctx context.Context, path string) ([]byte, error) {
	c := Command{Script: `exec cat -- "$FILE"`, Env: []string{"FILE=" + path}}
	res, err := g.Exec(ctx, c)
	if err == nil {
		err = res.Err()
	}
	if err == nil && res.Truncated {
		err = errs.New(errs.TooBig, "", "", nil)
	}
	return []byte(res.Stdout), errs.Wrap("vmtest.ReadFile", path, err)
}

// sync has the guest write what it holds back.
func (g *Guest) sync(ctx context.Context) error {
	_, err := g.call(ctx, sinks{}, func(id uint32) ([]byte, error) {
		return frame.Append(nil, frame.Frame{Kind: frame.Sync, ID: id}), nil
	})
	return err
}

// call sends a request and waits for its Exit.
func (g *Guest) call(ctx context.Context, out sinks, request func(id uint32) ([]byte, error)) (
	Result, error) {
	call, err := g.agent.begin(out)
	if err != nil {
		return Result{}, g.explain("vmtest.Run", err)
	}
	b, err := request(call.id)
	if err != nil {
		g.agent.forget(call)
		return Result{}, err
	}
	if err := g.agent.send(b); err != nil {
		return g.agent.forget(call), g.explain("vmtest.Run", err)
	}
	select {
	case <-call.done:
		return g.finish(call)
	case <-ctx.Done():
		return g.giveUp(ctx, call)
	}
}

func (g *Guest) finish(call *call) (Result, error) {
	switch {
	case call.err != nil:
		return call.result(), g.explain("vmtest.Run", call.err)
	case call.status.Error != "":
		return call.result(), errs.Newf(errs.IO, "vmtest.Run", g.name, "%s", call.status.Error)
	}
	return call.result(), nil
}

// giveUp kills a command whose time is over.
func (g *Guest) giveUp(ctx context.Context, call *call) (Result, error) {
	err := g.agent.send(frame.Append(nil, frame.Frame{Kind: frame.Kill, ID: call.id}))
	if err != nil {
		return g.agent.forget(call), g.explain("vmtest.Run", err)
	}
	select {
	case <-call.done:
		if call.err != nil {
			return call.result(), g.explain("vmtest.Run", call.err)
		}
		return call.result(), errs.Newf(errs.KindOf(ctx.Err()), "vmtest.Run", g.name,
			"killed, because its time was over\nstdout: %s\nstderr: %s",
			end(string(call.stdout)), end(string(call.stderr)))
	case <-time.After(killWait):
		return g.agent.forget(call), g.explain("vmtest.Run", errs.Newf(errs.TimedOut, "", "",
			"its time was over, and it cannot be killed"))
	}
}
