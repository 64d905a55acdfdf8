package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench/tune"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/supervise"
)

// readyMax is how long a cluster may take to start: servers read their logs, on slow disks and busy
// hosts too. A process that cannot start ends the wait at once.
const readyMax = 5 * time.Minute

// upOptions is what `sluice up` was asked for.
type upOptions struct {
	dir, mount, listen string
	iods               int
	mem, detach        bool
	asJSON             bool
	stores             []string
	given              func(flag string) bool
	by                 providersFlag
	memory             memoryFlags
	web                adminFlag
	sessions           sessionFlag
}

func newUp() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this host: a metadata service and I/O servers",
		Long: `Starts a cluster on this host and keeps it alive: one metadata service, N I/O servers
and, with --mount, a mount, each a process of its own that is started again when it dies.
The first time it makes the cluster in DIR; later it starts the one that is there, with
its data.

Only the user who starts it, and root, can use it: what is in DIR/cluster.secret has to be
proved to its servers. --trust-local lets every user of this host in.`,
		Example: "  sluice up -d --mount ./mnt\n  sluice up --mem --iods 2",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed
			if o.detach {
				return detach(cmd, detachOptions{log: filepath.Join(o.dir, "log", "up.log"),
					args: withoutDetach(os.Args[1:])})
			}
			return runUp(cmd, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "dir", defaultDir, "the cluster's folder")
	flags.IntVar(&o.iods, "iods", 4, "how many I/O servers; a cluster can grow but not shrink")
	flags.BoolVar(&o.mem, "mem", false, "keep data in memory: gone when the cluster stops")
	flags.StringVar(&o.mount, "mount", "", "mount the file system at this directory")
	flags.StringVar(&o.listen, "listen", defaultListen, "address of the metadata service; port 0: any")
	flags.StringArrayVar(&o.stores, "store", nil,
		"where the servers' stores lie, with the cluster's making: a folder, or a block device that "+
			"sluice store init has prepared; several times for several disks (default DIR)")
	flags.BoolVarP(&o.detach, "detach", "d", false, "return when it is ready and leave it running")
	o.memory.add(cmd)
	o.web.add(cmd, defaultAdmin)
	o.sessions.add(cmd)
	o.by.add(cmd)
	o.by.secret.addServer(cmd)
	addJSON(cmd, &o.asJSON, upStory{})
	return cmd
}

// runUp is `sluice up` in the foreground.
func runUp(cmd *cobra.Command, o upOptions) error {
	c, err := prepare(o)
	if err != nil {
		return err
	}
	lock, err := supervise.Acquire(c.lockFile())
	if errors.Is(err, errs.Busy) {
		return refuse("the cluster in "+c.dir+" is running already",
			"See it with: sluice status --dir "+o.dir+"   Stop it with: sluice down --dir "+o.dir)
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := c.clean(); err != nil {
		return err
	}
	u, err := newUpper(c, o)
	if err != nil {
		return err
	}
	go c.holdBallast(cmd.Context())
	err = u.start(cmd.Context())
	if err == nil {
		announce(cmd, u.story())
		<-cmd.Context().Done()
	}
	stopErr := u.stop()
	if cmd.Context().Err() != nil {
		err = nil // interrupted, as the user wished
	}
	return errors.Join(err, stopErr)
}

// prepare opens the cluster, or makes it, and holds what was asked for against what it is.
func prepare(o upOptions) (*cluster, error) {
	if err := checkLoopback(o.listen); err != nil {
		return nil, err
	}
	if err := errors.Join(o.memory.check(), o.web.check(true), o.sessions.check()); err != nil {
		return nil, err
	}
	if err := o.by.check(); err != nil {
		return nil, err
	}
	if o.iods < 1 || o.iods > iodsMax {
		return nil, refuse(fmt.Sprintf("--iods %d", o.iods), fmt.Sprintf("Choose from 1 to %d", iodsMax))
	}
	stores, err := absolutePaths(o.stores)
	if err == nil {
		err = checkStores(stores, o.iods)
	}
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(o.dir, "cluster.json")); errors.Is(err, os.ErrNotExist) {
		return createCluster(o.dir, clusterConfig{Iods: o.iods, Mem: o.mem, Stores: stores,
			Listen: o.listen})
	}
	c, err := openCluster(o.dir)
	if err != nil {
		return nil, err
	}
	switch {
	case o.given("mem") && o.mem != c.cfg.Mem:
		return nil, refuse(fmt.Sprintf("the cluster in %s was made with --mem=%v", o.dir, c.cfg.Mem),
			"Use another folder: --dir")
	case o.given("store") && !slices.Equal(stores, c.cfg.Stores):
		return nil, refuse(fmt.Sprintf("the cluster in %s has its stores elsewhere: %v", o.dir,
			c.cfg.Stores), "Start it without --store, or make a new one in another folder: --dir")
	case o.given("iods") && o.iods < c.cfg.Iods:
		return nil, refuse(fmt.Sprintf("the cluster in %s has %d I/O servers, and files on them",
			o.dir, c.cfg.Iods), "Start it without --iods, or make a new one in another folder: --dir")
	case o.given("iods"):
		c.cfg.Iods = o.iods
	}
	if err := checkStores(c.cfg.Stores, c.cfg.Iods); err != nil {
		return nil, err
	}
	if o.given("listen") {
		c.cfg.Listen = o.listen
	}
	if err := c.makeDirs(); err != nil {
		return nil, err
	}
	return c, c.saveConfig()
}

