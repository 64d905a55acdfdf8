package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/sdnotify"
	"github.com/sluice-storage/sluice/internal/supervise"
)

// hostRun is how a host is run.
type hostRun struct {
	cfg      *config.Config
	strict   bool // as in host
	log      *slog.Logger
	notifier *sdnotify.Notifier // nil: nobody manages this process
	heart    *hostHeart         // says that the host runs

	// ready is called when everything runs that can.
	ready func(h *host)

	// reload reads the file again, when SIGHUP comes; nil: the signal means nothing here.
	reload func() (*config.Config, error)
}

// runHost runs a host until ctx ends, in a folder that nobody else may run meanwhile. What stops is
// drained; a second signal ends it at once.
func (c *cluster) runHost(ctx context.Context, o hostRun) error {
	lock, err := c.acquire()
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := c.clean(); err != nil {
		return err
	}
	for _, m := range o.cfg.Mounts {
		if !o.strict {
			break // it is told when its turn comes
		}
		if _, err := prepareMountpoint(m.Dir); err != nil {
			return err
		}
	}
	h, err := newHost(c, o.log)
	if err != nil {
		return err
	}
	h.strict = o.strict
	now, stop := atOnce(ctx)
	defer stop()
	go c.holdBallast(ctx)
	go keepWatch(ctx, o.notifier, h.group, o.log)
	hups := make(chan os.Signal, 1)
	if o.reload != nil {
		signal.Notify(hups, syscall.SIGHUP)
		defer signal.Stop(hups)
	}
	o.tell(o.notifier.Status("starting"))
	problems, err := h.apply(ctx, o.cfg)
	if err == nil {
		o.tell(o.notifier.Ready(h.summary(problems)))
		o.heart = h.startHeart(ctx)
		o.ready(h)
		o.obey(ctx, h, hups)
		o.heart.wait()
	}
	o.tell(o.notifier.Stopping("draining: mounts, gateways, I/O servers, metadata"))
	stopErr := h.stop(now)
	if ctx.Err() != nil {
		err = nil // interrupted, as the user wished
	}
	if now.Err() != nil {
		stopErr = errors.Join(stopErr, refuse("ended at once, by a second signal",
			"What was not written back is sent again by clients that live"))
	}
	return errors.Join(err, stopErr)
}

// acquire takes the lock of the folder.
func (c *cluster) acquire() (*supervise.Lock, error) {
	lock, err := supervise.Acquire(c.lockFile())
	if errors.Is(err, errs.Busy) {
		return nil, refuse("the cluster in "+c.dir+" is running already", "See it with: sluice status "+
			"--dir "+c.shown()+"   Stop it with: sluice down --dir "+c.shown())
	}
	return lock, err
}

// tell logs that the service manager was not reached, which stops nothing.
func (o *hostRun) tell(err error) {
	if err != nil {
		o.log.Warn("the service manager does not hear", "err", err)
	}
}

// obey does what signals ask for until ctx ends.
func (o *hostRun) obey(ctx context.Context, h *host, hups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hups:
			o.tell(o.notifier.Reloading("reading " + h.cfg.File()))
			o.tell(o.notifier.Ready(o.reapply(ctx, h)))
		}
	}
}

// reapply reads the file again and applies it. One that is wrong changes nothing.
func (o *hostRun) reapply(ctx context.Context, h *host) (status string) {
	cfg, err := o.reload()
	if err == nil {
		err = h.accepts(cfg)
	}
	if err != nil {
		o.log.Error("the file is not taken; everything goes on as it was", "file", h.cfg.File(),
			"err", oneLine(explain(err)))
		return "as before: " + firstLine(err)
	}
	problems, err := h.apply(ctx, cfg)
	if err != nil && ctx.Err() == nil {
		problems = append(problems, err)
		o.log.Error("not all of the file could be applied", "file", cfg.File(), "err", err)
	}
	o.heart.changed(cfg)
	o.log.Info("reloaded", "file", cfg.File(), "processes", len(h.running), "problems", len(problems))
	return h.summary(problems)
}

// oneLine is for logs, which have a line for each event.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// summary is one line about what runs.
func (h *host) summary(problems []error) string {
	text := fmt.Sprintf("%d processes of cluster %s at %s", len(h.running), h.cfg.Cluster, h.url)
	if len(problems) > 0 {
		text += fmt.Sprintf("; %d do not work: %s", len(problems), firstLine(problems[0]))
	}
	return text
}

// accepts refuses a file that cannot take the place of the one that runs.
func (h *host) accepts(cfg *config.Config) error {
	var problems config.Invalid
	for _, k := range []struct{ key, is, was string }{
		{"folder", cfg.Folder, h.cfg.Folder}, {"cluster", cfg.Cluster, h.cfg.Cluster},
		{"host", cfg.Host, h.cfg.Host}, {"security", string(cfg.Security), string(h.cfg.Security)},
		{"in-memory", fmt.Sprint(cfg.InMemory), fmt.Sprint(h.cfg.InMemory)},
	} {
		if k.is != k.was {
			problems = append(problems, cfg.Problem(k.key, fmt.Sprintf("it is %s while it runs", k.was),
				"Put it back, or stop sluice serve and start it again"))
		}
	}
	mounted := map[string]bool{}
	for _, r := range h.running {
		mounted[r.dir] = true
	}
	for i, m := range cfg.Mounts {
		used, err := isMountpoint(m.Dir)
		if err == nil && used && !mounted[m.Dir] && !isDeadMount(m.Dir) {
			problems = append(problems, cfg.Problem(config.Key("mount", i, "dir"),
				"something else is mounted at "+m.Dir, "Choose another directory"))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	_, err := iodRoles(h.cluster, cfg)
	return err
}

// atOnce is a context that a second signal ends, after the one that ends ctx.
func atOnce(ctx context.Context) (now context.Context, stop func()) {
	now, cancel := context.WithCancel(context.WithoutCancel(ctx))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		left := 2
		if ctx.Err() != nil {
			left = 1 // the first has come before anybody listened here
		}
		for range left {
			select {
			case <-signals:
			case <-now.Done():
				return
			}
		}
		cancel()
	}()
	return now, func() { signal.Stop(signals); cancel() }
}

// keepWatch tells the service manager's watchdog that whoever supervises is not stuck: its state
// can be read, which needs its lock.
func keepWatch(ctx context.Context, n *sdnotify.Notifier, g *supervise.Group, log *slog.Logger) {
	every := n.Watchdog()
	if every == 0 {
		return
	}
	tick := time.NewTicker(max(every/3, time.Millisecond))
	defer tick.Stop()
	for {
		_ = g.State()
		if err := n.Alive(); err != nil {
			log.Warn("the watchdog does not hear", "err", err)
		}
		select {
		case <-ctx.Done(): // what stops is watched by the time that it may take
			return
		case <-tick.C:
		}
	}
}
