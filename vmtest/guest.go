package vmtest

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/invariant"
)

// SharePath is where a guest sees the folder that it shares with the host, for reading and writing.
const SharePath = "/host-rw"

// Limits of a guest's end.
const (
	stopLimit = time.Minute // for a guest to write what it holds back
	tailBytes = 4 << 10     // of the console, in errors
)

// GuestConfig describes a guest.
type GuestConfig struct {
	// Name is its host name and stands in errors. Required: letters, digits, dashes.
	Name string

	// Memory is in MiB. Three quarters of it can hold files that the guest writes. Default 1024.
	Memory int

	// CPUs is how many processors it has. Default 1: an emulated guest with two takes twice the
	// host's time for the same work, most of it by waiting for each other.
	CPUs int

	// Wires are the networks that it is joined to: the first is eth0, and so on. Devices are up
	// and have the addresses that Guest.Addr tells. Default: none but the loopback.
	Wires []*Wire

	// Share is a folder of the host that the guest sees as SharePath. Default: a temporary one,
	// see Guest.Share, removed with the guest.
	Share string

	// Modules are loaded with modprobe before Start returns. Every module of the kernel is there,
	// so that scripts can load more.
	Modules []string

	// BootLimit is how long Start may take. Default 20 minutes, for the worst of busy machines; it
	// takes about 4 s on an idle one.
	BootLimit time.Duration

	// LifeLimit is how long the guest may exist. It is killed then. Default an hour.
	LifeLimit time.Duration

	// Console gets a copy of what the guest's kernel prints, if it is set. It must not block.
	Console io.Writer
}

func (c GuestConfig) withDefaults() GuestConfig {
	if c.Memory == 0 {
		c.Memory = 1024
	}
	if c.CPUs == 0 {
		c.CPUs = 1
	}
	if c.BootLimit == 0 {
		c.BootLimit = 20 * time.Minute
	}
	if c.LifeLimit == 0 {
		c.LifeLimit = time.Hour
	}
	if c.Console == nil && os.Getenv("SLUICE_VMTEST_CONSOLE") != "" {
		c.Console = os.Stderr
	}
	return c
}

var guestName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

func (c GuestConfig) validate() error {
	bad := func(format string, args ...any) error {
		return errs.Newf(errs.Invalid, "vmtest.Start", c.Name, format, args...)
	}
	switch {
	case !guestName.MatchString(c.Name):
		return bad("the name is not a host name")
	case c.Memory < 256:
		return bad("%d MiB of memory; at least 256", c.Memory)
	case c.CPUs < 1 || c.CPUs > 64:
		return bad("%d CPUs; 1 to 64", c.CPUs)
	case c.BootLimit < 0 || c.LifeLimit < 0:
		return bad("a negative limit")
	case c.Share != "" && !filepath.IsAbs(c.Share):
		return bad("the shared folder %q is not absolute", c.Share)
	}
	return nil
}

// Guest is a running machine. It is safe for concurrent use. Whoever started it calls Stop or Kill.
type Guest struct {
	name    string
	share   string
	temp    *scratch // the shared folder, if it is ours to remove
	log     *console
	proc    *process
	agent   *channel
	qmp     *monitor
	ports   []*port
	expire  *time.Timer
	release sync.Once
}

// Start boots a guest and returns when it takes commands. The context bounds the boot only.
func (l *Lab) Start(ctx context.Context, c GuestConfig) (*Guest, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.BootLimit)
	defer cancel()
	g := &Guest{name: c.Name, share: c.Share, log: &console{}}
	if err := g.launch(l, c); err != nil {
		g.Kill()
		return nil, err
	}
	g.expire = time.AfterFunc(c.LifeLimit, func() {
		fmt.Fprintf(g.log, "\nvmtest: %s has existed for %v, killed\n", g.name, c.LifeLimit)
		_ = g.proc.cmd.Process.Kill() // what waits for it sees it
	})
	if err := g.boot(ctx, c); err != nil {
		err = g.explain("vmtest.Start", err)
		g.Kill()
		return nil, err
	}
	return g, nil
}

