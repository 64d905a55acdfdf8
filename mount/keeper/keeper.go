// Package keeper keeps a mount alive over the deaths of the process that serves it. The keeper is a
// process that does nothing else: it has the connection to the kernel open and the memory in which
// the serving process notes what must outlive it (mount/state), and starts that process, again and
// again. Programs that use the mount wait while there is none. When it cannot be had again within a
// time the keeper takes the mount away, so that nobody waits for ever.
//
// It does not serve, knows nothing of files, and handles no signals: package main does.
//
// Read keeper.go first (the keeper), then life.go (one process), and link.go (what the two say to
// each other, and the side of the process that serves).
package keeper

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/mount"
	"github.com/sluice-storage/sluice/mount/state"
)

// Options of a keeper.
type Options struct {
	Dir   string        // where the file system is mounted; required
	Mount mount.Options // as the process that serves has them
	Name  string        // of the client, over all processes that serve; required

	// Path is the program that serves, Args its arguments and Env its environment. A program that
	// was replaced is what the next process runs; if that does not come to serve, the keeper's own
	// program takes turns with it. Required.
	Path string
	Args []string
	Env  []string

	// GiveUp is how long the mount may be without a process that serves it before it is taken away.
	// Default 60 s.
	GiveUp time.Duration

	// StopMax is how long the process that serves may take to end when the keeper is to end: it
	// closes what is open and tells the service what it has not told, and is killed then. That takes
	// a few requests to servers that answer; one that hangs, or waits for servers that are away, must
	// not keep those who unmount, or shut the host down. Before that the kernel's side takes up to
	// 10 s: 2 to leave, 3 to flush (mount.Connection.Unmount), insistMax. With 8 s all is over before
	// a supervisor gives up, which takes 20 s (sluice up), and would leave a process behind that is
	// stopped. Default 8 s.
	StopMax time.Duration

	// EndMax is the same for a mount that somebody else has unmounted: nobody waits for it, so that
	// the process may wait for servers as long as it does in service (60 s by default), and a bit.
	// Default 75 s.
	EndMax time.Duration

	// HandMax is how long a process may take to hand over, before those who have asked for it hear
	// that it does not. It gives up by itself after 60 s, and says so. Default 90 s.
	HandMax time.Duration

	// Upgrades are requests to replace the process that serves by one of the program that is
	// installed now, with nothing lost. Each is answered once. Default: none come.
	Upgrades <-chan chan<- error

	// Ready is called when the mount is served for the first time, with what that process has to say.
	Ready func(text string)

	Logger *slog.Logger // default: discard
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		time    *time.Duration
		usually time.Duration
	}{{&o.GiveUp, 60 * time.Second}, {&o.StopMax, 8 * time.Second}, {&o.EndMax, 75 * time.Second},
		{&o.HandMax, 90 * time.Second}} {
		if *d.time == 0 {
			*d.time = d.usually
		}
	}
	if o.Ready == nil {
		o.Ready = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o *Options) validate() error {
	if o.Dir == "" || o.Name == "" || o.Path == "" ||
		min(o.GiveUp, o.StopMax, o.EndMax, o.HandMax) < 0 {
		return errs.Newf(errs.Invalid, "keeper.Options", "",
			"Dir, Name and Path are required, and a time is not negative")
	}
	return nil
}

// How soon a process is started again: at once if the last one came to serve, and with pauses that
// double if not. insistMax is how long the kernel may take to let go of a mount that was taken
// away, before it is taken from other name spaces of mounts, too.
const (
	pauseFirst = 50 * time.Millisecond
	pauseMost  = 2 * time.Second
	insistMax  = 5 * time.Second
)

// keeper is the state of Run. It belongs to one goroutine, which is also the one that starts
// processes: the kernel tells a child of the death of the thread that started it.
type keeper struct {
	opts  Options
	file  *os.File     // the memory
	table *state.Table // the same, mapped
	conn  *mount.Connection
	gone  chan struct{} // closed when the kernel has let go of the connection
	stop  chan struct{} // ends who waits for that

	watching sync.WaitGroup // for them

	life     *life // nil: there is no process
	served   bool  // some process has ever served
	failures int   // processes in a row that did not come to serve
	failure  error // what the last of them said
	deadline <-chan time.Time
	again    <-chan time.Time // when the next process is started
	waiting  []chan<- error   // for an upgrade
	handed   <-chan time.Time // when a process that is to hand over is given up
}

