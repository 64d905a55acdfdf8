package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/attach"
	"github.com/sluice-storage/sluice/attach/netlink"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/sdnotify"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/volumeexport"
)

// attacher is a process that serves a device, or stands by. Its life: it waits for the lock,
// reaches what the device is made of, opens the device or goes on with it, and serves it until it
// is detached. Whatever part of that a process was killed in, its successor finds written down.
type attacher struct {
	cmd    *cobra.Command
	opt    *attachOptions
	spec   *attach.Spec
	place  attach.Place
	log    *slog.Logger
	out    *os.File // the log's, or where the supervisor wants it
	kernel *netlink.Conn
	system attach.System

	hold func() // HoldMemory, once; a second caller waits for the first

	conn    *connection  // of a volume
	dialled chan dialled // the one that reach makes; nil: it was taken, or is not made
	exp     nbd.Export   // of a volume; it belongs to source
	source  attach.Source

	ready  func(attachInfo)  // told once, when the device can be used; nil: whoever started us is
	detach chan attachDetach // requests, from the control socket
	stand  *standbys

	mu    sync.Mutex
	state attach.State
	dev   *attach.Device // nil: not yet
	why   error          // what opening it fails by
}

// attachDetach is a request to detach.
type attachDetach struct {
	force bool
	done  chan error // told once
}

func newAttacher(cmd *cobra.Command, o *attachOptions, spec *attach.Spec) *attacher {
	a := &attacher{cmd: cmd, opt: o, spec: spec, place: attach.Place{Dir: o.place},
		log: newLogger().With("device", spec.Name), out: os.Stderr, detach: make(chan attachDetach)}
	a.hold = sync.OnceFunc(func() {
		if err := attach.HoldMemory(); err != nil {
			a.log.Warn("the memory of this process is not locked", "err", err)
		}
	})
	return a
}

// serve runs the process.
func (a *attacher) serve(ctx context.Context) error {
	if !a.opt.standby && !attach.IsServer(a.opt.target) {
		defer a.reach(ctx)()
	}
	collectSeldom()
	spareProcs(procsLeast)
	if a.opt.standby {
		a.hold() // it may be needed when there is no memory
		nameProcess(standingName)
	}
	end, err := a.place.Serve(ctx, a.spec.Name, a.opt.standby)
	if a.opt.standby && (errs.KindOf(err) == errs.NotFound || ctx.Err() != nil) {
		return nil // it was detached, or nobody wants this process any more
	}
	if err != nil {
		return err
	}
	defer end()
	nameProcess(servingName)
	if a.kernel, err = openKernel(); err != nil {
		return err
	}
	defer a.kernel.Close()
	if a.state, err = a.place.State(a.spec.Name); err != nil {
		return err
	}
	a.findDevice()
	stop, err := listenControl(a.place.File(a.spec.Name, attach.ControlFile), a.answer)
	if err != nil {
		return err
	}
	defer stop()
	defer func() {
		if a.conn != nil {
			a.conn.close()
		}
	}()
	return a.live(ctx)
}

// findDevice looks for a device of ours that nobody has written down: its process was killed in
// the moment between.
func (a *attacher) findDevice() {
	if a.state.Connected {
		return
	}
	list, err := a.kernel.List()
	if err != nil {
		return // connecting tells why
	}
	for _, s := range list {
		if s.Connected && a.system.Backend(s.Index) == a.backend() {
			a.state.Connected, a.state.Index = true, s.Index
			return
		}
	}
}

// backend is the device's identity at the kernel.
func (a *attacher) backend() string { return backendOf(a.spec) }

func backendOf(s *attach.Spec) string { return s.Target + "#" + s.Name }

// live opens the device and serves it to its end.
func (a *attacher) live(ctx context.Context) error {
	if a.state.Ending {
		return a.finish(true)
	}
	asked, err := a.open(ctx)
	switch {
	case asked != nil:
		err := a.finish(asked.force)
		asked.done <- err
		return err
	case err != nil:
		return err
	}
	a.hold() // before anybody knows of the device
	if err := a.note(); err != nil {
		return errors.Join(err, a.finish(true))
	}
	a.stand = newStandbys(a.spec, a.log, a.out)
	if !a.opt.foreground {
		a.stand.start()
	}
	defer a.stand.stop()
	if err := a.tellReady(); err != nil {
		a.log.Warn("whoever waits was not told", "err", err)
	}
	return a.attend(ctx)
}

// tellReady tells whoever has started this process.
func (a *attacher) tellReady() error {
	if a.ready != nil {
		a.ready(a.info())
		return nil
	}
	if a.opt.standby {
		return nil // who has started it is dead
	}
	if !a.opt.foreground {
		text, err := json.Marshal(a.info())
		announce(a.cmd, string(text))
		return err
	}
	n, err := sdnotify.Open()
	if err != nil || n == nil {
		return err
	}
	return errors.Join(n.Ready(a.spec.Target+" is "+a.system.Node(a.dev.Index())), n.Close())
}