// clean removes what an earlier run left. A cluster in memory forgets its names too: their data is
// gone.
func (c *cluster) clean() error {
	left, err := filepath.Glob(c.path("run", "*"+adminSuffix))
	if err != nil {
		return err
	}
	for _, name := range append(left, c.metaAddrFile(), c.upFile(), c.stateFile()) {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if !c.cfg.Mem {
		return nil
	}
	if err := os.RemoveAll(c.metaDir()); err != nil {
		return err
	}
	return os.Mkdir(c.metaDir(), 0o700)
}

// upper starts and stops a cluster's processes.
type upper struct {
	cluster *cluster
	opts    upOptions
	self    string // this program
	mount   string // absolute; empty without
	group   *supervise.Group
	began   time.Time
	url     string
	addrs   []string // of the I/O servers
}

func newUpper(c *cluster, o upOptions) (*upper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	u := &upper{cluster: c, opts: o, self: self, began: time.Now()}
	if o.mount != "" {
		if u.mount, err = prepareMountpoint(o.mount); err != nil {
			return nil, err
		}
	}
	if _, err := loadTuning(c.dir); err != nil {
		return nil, err
	}
	u.group, err = supervise.New(supervise.Options{StateFile: c.stateFile(), Logger: newLogger(),
		Write: func(write func() error) error { return withBallast(c.path("run"), write) }})
	return u, err
}

// The stages in which processes stop: the mount first, the metadata service last.
const (
	stageMeta = iota
	stageIod
	stageMount
)

func (u *upper) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	c := u.cluster
	by := append(u.opts.by.args(), "--admin", u.opts.web.listen)
	trust := u.opts.by.secret.args()
	err := u.child("meta", stageMeta,
		slices.Concat([]string{"meta", "--dir", c.dir}, u.opts.sessions.args(), by, trust)...)
	if err != nil {
		return err
	}
	addr, err := u.awaitMeta(ctx)
	if err != nil {
		return err
	}
	u.url = scheme + "//" + addr
	for id := 1; id <= c.cfg.Iods; id++ {
		err := u.child(fmt.Sprintf("iod%d", id), stageIod, slices.Concat([]string{"iod", "--dir", c.dir,
			"--id", strconv.Itoa(id)}, u.opts.memory.args(), by, trust)...)
		if err != nil {
			return err
		}
	}
	if u.addrs, err = u.awaitServers(ctx); err != nil {
		return err
	}
	if u.mount != "" {
		err := u.child("mount", stageMount,
			append([]string{"mount", "--keep-trying", "--admin-file", c.adminFile("mount"), "--secret",
				c.secretFile(), u.url, u.mount}, by...)...)
		if err != nil {
			return err
		}
		err = u.await(ctx, "mount", func() (bool, error) { return isMountpoint(u.mount) })
		if err != nil {
			return err
		}
	}
	return u.saveUp()
}