// Run keeps a mount until it is unmounted, by anybody, or ctx ends, which unmounts it; both are no
// error. It returns when the last process has ended.
func Run(ctx context.Context, opts Options) error {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k := &keeper{opts: opts, gone: make(chan struct{}), stop: make(chan struct{})}
	var err error
	if k.file, err = state.Create(opts.Name); err != nil {
		return err
	}
	defer k.file.Close()
	if k.table, err = state.Open(k.file); err != nil {
		return err
	}
	defer k.table.Close()
	err = k.run(ctx)
	close(k.stop)
	k.watching.Wait() // it looks at what is closed below
	k.answer(errs.New(errs.Closed, "keeper", opts.Dir, nil))
	if k.conn != nil {
		_ = k.conn.File.Close()
	}
	return err
}

func (k *keeper) run(ctx context.Context) error {
	if err := k.start(); err != nil {
		return err
	}
	for {
		over, err := k.step(ctx)
		if over {
			return err
		}
	}
}

// step waits for something to happen, and sees to it.
func (k *keeper) step(ctx context.Context) (over bool, err error) {
	said, ended := k.life.channels()
	select {
	case <-ctx.Done():
		return true, k.unmount()
	case <-k.gone:
		return true, k.finish()
	case to := <-k.opts.Upgrades:
		k.upgrade(to)
	case m, ok := <-said:
		if ok {
			return k.heard(&m)
		}
		k.life.said = nil // it is about to end
	case how := <-ended:
		return k.ended(how)
	case <-k.again:
		k.again = nil
		if err := k.start(); err != nil {
			k.failed(err)
		}
	case <-k.handed:
		k.handed = nil
		k.answer(errs.Newf(errs.TimedOut, "keeper", k.opts.Dir, "it did not hand over"))
	case <-k.deadline:
		return true, k.giveUp()
	}
	return false, nil
}

// start starts a process that serves.
func (k *keeper) start() error {
	path := k.opts.Path
	if k.failures%2 == 1 {
		path = "/proc/self/exe" // what is installed now does not come to serve
	}
	l, err := begin(path, k.file, &k.opts)
	if err != nil {
		return errs.Wrap("keeper.start", path, err)
	}
	k.life = l
	k.opts.Logger.Info("a process to serve the mount was started", "dir", k.opts.Dir,
		"pid", l.cmd.Process.Pid)
	return nil
}

// heard sees to what the process says.
func (k *keeper) heard(m *message) (over bool, err error) {
	switch m.State {
	case stateConnected:
		if err := k.connect(); err != nil {
			k.life.kill()
			<-k.life.ended
			return true, err
		}
		if err := k.life.sendFile(&message{State: stateServe}, k.conn.File); err != nil {
			k.opts.Logger.Error("the process does not listen", "err", err)
			k.life.kill()
		}
	case stateServing:
		if k.conn == nil { // what would it serve
			k.failure = errs.Newf(errs.Protocol, "keeper", k.opts.Dir, "%q at this moment", m.State)
			k.life.kill()
			break
		}
		k.life.serves, k.failures, k.failure, k.deadline = true, 0, nil, nil
		if !k.served {
			k.served = true
			k.opts.Ready(m.Text)
		} else {
			k.opts.Logger.Warn("the mount is served again", "dir", k.opts.Dir,
				"pid", k.life.cmd.Process.Pid)
		}
		k.answer(nil)
	case stateFailed:
		k.failure = &Failure{Text: m.Text, Advice: m.Advice}
		if k.life.serves { // it could not hand over, and goes on
			k.handed = nil
			k.answer(k.failure)
			k.failure = nil
		}
	case stateHanded:
		k.life.handed = true
	case stateEnded:
		k.life.over = true
	}
	return false, nil
}

// connect mounts the file system, once.
func (k *keeper) connect() error {
	if k.conn != nil {
		return nil
	}
	c, err := mount.Connect(k.opts.Dir, k.opts.Mount)
	if err != nil {
		return err
	}
	k.conn = c
	if err := k.table.SetGreeting(c.Greeting); err != nil {
		return err
	}
	if !c.CanRepeat() {
		k.opts.Logger.Warn("this kernel does not repeat requests (Linux does from 6.9 on): the mount " +
			"ends with the process that serves it")
	}
	k.watching.Go(func() {
		if c.Gone(k.stop) {
			close(k.gone)
		}
	})
	return nil
}

