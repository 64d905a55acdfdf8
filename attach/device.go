package attach

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/attach/netlink"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
)

// Options of a device.
type Options struct {
	Kernel Kernel
	System System
	Source Source

	// Name is that of the link to the device. Required.
	Name string

	// Backend is the device's identity: the kernel keeps it, and takes changes from nobody who does
	// not name it. Required.
	Backend string

	// Index is which device is to be used. Default 0: the first one. See netlink.Any.
	Index int

	// Resume says that Index may be connected already, by a process of the same backend that is dead
	// now: its sockets are replaced.
	Resume bool

	// Connections is how many sockets the device has, each with a queue of its own in the kernel.
	// Default 4. A server that does not take several gets one.
	Connections int

	// BlockSize is the size of a sector, in bytes. Default 512, or what the server asks for.
	BlockSize int

	// Resend is after what time the kernel sends a request again that has no answer. It is how long
	// requests of a process that was killed wait, and a bit: the kernel looks every second. Requests
	// that take longer than that for other reasons are sent again as well, which does no harm.
	// Default 5 s.
	Resend time.Duration

	// GiveUp is for how long requests wait while nobody serves the device. Default: a year.
	GiveUp time.Duration

	Queue Queue

	// Linked, if not nil, is called before the kernel is asked for a device that is not there yet,
	// which it takes its time for: what can be done meanwhile may begin. It must not block.
	Linked func()

	// Grow is how often the source is asked for its size. Default 500 ms.
	Grow time.Duration

	Logger *slog.Logger // default: discard
}