// child starts one process of this program.
func (u *upper) child(name string, stage int, args ...string) error {
	s := supervise.Spec{Name: name, Path: u.self, Args: args, Stage: stage,
		Log: u.cluster.logFile(name),
		Env: []string{readyEnv + "="}} // it has nobody to tell that it is ready
	if stage == stageMount {
		if tuned := filepath.Join(u.cluster.dir, tune.File); isFile(tuned) {
			s.Env = append(s.Env, tuningEnv+"="+tuned)
		}
		s.MayEnd = true                 // when somebody unmounts it
		s.DeathSignal = syscall.SIGTERM // so that it unmounts
		s.StopMax = mountStopMax
	}
	return u.group.Start(s)
}

// mountStopMax is how long a mount may take to end: programs are given time to leave it, and what
// they have written is told to the servers.
const mountStopMax = 20 * time.Second

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// await asks until the answer is yes. A process that dies again and again ends it early, with its
// last words.
func (u *upper) await(ctx context.Context, process string, ready func() (bool, error)) error {
	for {
		ok, err := ready()
		if ok && err == nil {
			return nil
		}
		for _, p := range u.group.State().Processes {
			if n := len(p.Exits); p.Name == process && n >= 3 {
				err := errs.Newf(errs.IO, "up", process, "%s", p.Exits[n-1].How())
				if process == "meta" && strings.Contains(p.Exits[n-1].Said, errs.Corrupt.String()) {
					err = errs.Newf(errs.Corrupt, "up", process, "%s", p.Exits[n-1].How())
					return metaAdvice(err, u.cluster.dir)
				}
				return hint(err, "All it said is in %s", u.cluster.logFile(process))
			}
		}
		select {
		case <-ctx.Done():
			return hint(errs.New(errs.TimedOut, "up", process, err),
				"All it said is in %s", u.cluster.logFile(process))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitMeta returns the metadata service's address once it is known.
func (u *upper) awaitMeta(ctx context.Context) (addr string, err error) {
	err = u.await(ctx, "meta", func() (bool, error) {
		text, err := os.ReadFile(u.cluster.metaAddrFile())
		addr = strings.TrimSpace(string(text))
		return addr != "", err
	})
	return addr, err
}

// awaitServers returns the I/O servers' addresses once all of them have joined. What the metadata
// service remembers of an earlier run does not count.
func (u *upper) awaitServers(ctx context.Context) ([]string, error) {
	conn, err := dialMeta(ctx, u.url, u.opts.by.within(u.cluster))
	if err != nil {
		return nil, err
	}
	defer conn.close()
	var addrs []string
	for id := 1; id <= u.cluster.cfg.Iods; id++ {
		err := u.await(ctx, fmt.Sprintf("iod%d", id), func() (bool, error) {
			servers, err := conn.meta.Servers(ctx)
			for _, s := range servers {
				if s.ID == uint32(id) && s.Up && s.LastSeen > u.began.UnixNano() {
					addrs = append(addrs, s.Addr)
					return true, nil
				}
			}
			return false, err
		})
		if err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// stop ends everything, bounded, and forgets where it was.
func (u *upper) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := u.group.Stop(ctx)
	if u.mount != "" { // one that was killed, and not started again by now, has left its mount
		_, e := freeMountpoint(u.mount)
		err = errors.Join(err, e)
	}
	for _, name := range []string{u.cluster.metaAddrFile(), u.cluster.upFile()} {
		if e := os.Remove(name); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