// launch starts QEMU with its sockets.
func (g *Guest) launch(l *Lab, c GuestConfig) (err error) {
	if g.share == "" {
		if g.temp, err = newScratch(g.name); err != nil {
			return err
		}
		g.share = g.temp.path
	}
	var files []*os.File // QEMU's ends: file i is its descriptor 3+i
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	agentConn, far, err := socketPair("agent")
	if err != nil {
		return err
	}
	files = append(files, far)
	g.agent = newChannel(agentConn)
	qmpConn, far, err := socketPair("qmp")
	if err != nil {
		return err
	}
	files = append(files, far)
	g.qmp = newMonitor(qmpConn)
	for i, w := range c.Wires {
		p, far, err := w.attach(g, i)
		if err != nil {
			return err
		}
		g.ports = append(g.ports, p)
		files = append(files, far)
	}
	path, err := lookPath(qemu)
	if err != nil {
		return err
	}
	cmd := exec.Command(path, g.arguments(l, c)...)
	cmd.ExtraFiles = files
	cmd.Stdout, cmd.Stderr = io.Writer(g.log), io.Writer(g.log)
	if c.Console != nil {
		both := io.MultiWriter(g.log, c.Console)
		cmd.Stdout, cmd.Stderr = both, both
	}
	cmd.WaitDelay = time.Second
	proc, err := startProcess(cmd)
	if err != nil {
		return errs.Wrap("vmtest.Start", g.name, err)
	}
	g.proc = proc
	return nil
}

// boot waits for the agent and sets the guest up.
func (g *Guest) boot(ctx context.Context, c GuestConfig) error {
	if err := g.qmp.hello(ctx); err != nil {
		return err
	}
	select {
	case <-g.agent.hello:
	case <-g.agent.done:
		return errs.Newf(errs.Disconnected, "", "", "the guest ended before it was up")
	case <-g.proc.done:
		return errs.Newf(errs.Disconnected, "", "", "the machine ended before it was up")
	case <-ctx.Done():
		return errs.New(errs.KindOf(ctx.Err()), "", "", ctx.Err())
	}
	script := strings.Builder{}
	script.WriteString("set -e\n")
	for _, p := range g.ports {
		fmt.Fprintf(&script, "ip link set %[1]s mtu %[2]d up\nip addr add %[3]s/24 dev %[1]s\n",
			p.device, p.wire.mtu, p.addr)
	}
	for _, m := range c.Modules {
		fmt.Fprintf(&script, "modprobe %s\n", m)
	}
	res, err := g.Exec(ctx, Command{Script: script.String(), Limit: c.BootLimit})
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		return err
	}
	for _, p := range g.ports {
		if err := p.plug(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Name is the guest's host name.
func (g *Guest) Name() string { return g.name }

// Share is the host's name of the folder that the guest sees as SharePath.
func (g *Guest) Share() string { return g.share }

// Addr is the guest's address on a wire. It must be one of the guest's own.
func (g *Guest) Addr(w *Wire) netip.Addr { return g.port(w).addr }

// Device is the guest's name for its network device on a wire, like eth0.
func (g *Guest) Device(w *Wire) string { return g.port(w).device }

// SetLink plugs the guest's cable to one wire in or out; Wire.Cut does it for all guests.
func (g *Guest) SetLink(ctx context.Context, w *Wire, up bool) error {
	return g.port(w).setLink(ctx, up)
}

func (g *Guest) port(w *Wire) *port {
	for _, p := range g.ports {
		if p.wire == w {
			return p
		}
	}
	invariant.Check(false, "guest %s is not on this wire", g.name)
	return nil
}

// Console is what the guest's kernel printed, the last few hundred KiB of it.
func (g *Guest) Console() string { return g.log.tail(2 * consoleMax) }

// Spent is how much of the host's processors the guest has used so far. On a busy host it tells
// more of what something costs than the time that has passed.
func (g *Guest) Spent() time.Duration { return g.proc.spent() }

// explain puts the guest's name and the end of its console to an error.
func (g *Guest) explain(op string, err error) error {
	if err == nil {
		return nil
	}
	return errs.Newf(errs.KindOf(err), op, g.name, "%w\nconsole of %s:\n%s", err, g.name,
		g.log.tail(tailBytes))
}

func (g *Guest) dead() bool {
	select {
	case <-g.proc.done:
		return true
	default:
		return false
	}
}

// Dead is closed when the machine is gone, for whatever reason.
func (g *Guest) Dead() <-chan struct{} { return g.proc.done }

// Kill ends the guest as a power cut does, at any moment, and waits until it is gone. It may be
// called often, also after Stop.
func (g *Guest) Kill() {
	if g.proc != nil {
		g.proc.kill()
	}
	g.letGo()
}

// Stop has the guest write what it holds back, then ends it. What it shares with the host is
// complete then. A guest that does not answer within a minute is killed, and that is the error.
func (g *Guest) Stop() error {
	defer g.Kill()
	if g.dead() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := g.sync(ctx); err != nil {
		return g.explain("vmtest.Stop", err)
	}
	return nil
}

// letGo frees what the host holds for the guest.
func (g *Guest) letGo() {
	g.release.Do(func() {
		if g.expire != nil {
			g.expire.Stop()
		}
		if g.agent != nil {
			g.agent.close()
		}
		if g.qmp != nil {
			g.qmp.close()
		}
		for _, p := range g.ports {
			p.detach()
		}
		if g.temp != nil {
			g.temp.remove()
		}
	})
}
