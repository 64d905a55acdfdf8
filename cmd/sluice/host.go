package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/supervise"
	"github.com/sluice-storage/sluice/meta"
)

// readyMax is how long a host may take to start: servers read their logs, on slow disks and busy
// hosts too. A process that cannot start ends the wait at once.
const readyMax = 5 * time.Minute

// stopMax is how long a host may take to stop: the longest times of each stage, one after the
// other, add up to 95 s.
const stopMax = 100 * time.Second

// host runs what a file asks for, as processes that are started again when they die. It is what
// sluice up and sluice serve have in common. One goroutine uses it.
type host struct {
	cluster *cluster
	cfg     *config.Config // what it runs, or is about to
	self    string         // this program
	log     *slog.Logger
	group   *supervise.Group
	running map[string]role
	url     string // of the cluster
	addrs   map[int]string

	// strict makes any process that cannot start the end of it; otherwise the rest goes on.
	strict bool
}

// newHost prepares to run what is in a cluster's folder, which must be locked.
func newHost(c *cluster, log *slog.Logger) (*host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if _, err := loadTuning(c.dir); err != nil {
		return nil, err
	}
	h := &host{cluster: c, self: self, log: log, running: map[string]role{}, addrs: map[int]string{}}
	h.group, err = supervise.New(supervise.Options{StateFile: c.stateFile(), Logger: log,
		Write: func(write func() error) error { return withBallast(c.path("run"), write) }})
	return h, err
}

// apply makes the host run what a file asks for: what is not in it any more ends, what is new
// starts, what is changed is started anew, one after the other; the rest goes on. problems are of
// processes that do not work; err says why nothing more can be done.
func (h *host) apply(ctx context.Context, cfg *config.Config) (problems []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	h.cfg = cfg
	if err := h.cluster.record(cfg); err != nil {
		return nil, err
	}
	h.endOthers(ctx, roleNames(cfg))
	if err := h.settleMeta(ctx); err != nil {
		return nil, err
	}
	iods, err := iodRoles(h.cluster, cfg)
	if err != nil {
		return nil, err
	}
	for _, stage := range [][]role{iods, nbdRoles(h.cluster, cfg, h.url),
		mountRoles(h.cluster, cfg, h.url)} {
		found, err := h.settle(ctx, stage)
		problems = append(problems, found...)
		if err != nil {
			return problems, err
		}
	}
	return problems, h.saveUp()
}

// endOthers ends processes that are not wanted any more.
func (h *host) endOthers(ctx context.Context, wanted map[string]bool) {
	var gone []string
	for _, name := range sortedNames(h.running) {
		if !wanted[name] {
			gone = append(gone, name)
		}
	}
	h.end(ctx, gone...)
}

// end stops some processes and takes their mounts away.
func (h *host) end(ctx context.Context, names ...string) {
	if len(names) == 0 {
		return
	}
	if err := h.group.Remove(ctx, names...); err != nil {
		h.log.Error("state file", "err", err)
	}
	for _, name := range names {
		if dir := h.running[name].dir; dir != "" {
			if _, err := freeMountpoint(dir); err != nil {
				h.log.Error("the mount stays", "process", name, "dir", dir, "err", err)
			}
		}
		delete(h.running, name)
	}
}

// begin starts a process.
func (h *host) begin(ctx context.Context, r role) error {
	if r.file != "" {
		if err := forgetAddr(r.file); err != nil {
			return err
		}
	}
	if r.dir != "" {
		awaitMountpoint(ctx, r.dir) // who served it for one that was killed ends soon
		if _, err := prepareMountpoint(r.dir); err != nil {
			return err
		}
	}
	if err := h.group.Start(r.spec(h.self, h.cluster)); err != nil {
		return err
	}
	h.running[r.name] = r
	return nil
}

