package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/nbd/diskexport"
	"github.com/sluice-storage/sluice/peer"
)

// gateway is a running `sluice nbd`.
type gateway struct {
	opt    *nbdOptions
	log    *slog.Logger
	out    io.Writer
	server *nbd.Server
	keys   *gatewayKeys // nil without TLS
	conn   *connection  // nil until a volume is served
	disks  *diskexport.Host
	socket string // of --run; empty: none
}

// serve runs the command.
func (o *nbdOptions) serve(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	specs, err := o.load(cmd)
	if err == nil {
		err = o.tls.settle()
	}
	if err != nil {
		return err
	}
	disks, err := newDisks(o.cache)
	if err != nil {
		return err
	}
	g := &gateway{opt: o, log: newLogger(), out: cmd.OutOrStdout(), disks: disks}
	defer g.close()
	ctx := cmd.Context()
	if g.keys, err = o.tls.open(ctx, g.log); err != nil {
		return err
	}
	if err := g.begin(ctx, specs); err != nil {
		return err
	}
	stop, err := o.web.serve(o.webFile, admin.WebOptions{Gather: g.families, Logger: g.log,
		Activity: seen("nbd", "nbd", g.activity)})
	if err != nil {
		return errors.Join(err, g.end(ctx))
	}
	defer stop()
	return g.serve(ctx, specs)
}

// close lets go of the cluster, and of memory, after the exports.
func (g *gateway) close() {
	closeDisks(g.disks, g.log)
	if g.conn != nil {
		g.conn.close()
	}
}

// begin makes the server and opens each export once, so that a typing error is told now and not to
// a client.
func (g *gateway) begin(ctx context.Context, specs []exportSpec) error {
	cfg := boundNBD()
	cfg.Logger, cfg.TLS = g.log, g.keys.server()
	if err := g.reach(ctx, specs); err != nil {
		return err
	}
	if g.conn != nil {
		cfg.Buffers = lendFrom(g.conn.fs)
	}
	server, err := nbd.NewServer(cfg, g.entries(specs)...)
	if err != nil {
		return err
	}
	g.server = server
	for i := range specs {
		if err := g.try(ctx, &specs[i]); err != nil {
			return errors.Join(err, g.end(ctx))
		}
	}
	return nil
}

// reach connects to the cluster, when the first volume is to be served.
func (g *gateway) reach(ctx context.Context, specs []exportSpec) (err error) {
	for _, s := range specs {
		if s.source == "volume" && g.conn == nil {
			f := &g.opt.url
			g.conn, err = dialBy(ctx, f.base(), &f.by, client.Options{WaitMax: patience(g.opt.timeout),
				Logger: g.log, Buffers: boundClient(true).buffers})
		}
	}
	return err
}

func (g *gateway) entries(specs []exportSpec) []nbd.Entry {
	b := backends{disks: g.disks}
	if g.conn != nil {
		b.fs = g.conn.fs
	}
	planDisks(b.disks, specs)
	entries := make([]nbd.Entry, len(specs))
	for i, s := range specs {
		entries[i] = s.entry(b, g.log)
	}
	return entries
}

// try opens an export. Volumes that are written to stay open: who starts a second gateway for one
// is told now, too.
func (g *gateway) try(ctx context.Context, s *exportSpec) error {
	if s.source == "mem" {
		return nil
	}
	err := g.server.Try(ctx, s.name)
	if errs.KindOf(err) == errs.Busy && s.source == "volume" {
		return hint(err, "Write name=%s,volume=%s,ro to read it meanwhile, or "+
			"name=%[1]s,volume=%[2]s,standby to take it over with the first write, or stop that "+
			"gateway: sluice volume handover %[2]s. If its host is dead it is free within 30 s",
			s.name, s.volume)
	}
	return err
}

// serve listens, and obeys signals, until ctx ends or there is nobody left to serve.
func (g *gateway) serve(ctx context.Context, specs []exportSpec) error {
	if g.opt.stdio {
		nc, err := stdioConn()
		if err != nil {
			return errors.Join(err, g.end(ctx))
		}
		served := make(chan struct{})
		go func() { defer close(served); g.server.ServeConn(nc) }()
		select {
		case <-served:
		case <-ctx.Done():
		}
		return g.end(ctx)
	}
	if g.opt.run != "" {
		place, remove, err := privateSocket()
		if err != nil {
			return errors.Join(err, g.end(ctx))
		}
		defer remove()
		g.socket, g.opt.listen = place, []string{"unix:" + place}
	}
	sockets, err := g.opt.sockets()
	if err == nil {
		err = g.announce(sockets, specs)
	}
	if err != nil {
		return errors.Join(err, closeAll(sockets), g.end(ctx))
	}
	failed := make(chan error, len(sockets))
	for _, ln := range sockets {
		go func() { failed <- g.server.Serve(ln) }()
	}
	err = g.obey(ctx, specs, failed)
	return errors.Join(err, g.end(ctx))
}