func (o Options) withDefaults() Options {
	if o.Connections == 0 {
		o.Connections = 4
	}
	if o.Resend == 0 {
		o.Resend = 5 * time.Second
	}
	if o.GiveUp == 0 {
		o.GiveUp = 365 * 24 * time.Hour
	}
	if o.Grow == 0 {
		o.Grow = 500 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// connectionsMax is the most that a device may have: the kernel makes a queue of 128 requests for
// each.
const connectionsMax = 64

func (o *Options) validate() error {
	bad := func(what string) error {
		return errs.Newf(errs.Invalid, "attach.Options", o.Name, "%s", what)
	}
	switch {
	case o.Kernel == nil || o.Source == nil || o.Name == "" || o.Backend == "":
		return bad("Kernel, Source, Name and Backend are required")
	case o.Connections < 1 || o.Connections > connectionsMax:
		return bad("1 to 64 connections")
	case o.BlockSize != 0 && (o.BlockSize < 512 || o.BlockSize > 4096 ||
		o.BlockSize&(o.BlockSize-1) != 0):
		return bad("blocks have 512, 1024, 2048 or 4096 bytes")
	case o.Resend < time.Second || o.GiveUp < time.Second || o.Grow < 0:
		return bad("times of at least a second")
	}
	return nil
}

// Device is a device of the kernel that this process serves. Its life: Open, Run, and in the end
// Detach; or the process is killed, and another one opens it with Resume. Safe for concurrent use.
type Device struct {
	opt   Options
	index int

	ends chan *Link // links that have ended

	mu    sync.Mutex
	links map[*Link]struct{} // that the kernel has, or had
	lacks int                // how many the kernel wants besides
	size  int64
	given int64 // links that the kernel was given, all in all
}

// Status is what a device is like.
type Status struct {
	Index       int
	Size        int64
	Connections int   // that are there
	Replaced    int64 // that were, and are not any more
	Lost        error // why it cannot be served any more; nil: it can
}

// Open connects a device, or goes on with one whose process has died.
func Open(ctx context.Context, o Options) (*Device, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	d := &Device{opt: o, links: make(map[*Link]struct{}), ends: make(chan *Link, connectionsMax)}
	connected := false
	if o.Resume {
		var err error
		if connected, err = d.isOurs(); err != nil {
			return nil, err
		}
	}
	if connected {
		d.index, d.lacks = o.Index, o.Connections
		if err := d.replace(ctx); err != nil {
			d.closeLinks()
			return nil, err
		}
	} else if err := d.connect(ctx); err != nil {
		d.closeLinks()
		return nil, err
	}
	if err := o.System.SetQueue(d.index, o.Queue); err != nil {
		o.Logger.Warn("the device's queue is not set as it should be", "err", err)
	}
	if err := o.System.SetLink(o.Name, d.index); err != nil {
		o.Logger.Warn("there is no link to the device", "err", err)
	}
	return d, nil
}

// isOurs tells whether the device is connected, and by us. One that others have is an error.
func (d *Device) isOurs() (bool, error) {
	connected, err := d.opt.Kernel.Connected(d.opt.Index)
	if err != nil || !connected {
		return false, err
	}
	if has := d.opt.System.Backend(d.opt.Index); has != d.opt.Backend {
		return false, errs.Newf(errs.Busy, "attach.Open", d.opt.System.Node(d.opt.Index),
			"it has become somebody else's: %q", has)
	}
	return true, nil
}

// connect makes the links and gives them to a device that is free.
func (d *Device) connect(ctx context.Context) error {
	first, err := d.opt.Source.Link(ctx)
	if err != nil {
		return err
	}
	links := []*Link{first}
	defer func() {
		for _, l := range links {
			l.handed()
		}
	}()
	if first.Flags&flagMultiConn != 0 {
		more, err := d.moreLinks(ctx, d.opt.Connections-1)
		links = append(links, more...)
		if err != nil {
			for _, l := range links {
				l.Close()
			}
			return err
		}
	}
	dev := netlink.Device{Index: d.opt.Index, Size: first.Size, BlockSize: d.blockSize(first),
		Flags: first.Flags, Timeout: d.opt.Resend, DeadTimeout: d.opt.GiveUp, Backend: d.opt.Backend}
	for _, l := range links {
		dev.Sockets = append(dev.Sockets, int(l.socket.Fd()))
	}
	if d.opt.Linked != nil {
		d.opt.Linked()
	}
	if d.index, err = d.opt.Kernel.Connect(dev); err != nil {
		for _, l := range links {
			l.Close()
		}
		return err
	}
	d.size = first.Size
	for _, l := range links {
		d.watch(l)
	}
	return nil
}

// moreLinks makes n links at the same time. With an error come those that were made.
func (d *Device) moreLinks(ctx context.Context, n int) (made []*Link, err error) {
	links, fails := make([]*Link, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { links[i], fails[i] = d.opt.Source.Link(ctx) })
	}
	all.Wait()
	for _, l := range links {
		if l != nil {
			made = append(made, l)
		}
	}
	return made, errors.Join(fails...)
}

// blockSize is the size of a sector: as asked for, or what fits the server and the size.
func (d *Device) blockSize(e *Link) int {
	if d.opt.BlockSize != 0 {
		return d.opt.BlockSize
	}
	return min(max(e.Least, 512), 4096)
}

// watch counts a link in that the kernel was given.
func (d *Device) watch(l *Link) {
	d.mu.Lock()
	d.links[l] = struct{}{}
	d.given++
	d.mu.Unlock()
	go func() {
		<-l.Gone()
		d.ends <- l
	}()
}

// replace gives the kernel a link for each that it lacks. It takes them in place of those that it
// knows to be dead; a link that it has no place for ends at once, and comes again.
func (d *Device) replace(ctx context.Context) error {
	d.mu.Lock()
	lacks := d.lacks
	d.mu.Unlock()
	for range lacks {
		l, err := d.opt.Source.Link(ctx)
		if err != nil {
			return err
		}
		err = d.opt.Kernel.Reconfigure(netlink.Change{Index: d.index, Backend: d.opt.Backend,
			Sockets: []int{int(l.socket.Fd())}})
		l.handed()
		if err != nil {
			l.Close()
			if errs.KindOf(err) == errs.Invalid {
				return d.goneError() // it may still be there for programs that have it open
			}
			return err
		}
		d.mu.Lock()
		d.lacks--
		if l.Flags&flagMultiConn == 0 {
			d.lacks = 0
		}
		enough := d.lacks <= 0
		d.mu.Unlock()
		d.watch(l)
		if enough {
			break
		}
	}
	return nil
}

// Run serves the device until ctx ends (nil), or it is not the kernel's any more: somebody else has
// disconnected it, or it cannot be served any more.
func (d *Device) Run(ctx context.Context) error {
	grow := time.NewTicker(d.opt.Grow)
	defer grow.Stop()
	pause := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-d.ends:
			d.forget(l)
		case <-grow.C:
			if err := d.follow(ctx); err != nil {
				d.opt.Logger.Debug("the size is not known", "err", err)
			}
		}
		d.mu.Lock()
		lacks := d.lacks
		d.mu.Unlock()
		if lacks == 0 {
			pause = 0
			continue
		}
		if !wait.Sleep(ctx, pause) {
			return nil
		}
		pause = min(max(2*pause, replaceFirst), replaceMost)
		if err := d.restore(ctx); err != nil {
			return err
		}
	}
}