// settleMeta finds the metadata service, or runs it.
func (h *host) settleMeta(ctx context.Context) error {
	c := h.cluster
	if h.cfg.Meta == nil {
		if len(h.cfg.Join) == 0 {
			h.url = ""
			return nil
		}
		addr := h.chooseJoin(ctx)
		h.url = scheme + "//" + addr
		return writeFile(c.metaAddrFile(), []byte(addr+"\n"), 0o644)
	}
	r := metaRole(c, h.cfg)
	old, runs := h.running[r.name]
	if runs && old.same(&r) {
		return nil
	}
	h.end(ctx, r.name)
	if err := c.keepPort(h.cfg.Meta.Listen); err != nil {
		return err
	}
	began := time.Now()
	if err := h.begin(ctx, r); err != nil {
		return err
	}
	addr := ""
	err := h.await(ctx, r.name, func() (bool, error) {
		info, err := os.Stat(c.metaAddrFile())
		if err != nil || info.ModTime().Before(began.Add(-clockGrain)) {
			return false, err
		}
		addr, err = c.metaAddr()
		return addr != "", err
	})
	h.url = scheme + "//" + addr
	return err
}

// clockGrain is by how much a file's time may be behind the clock.
const clockGrain = 20 * time.Millisecond

// joinTry is how long one address may take to answer.
const joinTry = 2 * time.Second

// chooseJoin picks the first address at which the metadata service answers. Where none does the
// first is taken: what runs here waits for it.
func (h *host) chooseJoin(ctx context.Context) string {
	for _, addr := range h.cfg.Join {
		try, cancel := context.WithTimeout(ctx, joinTry)
		conn, err := dialMeta(try, scheme+"//"+addr, byOf(h.cfg).within(h.cluster))
		cancel()
		if err == nil {
			conn.close()
			return addr
		}
		h.log.Warn("the metadata service does not answer there", "addr", addr, "err", err)
	}
	return h.cfg.Join[0]
}

// settle brings the processes of a stage to what they should be: new ones all at once, changed ones
// one after the other, so that the rest serves meanwhile.
func (h *host) settle(ctx context.Context, stage []role) (problems []error, err error) {
	var fresh, changed []role
	for _, r := range stage {
		switch old, runs := h.running[r.name]; {
		case !runs:
			fresh = append(fresh, r)
		case !old.same(&r):
			changed = append(changed, r)
		case !slices.Equal(old.reads, r.reads):
			h.tellToRead(&r)
		}
	}
	batches := [][]role{fresh}
	for _, r := range changed {
		batches = append(batches, []role{r})
	}
	for _, batch := range batches {
		for _, err := range h.renew(ctx, batch) {
			if h.strict || ctx.Err() != nil {
				return problems, err
			}
			h.log.Error("not everything runs; the rest goes on", "err", oneLine(explain(err)))
			problems = append(problems, err)
		}
	}
	return problems, nil
}

// tellToRead has a process read again what it has from the host's file.
func (h *host) tellToRead(r *role) {
	h.running[r.name] = *r
	for _, p := range h.group.State().Processes {
		if p.Name != r.name || p.PID == 0 || p.Status != supervise.Running {
			continue // one that starts reads the file then
		}
		if err := syscall.Kill(p.PID, syscall.SIGHUP); err != nil {
			h.log.Error("the process cannot be told to read the file", "process", r.name, "err", err)
		}
	}
}

// renew starts processes, or starts them anew, and waits until each works or is known not to.
func (h *host) renew(ctx context.Context, batch []role) (problems []error) {
	var started []role
	for _, r := range batch {
		h.end(ctx, r.name)
	}
	seen, err := h.lastSeen(ctx, batch)
	if err != nil {
		if h.strict || ctx.Err() != nil {
			return []error{err}
		}
		h.log.Warn("the metadata service does not answer; servers tell it of themselves when it does",
			"err", err)
	}
	for _, r := range batch {
		if err := h.begin(ctx, r); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", r.name, err))
			continue
		}
		started = append(started, r)
	}
	for _, r := range started {
		if err := h.awaitRole(ctx, &r, seen); err != nil {
			problems = append(problems, err)
		}
	}
	if seen != nil {
		seen.close()
	}
	return problems
}

// sightings is when the metadata service heard of servers last, by its own clock.
type sightings struct {
	conn *metaConnection
	last map[int]int64
}

func (s *sightings) close() { s.conn.close() }