// note writes down what became of the device.
func (a *attacher) note() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dev != nil {
		a.state.Index, a.state.Connected = a.dev.Index(), true
	}
	if a.state.Since.IsZero() {
		a.state.Since = time.Now().UTC().Truncate(time.Second)
	}
	a.state.PID = os.Getpid()
	return a.place.SetState(a.spec.Name, &a.state)
}

// open reaches the source and opens the device. A device that is there already, with programs that
// wait, is tried for as long as it takes; asked is a request to detach it that comes meanwhile.
func (a *attacher) open(ctx context.Context) (asked *attachDetach, err error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		try, stop := context.WithCancel(ctx)
		result := make(chan error, 1)
		go func() { result <- a.tryOpen(try) }()
		select {
		case err = <-result:
		case r := <-a.detach:
			stop()
			if err = <-result; err != nil {
				return &r, nil
			}
			asked = &r
		}
		stop()
		if errs.KindOf(err) == errs.Closed && a.state.Connected {
			return asked, errors.Join(err, a.finish(true)) // nobody can use it any more
		}
		if err == nil || !a.state.Connected || ctx.Err() != nil {
			return asked, err
		}
		a.mu.Lock()
		a.why = err
		a.mu.Unlock()
		a.log.Warn("the device cannot be served; trying again", "err", oneLine(explain(err)))
		select {
		case r := <-a.detach:
			return &r, nil
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (a *attacher) tryOpen(ctx context.Context) (err error) {
	if a.source == nil {
		if a.source, err = a.openSource(ctx); err != nil {
			return err
		}
	}
	o := attach.Options{Kernel: a.kernel, System: a.system, Source: a.source, Name: a.spec.Name,
		Backend: a.backend(), Index: a.spec.Device, Connections: a.opt.connections,
		BlockSize: a.opt.block, Resend: a.opt.resend, GiveUp: a.opt.giveUp, Logger: a.log}
	if a.state.Connected {
		o.Index, o.Resume = a.state.Index, true
	}
	if attach.IsServer(a.opt.target) {
		o.Grow = remoteLook
	}
	if err := a.opt.queue(&o.Queue); err != nil {
		return err
	}
	o.Linked = func() {
		go a.hold()
		if a.exp != nil {
			warm(a.exp)
		}
	}
	dev, err := attach.Open(ctx, o)
	if err != nil {
		if !a.state.Connected {
			err = errors.Join(err, a.source.Close())
			a.source, a.exp = nil, nil
		}
		return err
	}
	a.mu.Lock()
	a.dev, a.why = dev, nil
	a.mu.Unlock()
	return nil
}

// remoteLook is how often a server is asked whether its export has grown.
const remoteLook = 5 * time.Second

// openSource reaches what the device is made of.
func (a *attacher) openSource(ctx context.Context) (attach.Source, error) {
	if a.state.Lost != "" {
		return attach.NewLocal(attach.Nothing(a.state.Lost), nbd.Config{}, a.opt.readOnly), nil
	}
	if attach.IsServer(a.opt.target) {
		at, err := attach.ParseServer(a.opt.target)
		if err != nil {
			return nil, err
		}
		secure, err := a.opt.tls.client(context.WithoutCancel(ctx), at, a.log)
		if err != nil {
			return nil, err
		}
		return attach.NewRemote(at, secure), nil
	}
	exp, err := a.openVolume(ctx)
	if err != nil {
		return nil, err
	}
	a.exp = exp
	cfg := nbd.Config{MemoryBytes: linkBytes, ConnMemoryBytes: linkBytes, MaxPayload: linkBytes / 2,
		ConnRequests: creditsEach, MaxConns: 2, Buffers: lendFrom(a.conn.fs), Logger: a.log}
	return attach.NewLocal(exp, cfg, a.opt.readOnly), nil
}

// linkBytes is what the requests of one connection may hold: 64 of the usual size, or two of the
// largest that the kernel makes.
const linkBytes = 64 * usualRequest

// openVolume reaches the cluster and opens the volume.
func (a *attacher) openVolume(ctx context.Context) (nbd.Export, error) {
	how, err := parseMode(cmp.Or(a.opt.mode, modeNames()[0]))
	if err != nil {
		return nil, err
	}
	if a.conn == nil {
		if a.conn, err = a.dial(ctx); err != nil {
			return nil, err
		}
	}
	exp, err := volumeexport.OpenWith(ctx, a.conn.fs, a.opt.target, volumeexport.Options{
		ReadOnly: a.opt.readOnly, Shared: a.opt.shared, How: how, Logger: a.log})
	if err != nil && ctx.Err() == nil && !a.state.Connected {
		a.conn.close()
		a.conn = nil
	}
	if errs.KindOf(err) == errs.Busy {
		err = hint(err, "Add --read-only to read it meanwhile, or have it given up: sluice volume "+
			"handover %s. If its host is dead it is free within 30 s", a.opt.target)
	}
	return exp, err
}

// attend serves the device until it is detached, or ctx ends and nobody uses it any more.
func (a *attacher) attend(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.dev.Run(serving) }()
	look := time.NewTicker(leaveLook)
	defer look.Stop()
	end := func(force bool) error {
		stop()
		<-ended
		return a.finish(force)
	}
	for {
		select {
		case r := <-a.detach:
			if err := a.release(r.force); err != nil {
				r.done <- err
				continue
			}
			err := end(r.force)
			r.done <- err
			return err
		case err := <-ended:
			stop()
			a.log.Error("the device has ended", "err", err)
			return errors.Join(err, a.finish(true))
		case <-look.C:
			a.noteLost()
			if ctx.Err() == nil {
				continue
			}
			a.stand.stop()
			if a.release(false) == nil {
				return end(false)
			}
		}
	}
}

// leaveLook is how often a process that is to end looks whether it may.
const leaveLook = 500 * time.Millisecond

// noteLost writes down that somebody else has the volume: no successor may serve it again, because
// what the host keeps in memory of it is out of date.
func (a *attacher) noteLost() {
	why := a.source.Lost()
	if why == nil || a.state.Lost != "" {
		return
	}
	a.mu.Lock()
	a.state.Lost = why.Error()
	a.mu.Unlock()
	if err := a.note(); err != nil {
		a.log.Error("that the volume is lost is not written down", "err", err)
	}
	a.log.Error("the volume is somebody else's: the device has nothing but errors from now on",
		"err", why)
}

// release makes sure that nobody uses the device, and that what was written is synced.
func (a *attacher) release(force bool) error {
	node := a.system.Node(a.dev.Index())
	err := attach.Release(node)
	if force && err != nil {
		a.log.Warn("detached although it is in use", "err", err)
		return nil
	}
	return err
}

// finish ends the device for good.
func (a *attacher) finish(force bool) error {
	a.mu.Lock()
	a.state.Ending = true
	dev := a.dev
	a.mu.Unlock()
	if err := a.note(); err != nil && !force {
		return err
	}
	var err error
	switch {
	case dev != nil:
		err = dev.Detach()
	case a.state.Connected:
		err = endDevice(a.kernel, a.system, a.spec, a.state.Index)
	}
	if err != nil {
		a.log.Error("detaching", "err", err)
	}
	return errors.Join(err, a.place.Remove(a.spec.Name))
}

// endDevice disconnects a device that no process serves.
func endDevice(k *netlink.Conn, s attach.System, spec *attach.Spec, index int) error {
	var err error
	if s.Backend(index) == backendOf(spec) { // else it is not ours
		err = k.Disconnect(index)
	}
	return errors.Join(err, s.RemoveLink(spec.Name))
}

// answer answers a request on the control socket.
func (a *attacher) answer(r *attachRequest) *attachAnswer {
	if r.Do == "detach" {
		req := attachDetach{force: r.Force, done: make(chan error, 1)}
		select {
		case a.detach <- req:
		case <-time.After(answerMax):
			return &attachAnswer{Error: "the process is busy"}
		}
		if err := <-req.done; err != nil {
			ans := &attachAnswer{Error: err.Error()}
			if errs.KindOf(err) == errs.Busy {
				ans.Advice = inUseAdvice
			}
			return ans
		}
	}
	return &attachAnswer{Info: a.info()}
}

// info tells what the device is like.
func (a *attacher) info() attachInfo {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := infoOf(a.spec, &a.state, a.system)
	i.PID, i.State = os.Getpid(), isWaiting
	if a.why != nil {
		i.Why = oneLine(a.why.Error())
	}
	if a.dev == nil {
		return i
	}
	st := a.dev.Status()
	i.Device, i.State = a.system.Node(st.Index), isAttached
	i.Size, i.Connections, i.Replaced = st.Size, st.Connections, st.Replaced
	if a.state.Lost != "" {
		i.State, i.Why = isLost, a.state.Lost
	}
	return i
}

// openKernel reaches the kernel's NBD client, and loads its module if it is not there.
func openKernel() (*netlink.Conn, error) {
	k, err := netlink.Open()
	if errs.KindOf(err) != errs.Unsupported {
		return k, err
	}
	loadNBD()
	for range 20 { // the kernel says that it is loaded a moment before it is
		if k, err = netlink.Open(); err == nil {
			return k, nil
		}
		wait.Sleep(context.Background(), 5*time.Millisecond)
	}
	return nil, hint(err, "Load the kernel's module: modprobe nbd   Or use the volume without a "+
		"device: sluice nbd")
}
