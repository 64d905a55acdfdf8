package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv/pebblekv"
)

// founding makes the first host of a cluster in a folder, step by step. Each step can be repeated,
// and finds what an attempt has left that was killed.
type founding struct {
	dir     string
	cfg     clusterConfig // what is asked for
	cluster *cluster      // after the first step
}

// foundingStep is one of them.
type foundingStep struct {
	what string
	do   func() error
}

// steps are in their order: who finds the file sluice.toml finds all the rest.
func (f *founding) steps() []foundingStep {
	steps := []foundingStep{
		{"the folder", f.makeFolder},
		{"keys", func() error { return f.cluster.makeHostKeys(f.cfg.Security) }},
		{"the metadata store", f.makeMeta},
	}
	for id := 1; id <= f.cfg.Iods; id++ {
		steps = append(steps, foundingStep{fmt.Sprintf("the store of I/O server %d", id),
			func() error { return f.makeStore(id) }})
	}
	return append(steps, foundingStep{"its file " + config.FileName, func() error {
		return errors.Join(f.cluster.writeConfig(f.cluster.cfg), f.cluster.finish())
	}})
}

// finish notes that everything has been made.
func (c *cluster) finish() error {
	c.cfg.Unfinished = false
	return c.saveConfig()
}

// securityOf is how the processes of a cluster know each other that listens somewhere: as it was
// asked for, else as is needed there.
func securityOf(listen, asked string) (config.Security, error) {
	near, s := config.IsLoopback(listen), config.Security(asked)
	switch {
	case asked == "" && near:
		return config.Secret, nil
	case asked == "":
		return config.TLS, nil
	case s != config.Secret && !s.Keyed():
		return "", refuse("--security "+asked, fmt.Sprintf("Choose of %s, %s and %s", config.Secret,
			config.TLS, config.Authenticated))
	case s == config.Secret && !near:
		return "", refuse("refusing to listen on "+listen+": other hosts could reach it, and a secret "+
			"asks them nothing", "Leave --security out, or use a loopback address")
	}
	return s, nil
}

// makeFolder makes the folder with its keys, or opens what an earlier attempt has made.
func (f *founding) makeFolder() error {
	name := filepath.Join(f.dir, "cluster.json")
	if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
		if err := refuseForeign(f.dir, &f.cfg); err != nil {
			return err
		}
		cfg := f.cfg
		cfg.Unfinished = true
		f.cluster, err = createCluster(f.dir, cfg)
		return err
	}
	c, err := openCluster(f.dir)
	if err != nil {
		return err
	}
	if err := c.isAsked(&f.cfg); err != nil {
		return err
	}
	f.cluster = c
	return c.makeDirs()
}

// isAsked refuses the folder of another cluster, or of one that was made differently.
func (c *cluster) isAsked(asked *clusterConfig) error {
	switch {
	case c.cfg.Name != asked.Name:
		return refuse(fmt.Sprintf("the folder %s belongs to the cluster %s, not %s", c.shown(),
			named(c.cfg.Name), asked.Name), "Choose another folder: --dir")
	case c.cfg.Mem != asked.Mem || c.cfg.Iods != asked.Iods || c.cfg.Host != asked.Host ||
		c.cfg.Listen != asked.Listen || fmt.Sprint(c.cfg.Stores) != fmt.Sprint(asked.Stores):
		return refuse(fmt.Sprintf("the cluster in %s was made differently: host %s at %s, %d I/O servers",
			c.shown(), c.cfg.Host, c.cfg.Listen, c.cfg.Iods), "Change "+c.configFile()+
			", or choose another folder: --dir")
	}
	return nil
}

func named(name string) string {
	if name == "" {
		return "without a name"
	}
	return name
}

// refuseForeign refuses to found a cluster on what another one has left: metadata or stores without
// a cluster.json.
func refuseForeign(dir string, cfg *clusterConfig) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	c := &cluster{dir: abs, cfg: *cfg}
	places := []string{c.metaDir()}
	for id := 1; id <= cfg.Iods && !cfg.Mem; id++ {
		for _, path := range c.pathsOf(nil, id) {
			if !isBlockDevice(path) { // which sluice store init has prepared
				places = append(places, path)
			}
		}
	}
	for _, place := range places {
		left, err := os.ReadDir(place)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if len(left) > 0 {
			return refuse(fmt.Sprintf("%s is not empty: it belongs to another cluster", place),
				"Choose another folder, or remove it if nobody needs what is in it")
		}
	}
	return nil
}

// makeMeta makes the store of the metadata service.
func (f *founding) makeMeta() error {
	if f.cfg.Mem {
		return nil
	}
	sizes := boundMeta().kv
	sizes.Dir, sizes.ReserveBytes = f.cluster.metaDir(), metaReserve
	db, err := pebblekv.Open(sizes)
	if err != nil {
		return err
	}
	return db.Close()
}