// ended sees to the end of the process.
func (k *keeper) ended(how error) (over bool, err error) {
	l := k.life
	l.close()
	k.life, k.handed = nil, nil
	switch {
	case l.over:
		return true, nil // unmounted, and all is closed
	case k.conn == nil || !k.served:
		return true, k.abandon(how)
	case !k.conn.CanRepeat():
		k.leave()
		return true, errs.Newf(errs.IO, "keeper", k.opts.Dir,
			"the process that served the mount died: %v", how)
	case l.handed:
		k.opts.Logger.Info("the process has handed over", "dir", k.opts.Dir)
	default:
		k.opts.Logger.Error("the process that serves the mount died; another one is started, and "+
			"programs wait", "dir", k.opts.Dir, "how", how)
	}
	if k.deadline == nil {
		k.deadline = time.After(k.opts.GiveUp)
	}
	if !l.serves {
		k.failed(nil)
		return false, nil
	}
	k.again = time.After(0)
	return false, nil
}

// failed plans the next attempt after one that did not come to serve.
func (k *keeper) failed(err error) {
	if err != nil {
		k.failure = err
	}
	k.opts.Logger.Error("the mount could not be served", "dir", k.opts.Dir, "err", k.failure)
	k.again = time.After(min(pauseFirst<<min(k.failures, 10), pauseMost))
	k.failures++
}

// abandon ends a mount that was never served.
func (k *keeper) abandon(how error) error {
	k.leave()
	if k.failure != nil {
		return k.failure
	}
	return errs.Newf(errs.IO, "keeper", k.opts.Dir, "the process that was to serve it ended: %v", how)
}

// leave takes the mount away from programs, whether somebody serves it or not.
func (k *keeper) leave() {
	if k.conn == nil {
		return
	}
	if err := k.conn.Unmount(false, func() {}); err != nil {
		k.opts.Logger.Error("the mount cannot be taken away", "dir", k.opts.Dir, "err", err)
	}
}

// giveUp ends a mount that nobody serves any more.
func (k *keeper) giveUp() error {
	k.leave()
	k.endLife(k.opts.StopMax)
	why := k.failure
	if why == nil {
		why = errs.New(errs.TimedOut, "", "", nil)
	}
	return errs.Newf(errs.KindOf(why), "keeper", k.opts.Dir,
		"nobody could serve the mount again within %v, and it was taken away: %w", k.opts.GiveUp, why)
}

// unmount is for who ends the keeper.
func (k *keeper) unmount() error {
	var err error
	if k.conn != nil {
		serves := k.life != nil && k.life.serves
		err = k.conn.Unmount(serves, func() {
			if k.life != nil {
				k.life.send(&message{State: stateLeave})
			}
		})
	}
	if k.conn != nil && !k.awaitGone(insistMax) {
		// It is unmounted here, but seen elsewhere: in another name space of mounts, or by programs
		// that have files open. Whoever ends the keeper means that.
		k.opts.Logger.Warn("the mount is used elsewhere; it is taken from there", "dir", k.opts.Dir)
		if k.life != nil {
			k.life.send(&message{State: stateLeave})
		}
		k.conn.Abort()
	}
	k.endLife(k.opts.StopMax)
	return err
}

// awaitGone waits until the kernel has let go of the connection, but not for ever.
func (k *keeper) awaitGone(most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-k.gone:
		return true
	case <-timer.C:
		return false
	}
}

// finish waits for the process, which closes what is open, when the mount is gone.
func (k *keeper) finish() error {
	k.endLife(k.opts.EndMax)
	return nil
}

// endLife waits for the end of the process, and insists on it after a while.
func (k *keeper) endLife(most time.Duration) {
	if k.life == nil {
		return
	}
	if !k.life.serves {
		k.life.kill()
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	for said := k.life.said; ; {
		select {
		case _, ok := <-said:
			if !ok {
				said = nil
			}
			continue
		case <-k.life.ended:
		case <-timer.C:
			k.life.kill()
			<-k.life.ended
		}
		break
	}
	k.life.close()
	k.life = nil
}

// upgrade asks the process to hand over. The next one runs what is installed now.
func (k *keeper) upgrade(to chan<- error) {
	switch {
	case k.conn == nil || k.life != nil && !k.life.serves:
		to <- errs.Newf(errs.Again, "keeper", k.opts.Dir, "it is being started at this moment")
		return
	case !k.conn.CanRepeat():
		to <- errs.Newf(errs.Unsupported, "keeper", k.opts.Dir, "this kernel does not repeat requests")
		return
	}
	k.waiting = append(k.waiting, to)
	if k.life != nil && len(k.waiting) == 1 {
		k.life.send(&message{State: stateHand})
		k.handed = time.After(k.opts.HandMax)
	}
}

// answer answers those who wait for an upgrade.
func (k *keeper) answer(err error) {
	for _, to := range k.waiting {
		to <- err
	}
	k.waiting = nil
}

// Failure is why a process did not come to serve, as it says itself.
type Failure struct {
	Text   string
	Advice string // may be empty
}

func (f *Failure) Error() string { return f.Text }
