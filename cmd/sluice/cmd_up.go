package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/config"
)

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
	at                 joinFlag
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
	o.at.add(cmd)
	o.by.add(cmd)
	o.by.secret.addServer(cmd)
	addJSON(cmd, &o.asJSON, upStory{})
	return cmd
}

// runUp is `sluice up` in the foreground: sluice init and sluice serve in one step.
func runUp(cmd *cobra.Command, o upOptions) error {
	c, err := prepare(o)
	if err != nil {
		return err
	}
	cfg, err := o.config(c)
	if err != nil {
		return err
	}
	return c.runHost(cmd.Context(), hostRun{cfg: cfg, strict: true, log: newLogger(),
		ready: func(h *host) {
			if err := c.finish(); err != nil { // the next start looks for what is half made once more
				h.log.Warn("cluster.json", "err", err)
			}
			announce(cmd, h.story(&o))
		}})
}

// check refuses flags that nothing could be made of.
func (o *upOptions) check() error {
	err := errors.Join(checkAddr(o.listen), o.by.secret.check(), o.memory.check(),
		o.web.check(true), o.sessions.check(), o.at.check())
	if err != nil {
		return err
	}
	if err := o.by.check(); err != nil {
		return err
	}
	return checkCount(o.iods)
}

// prepare opens the cluster, or makes it, and holds what was asked for against what it is. Its
// stores are made by its servers, all at the same time.
func prepare(o upOptions) (*cluster, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	stores, err := absolutePaths(o.stores)
	if err == nil {
		err = checkStores(stores, o.iods)
	}
	if err != nil {
		return nil, err
	}
	asked := ""
	switch {
	case o.given("security"):
		asked = o.by.secret.security
	case o.at.listen != "": // who joins gets a certificate, and nothing else
		asked = string(config.TLS)
	}
	if _, err := os.Stat(filepath.Join(o.dir, "cluster.json")); errors.Is(err, os.ErrNotExist) {
		security, err := securityOf(o.listen, asked)
		if err != nil {
			return nil, err
		}
		f := &founding{dir: o.dir, cfg: clusterConfig{Iods: o.iods, Mem: o.mem, Stores: stores,
			Listen: o.listen, Name: clusterName, Host: localName(), Security: security}}
		if err := f.makeFolder(); err != nil {
			return nil, err
		}
		if err := f.cluster.makeHostKeys(security); err != nil {
			return nil, err
		}
		return f.cluster, f.cluster.writeConfig(f.cluster.cfg)
	}
	c, err := openCluster(o.dir)
	if err != nil {
		return nil, err
	}
	if c.cfg.Unfinished { // an earlier start was interrupted
		f := &founding{dir: o.dir, cfg: c.cfg}
		if _, err := f.run(); err != nil {
			return nil, err
		}
		c = f.cluster
	}
	was := c.cfg
	if err := o.change(c, stores); err != nil {
		return nil, err
	}
	if c.cfg.Joined {
		return nil, refuse("the host in "+o.dir+" has joined a cluster that was made elsewhere",
			"Start it with: sluice serve --config "+c.configFile())
	}
	if asked != "" || !config.IsLoopback(c.cfg.Listen) && !c.cfg.Security.Keyed() {
		if c.cfg.Security, err = securityOf(c.cfg.Listen, asked); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(checkStores(c.cfg.Stores, c.cfg.Iods), c.makeDirs(),
		c.makeHostKeys(c.cfg.Security)); err != nil {
		return nil, err
	}
	edited, err := c.changeConfig(was, c.cfg)
	if err == nil && edited && c.cfg.Iods != was.Iods {
		return nil, refuse(c.configFile()+" was edited, and is yours to change",
			"Add an [[iod]] to it for each new I/O server, and start it without --iods")
	}
	return c, errors.Join(err, c.saveConfig())
}

// change holds what was asked for against a cluster, and carries out what can be changed.
func (o *upOptions) change(c *cluster, stores []string) error {
	switch {
	case o.given("mem") && o.mem != c.cfg.Mem:
		return refuse(fmt.Sprintf("the cluster in %s was made with --mem=%v", o.dir, c.cfg.Mem),
			"Use another folder: --dir")
	case o.given("store") && !slices.Equal(stores, c.cfg.Stores):
		return refuse(fmt.Sprintf("the cluster in %s has its stores elsewhere: %v", o.dir,
			c.cfg.Stores), "Start it without --store, or make a new one in another folder: --dir")
	case o.given("iods") && o.iods < c.cfg.Iods:
		return refuse(fmt.Sprintf("the cluster in %s has %d I/O servers, and files on them",
			o.dir, c.cfg.Iods), "Start it without --iods, or make a new one in another folder: --dir")
	case o.given("iods"):
		c.cfg.Iods = o.iods
	}
	if o.given("listen") {
		c.cfg.Listen = o.listen
	}
	if c.cfg.Name == "" {
		c.cfg.Name, c.cfg.Host = clusterName, localName()
	}
	return nil
}

// clusterName is that of a cluster that nobody has given one.
const clusterName = "sluice"

// config is what the folder's file says, with what the flags say besides for this run.
func (o *upOptions) config(c *cluster) (*config.Config, error) {
	cfg, err := loadConfig(c.configFile())
	if err != nil {
		return nil, err
	}
	if o.given("listen") && cfg.Meta != nil {
		cfg.Listen, cfg.Meta.Listen = config.List{o.listen}, config.List{o.listen}
	}
	if o.given("admin") {
		cfg.Admin = o.web.listen
	}
	if o.given("providers") {
		cfg.Providers = strings.Split(o.by.list, ",")
	}
	if o.given("progress") {
		cfg.Progress = o.by.progress
	}
	cfg.TrustLocal = cfg.TrustLocal || o.by.secret.trust
	o.overlayMeta(cfg)
	o.overlayIods(cfg)
	if err := o.overlayMount(cfg); err != nil {
		return nil, err
	}
	cfg, err = parseConfig(config.Render(cfg, ""), c.configFile())
	if err != nil {
		return nil, err
	}
	_, err = openHost(cfg)
	return cfg, err
}

func (o *upOptions) overlayMeta(cfg *config.Config) {
	m := cfg.Meta
	if m == nil {
		return
	}
	for flag, set := range map[string]func(){
		"admin":          func() { m.Admin = o.web.listen },
		"join":           func() { m.Join = o.at.listen },
		"session-time":   func() { m.SessionTime = config.Duration(o.sessions.time) },
		"lease-time":     func() { m.LeaseTime = config.Duration(o.sessions.lease) },
		"open-files":     func() { m.OpenFiles = o.sessions.files },
		"open-files-all": func() { m.OpenFilesAll = o.sessions.all },
	} {
		if o.given(flag) {
			set()
		}
	}
}

func (o *upOptions) overlayIods(cfg *config.Config) {
	for i := range cfg.Iods {
		d := &cfg.Iods[i]
		for flag, set := range map[string]func(){
			"admin":      func() { d.Admin = o.web.listen },
			"memory":     func() { d.Memory = config.Size(o.memory.memory) },
			"ready":      func() { d.Ready = config.Size(o.memory.ready) },
			"readahead":  func() { d.Readahead = config.Size(o.memory.readahead) },
			"reserve":    func() { d.Reserve = config.Size(o.memory.reserve) },
			"huge-pages": func() { d.HugePages = o.memory.huge },
			"write-back": func() { d.WriteBack = &o.memory.writeBack },
			"lend":       func() { d.Lend = &o.memory.lend },
		} {
			if o.given(flag) {
				set()
			}
		}
	}
}

// overlayMount adds the mount of --mount, unless the file has it.
func (o *upOptions) overlayMount(cfg *config.Config) error {
	if o.mount == "" {
		return nil
	}
	dir, err := filepath.Abs(o.mount)
	if err != nil {
		return err
	}
	m := config.Mount{Dir: dir, Name: "mount", Admin: cfg.Admin}
	for _, other := range cfg.Mounts {
		if other.Dir == dir {
			return nil
		}
		if other.Name == m.Name {
			m.Name += "-up"
		}
	}
	cfg.Mounts = append(cfg.Mounts, m)
	return nil
}

// clean removes what an earlier run left. A cluster in memory forgets its names too: their data is
// gone.
func (c *cluster) clean() error {
	left, err := filepath.Glob(c.path("run", "*"+adminSuffix))
	if err != nil {
		return err
	}
	for _, name := range append(left, c.metaAddrFile(), c.joinAddrFile(), c.upFile(),
		c.stateFile()) {
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