// makeStore makes the store of an I/O server.
func (f *founding) makeStore(id int) error {
	if f.cfg.Mem {
		return nil
	}
	p := iodParts{id: uint32(id), paths: f.cluster.pathsOf(nil, id), log: newLogger()}
	err := f.cluster.clearHalfMade(p.paths)
	if err != nil {
		return err
	}
	memory := memoryFlags{memory: defaultMemory}
	if p.plan, err = memory.plan(len(p.paths)); err != nil {
		return err
	}
	s, _, _, err := f.cluster.openStore(&p)
	if err != nil {
		return err
	}
	return s.Close()
}

// clearHalfMade empties the folders of a store whose making was interrupted: not each of them has
// its store.json, which is written last. They were empty before (refuseForeign), and nobody has
// ever served them.
func (c *cluster) clearHalfMade(paths []string) error {
	whole := true
	for _, path := range paths {
		whole = whole && (isBlockDevice(path) || isFile(filepath.Join(path, "store.json")))
	}
	if whole || !c.cfg.Unfinished {
		return nil
	}
	for _, path := range paths {
		if isBlockDevice(path) {
			continue
		}
		if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o700)); err != nil {
			return err
		}
	}
	return nil
}

// configHead is the beginning of a file that was written by this program.
const configHead = `What this host runs of its cluster; docs/ops/serve.md explains each key.
After a change: sluice config check, then SIGHUP to sluice serve (systemctl reload sluice).`

// configText is the file of a host that was made like this.
func (c *cluster) configText(cfg clusterConfig) []byte {
	f := &config.Config{Cluster: cfg.Name, Host: cfg.Host, InMemory: cfg.Mem,
		Listen: config.List{cfg.Listen}, Security: cmp.Or(cfg.Security, config.Secret),
		Meta: &config.Meta{}}
	if f.Security.Keyed() {
		f.Meta.Join = joinBeside(cfg.Listen)
	}
	for id := 1; id <= cfg.Iods; id++ {
		d := config.Iod{ID: id}
		if len(cfg.Stores) > 0 {
			d.Store = (&cluster{dir: c.dir, cfg: cfg}).pathsOf(nil, id)
		}
		f.Iods = append(f.Iods, d)
	}
	return config.Render(f, configHead)
}

// joinBeside is where others join a cluster unless it is said: the port after the metadata
// service's, or any.
func joinBeside(listen string) string {
	host, port, _ := net.SplitHostPort(listen)
	if n, err := strconv.Atoi(port); err == nil && n > 0 && n < 1<<16-1 {
		return net.JoinHostPort(host, strconv.Itoa(n+1))
	}
	return net.JoinHostPort(host, "0")
}

// writeConfig writes the file, unless there is one.
func (c *cluster) writeConfig(cfg clusterConfig) error {
	if _, err := os.Lstat(c.configFile()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return writeFile(c.configFile(), c.configText(cfg), 0o644)
}

// changeConfig carries a change from one way that the host was made to another into its file. One
// that somebody has edited is theirs: edited says that it was not touched.
func (c *cluster) changeConfig(from, to clusterConfig) (edited bool, err error) {
	text, err := os.ReadFile(c.configFile())
	if errors.Is(err, os.ErrNotExist) {
		return false, c.writeConfig(to)
	}
	if err != nil || bytes.Equal(text, c.configText(to)) {
		return false, err
	}
	if !bytes.Equal(text, c.configText(from)) {
		return true, nil
	}
	return false, writeFile(c.configFile(), c.configText(to), 0o644)
}

// checkNames refuses names that no cluster or host can have.
func checkNames(cluster, host string) error {
	for _, n := range [][2]string{{"--name", cluster}, {"--host", host}} {
		if !config.IsName(n[1]) {
			return hint(errs.Newf(errs.Invalid, "init", "", "%s %q is no name", n[0], n[1]),
				"Take small letters, digits and - . _, at most %d, with a letter or digit at both ends",
				config.NameMax)
		}
	}
	return nil
}

// checkPlaces is what is refused of an address and of stores before anything is made.
func checkPlaces(listen string, iods int, stores []string) error {
	if strings.Contains(listen, ",") {
		return refuse("--listen takes one address", "Add others to listen in "+config.FileName)
	}
	if err := checkAddr(listen); err != nil {
		return err
	}
	return errors.Join(checkCount(iods), checkStores(stores, iods))
}

// checkCount refuses a number of I/O servers that no host has.
func checkCount(iods int) error {
	if iods < 1 || iods > iodsMax {
		return refuse(fmt.Sprintf("--iods %d", iods), fmt.Sprintf("Choose from 1 to %d", iodsMax))
	}
	return nil
}