// lastSeen asks before servers start, so that what is remembered of an earlier run does not count;
// nil where there are none.
func (h *host) lastSeen(ctx context.Context, batch []role) (*sightings, error) {
	if !slices.ContainsFunc(batch, func(r role) bool { return r.stage == stageIod }) {
		return nil, nil
	}
	if h.cfg.Meta == nil {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, joinTry)
		defer cancel()
	}
	conn, err := dialMeta(ctx, h.url, byOf(h.cfg).within(h.cluster))
	if err != nil {
		return nil, err
	}
	servers, err := conn.meta.Servers(ctx)
	if err != nil {
		conn.close()
		return nil, err
	}
	s := &sightings{conn: conn, last: map[int]int64{}}
	for _, one := range servers {
		s.last[int(one.ID)] = one.LastSeen
	}
	return s, nil
}

// awaitRole waits until a process does its work.
func (h *host) awaitRole(ctx context.Context, r *role, seen *sightings) error {
	switch r.stage {
	case stageIod:
		if seen == nil {
			return nil // there is nobody to ask
		}
		return h.await(ctx, r.name, func() (bool, error) {
			servers, err := seen.conn.meta.Servers(ctx)
			i := slices.IndexFunc(servers, func(s meta.Server) bool { return int(s.ID) == r.id })
			if err != nil || i < 0 || !servers[i].Up || servers[i].LastSeen <= seen.last[r.id] {
				return false, err
			}
			h.addrs[r.id] = servers[i].Addr
			return true, nil
		})
	case stageNBD:
		return h.await(ctx, r.name, func() (bool, error) { return isFile(r.file), nil })
	case stageMount:
		return h.await(ctx, r.name, func() (bool, error) { return isMountpoint(r.dir) })
	}
	return nil
}

// await asks until the answer is yes. A process that dies again and again ends it early, with its
// last words.
func (h *host) await(ctx context.Context, process string, ready func() (bool, error)) error {
	for {
		ok, err := ready()
		if ok && err == nil {
			return nil
		}
		for _, p := range h.group.State().Processes {
			n := len(p.Exits)
			if p.Name != process || n == 0 || n < 3 && p.Status != supervise.Stopped {
				continue
			}
			err := errs.Newf(errs.IO, "start", process, "%s", p.Exits[n-1].How())
			if process == "meta" && strings.Contains(p.Exits[n-1].Said, errs.Corrupt.String()) {
				err = errs.Newf(errs.Corrupt, "start", process, "%s", p.Exits[n-1].How())
				return metaAdvice(err, h.cluster.dir)
			}
			return hint(err, "All it said is in %s", h.cluster.logFile(process))
		}
		select {
		case <-ctx.Done():
			return hint(errs.New(errs.TimedOut, "start", process, err),
				"All it said is in %s", h.cluster.logFile(process))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends everything, bounded, and forgets where it was. Ending ctx ends it at once.
func (h *host) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopMax)
	defer cancel()
	err := h.group.Stop(ctx)
	for _, r := range h.running { // one that was killed has left its mount
		if r.dir != "" {
			_, e := freeMountpoint(r.dir)
			err = errors.Join(err, e)
		}
		if r.file != "" {
			err = errors.Join(err, forgetAddr(r.file))
		}
	}
	for _, name := range []string{h.cluster.metaAddrFile(), h.cluster.upFile()} {
		err = errors.Join(err, forgetAddr(name))
	}
	return err
}

// record notes in the folder what its processes must know of a file.
func (c *cluster) record(cfg *config.Config) error {
	text, err := json.Marshal(storesOf(cfg))
	if err != nil {
		return err
	}
	if err := writeFile(c.storesFile(), append(text, '\n'), 0o644); err != nil {
		return err
	}
	for _, d := range cfg.Iods {
		c.cfg.Iods = max(c.cfg.Iods, d.ID)
		for _, path := range d.Store {
			if !isBlockDevice(path) {
				if err := os.MkdirAll(path, 0o700); err != nil {
					return err
				}
			}
		}
	}
	if cfg.Meta != nil {
		c.cfg.Listen = cfg.Meta.Listen[0]
	}
	c.cfg.Security = cfg.Security
	return c.saveConfig()
}

// keepPort forgets the address of a metadata service that is to listen elsewhere. One that was
// given any free port keeps it: its clients look for it there.
func (c *cluster) keepPort(listen []string) error {
	if c.metaListen(listen[0]) != listen[0] {
		return nil
	}
	return forgetAddr(c.metaAddrFile())
}