// announce tells where the exports are.
func (g *gateway) announce(sockets []net.Listener, specs []exportSpec) error {
	if file := g.opt.addrFile; file != "" {
		if err := writeFile(file, []byte(sockets[0].Addr().String()+"\n"), 0o644); err != nil {
			return err
		}
	}
	if g.opt.run != "" || g.opt.handed {
		return nil // what is printed belongs to the command, or to who has started this one
	}
	for _, ln := range sockets {
		for _, s := range specs {
			fmt.Fprintf(g.out, "serving %s\n", nbdURI(ln.Addr(), s.name, g.keys != nil))
		}
	}
	return nil
}

// obey waits for whatever ends the gateway, and for what changes it.
func (g *gateway) obey(ctx context.Context, specs []exportSpec, failed <-chan error) error {
	hups := make(chan os.Signal, 1)
	signal.Notify(hups, syscall.SIGHUP)
	defer signal.Stop(hups)
	var look <-chan time.Time
	parent := os.Getppid()
	if g.opt.oneShot || g.opt.handed {
		ticker := time.NewTicker(idleLook)
		defer ticker.Stop()
		look = ticker.C
	}
	var ended <-chan error
	if g.opt.run != "" {
		ended = g.start(ctx, specs)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case err := <-ended:
			return err
		case <-hups:
			g.reload(ctx)
		case <-g.keys.changed():
			g.server.Recheck()
		case <-look:
			// Who has started this process to use it may end without a word: then nobody else comes.
			if g.opt.handed && os.Getppid() != parent {
				return nil
			}
			if st := g.server.Stats(); g.opt.oneShot && st.Accepted > 0 && st.Conns == 0 {
				return nil
			}
		}
	}
}

// idleLook is how often a gateway looks whether anybody is left that it is there for.
const idleLook = 50 * time.Millisecond

// reload takes over what the files say now. What is wrong with them is in the log, and everything
// goes on as it was.
func (g *gateway) reload(ctx context.Context) {
	if g.keys != nil {
		if err := g.keys.reload(); err != nil {
			g.log.Error("the keys are not taken; those before go on", "err", oneLine(explain(err)))
		}
		g.server.Recheck()
	}
	if g.opt.config == "" {
		return
	}
	n, err := g.opt.readGateway()
	var specs []exportSpec
	if err == nil {
		specs, err = parseExports(exportTexts(n))
	}
	if err == nil {
		err = g.reach(ctx, specs)
	}
	if err != nil {
		g.log.Error("the file is not taken; everything goes on as it was", "file", g.opt.config,
			"err", oneLine(explain(err)))
		return
	}
	limit, cancel := context.WithTimeout(ctx, reloadMax)
	defer cancel()
	added, err := g.server.SetEntries(limit, g.entries(specs)...)
	if err != nil {
		g.log.Error("not everything of the old exports has ended", "err", err)
	}
	for i := range specs {
		for _, name := range added {
			if specs[i].name != name {
				continue
			}
			if err := g.try(limit, &specs[i]); err != nil {
				g.log.Error("an export cannot be opened", "export", name, "err", oneLine(explain(err)))
			}
		}
	}
	g.log.Info("reloaded", "file", g.opt.config, "exports", len(specs), "new", len(added))
}

// reloadMax is how long requests of exports that are gone may hold up those that are new.
const reloadMax = 30 * time.Second

// end answers what is under way, and closes the exports.
func (g *gateway) end(ctx context.Context) error {
	if g.opt.addrFile != "" {
		_ = os.Remove(g.opt.addrFile) // nobody is there any more; who restarts it makes it anew
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return g.server.Shutdown(limit)
}

// start runs the command of --run. What it ends with is what the gateway ends with.
func (g *gateway) start(ctx context.Context, specs []exportSpec) <-chan error {
	at := &net.UnixAddr{Net: "unix", Name: g.socket}
	cmd := exec.CommandContext(ctx, "sh", "-c", g.opt.run)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, g.out, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), "unixsocket="+g.socket, "uri="+nbdURI(at, specs[0].name, false),
		"exportname="+specs[0].name)
	ended := make(chan error, 1)
	go func() {
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			err = &exitError{code: exit.ExitCode()}
		}
		ended <- err
	}()
	return ended
}

// patience is what a client waits for servers: for ever, unless somebody says how long.
func patience(timeout time.Duration) time.Duration {
	if timeout == 0 {
		return peer.Forever
	}
	return timeout
}

// lendFrom makes the memory of a client that of a block server: data passes through without a copy
// between them.
func lendFrom(fs *client.FS) func(int) nbd.Buffer {
	return func(bytes int) nbd.Buffer {
		if b := fs.TryTake(bytes); b != nil {
			return b
		}
		return nil // not a Buffer that is a nil pointer
	}
}

// nbdURI is where clients find an export.
func nbdURI(addr net.Addr, name string, secure bool) string {
	scheme := "nbd"
	if secure {
		scheme = "nbds"
	}
	name = strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
	if addr.Network() == "unix" {
		return fmt.Sprintf("%s+unix:///%s?socket=%s", scheme, name, addr)
	}
	return fmt.Sprintf("%s://%s/%s", scheme, addr, name)
}