// How soon links are replaced: at once, then with pauses that double.
const (
	replaceFirst = 10 * time.Millisecond
	replaceMost  = time.Second
)

// restore replaces what has ended. An error says that there is no device any more.
func (d *Device) restore(ctx context.Context) error {
	connected, err := d.opt.Kernel.Connected(d.index)
	if err == nil && !connected {
		return d.goneError()
	}
	if err == nil {
		err = d.replace(ctx)
	}
	if errs.KindOf(err) == errs.Closed {
		return err
	}
	if err != nil && ctx.Err() == nil {
		d.opt.Logger.Warn("a connection of the device cannot be replaced; trying again",
			"device", d.opt.System.Node(d.index), "err", err)
	}
	return nil
}

func (d *Device) goneError() error {
	return errs.Newf(errs.Closed, "attach", d.opt.System.Node(d.index),
		"somebody has disconnected the device")
}

func (d *Device) forget(l *Link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.links[l]; ok {
		delete(d.links, l)
		d.lacks++
	}
}

// follow tells the kernel of a source that has grown.
func (d *Device) follow(ctx context.Context) error {
	size, err := d.opt.Source.Size(ctx)
	if err != nil {
		return err
	}
	d.mu.Lock()
	grown := size > d.size
	d.mu.Unlock()
	if !grown {
		return nil
	}
	err = d.opt.Kernel.Reconfigure(
		netlink.Change{Index: d.index, Backend: d.opt.Backend, Size: size})
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.size = size
	d.mu.Unlock()
	d.opt.Logger.Info("the device has grown", "device", d.opt.System.Node(d.index), "bytes", size)
	return nil
}

// Status tells what the device is like.
func (d *Device) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return Status{Index: d.index, Size: d.size, Connections: len(d.links),
		Replaced: d.given - int64(len(d.links)), Lost: d.opt.Source.Lost()}
}

// Index is N of /dev/nbdN.
func (d *Device) Index() int { return d.index }

// Detach disconnects the device and closes its source. Programs that use it get errors; whoever
// calls it has made sure that there are none. Run must have ended.
func (d *Device) Detach() error {
	connected, err := d.opt.Kernel.Connected(d.index)
	if err == nil && connected {
		err = d.opt.Kernel.Disconnect(d.index)
	}
	d.closeLinks()
	return errors.Join(err, d.opt.System.RemoveLink(d.opt.Name), d.opt.Source.Close())
}

func (d *Device) closeLinks() {
	d.mu.Lock()
	links := make([]*Link, 0, len(d.links))
	for l := range d.links {
		links = append(links, l)
	}
	d.mu.Unlock()
	for _, l := range links {
		l.Close()
	}
}
