package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/config"
)

// initOptions is what `sluice init` was asked for.
type initOptions struct {
	dir, name, host, listen string
	security                string
	iods                    int
	stores                  []string
	asJSON                  bool
	given                   func(flag string) bool
}

func newInit() *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a cluster: its folder, keys and stores, and the file of its first host",
		Long: `Makes a cluster and its first host: a folder with the cluster's keys, a metadata store, the
store of an I/O server, and the file sluice.toml, which says what the host runs. Nothing is started:
sluice serve does that, and sluice up does both in one step.

It can be repeated: what an attempt that was interrupted has made is used, and what is missing is
made. A folder that belongs to another cluster is refused.`,
		Example: "  sluice init --name lab\n" +
			"  sluice init --dir /var/lib/sluice --store /disk1 --store /disk2\n" +
			"  sluice init --dir ./c --iods 4 --listen 127.0.0.1:9500\n" +
			"  sluice init --dir /var/lib/sluice --listen 10.1.0.1:9400   # others can join",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed
			return runInit(cmd, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "dir", defaultDir, "the cluster's folder")
	flags.StringVar(&o.name, "name", "sluice", "the cluster's name, for people")
	flags.StringVar(&o.host, "host", localName(), "the name of this host in the cluster")
	flags.StringVar(&o.listen, "listen", defaultListen, "address of the metadata service; port 0: any")
	flags.StringVar(&o.security, "security", "", "how its processes know each other: secret, on one "+
		"host only; tls; or authenticated, which does not encrypt (default: secret on loopback, else "+
		"tls)")
	flags.IntVar(&o.iods, "iods", 1, "how many I/O servers")
	flags.StringArrayVar(&o.stores, "store", nil,
		"where the servers' stores lie: a folder, or a block device that sluice store init has "+
			"prepared; several times for several disks (default DIR)")
	addJSON(cmd, &o.asJSON, initStory{})
	return cmd
}

// initStory is what `sluice init --json` prints.
type initStory struct {
	Cluster string   `json:"cluster"`
	ID      string   `json:"id"`
	Host    string   `json:"host"`
	Dir     string   `json:"dir"`
	Config  string   `json:"config"`
	Listen  string   `json:"listen"`
	Made    []string `json:"made"` // what was missing
}

func runInit(cmd *cobra.Command, o initOptions) error {
	if err := checkNames(o.name, o.host); err != nil {
		return err
	}
	stores, err := absolutePaths(o.stores)
	if err == nil {
		err = checkPlaces(o.listen, o.iods, stores)
	}
	var security config.Security
	if err == nil {
		security, err = securityOf(o.listen, o.security)
	}
	if err != nil {
		return err
	}
	f := &founding{dir: o.dir, cfg: clusterConfig{Name: o.name, Host: o.host, Iods: o.iods,
		Stores: stores, Listen: o.listen, Security: security}}
	c, err := openCluster(o.dir)
	if err == nil && isFile(c.configFile()) && !c.cfg.Unfinished {
		return o.foundAlready(cmd, c)
	}
	made, err := f.run()
	if err != nil {
		return err
	}
	return o.tell(cmd, f.cluster, made)
}

// foundAlready is about a folder where nothing is missing. Only what was asked for counts: flags
// that were not given mean what is there.
func (o *initOptions) foundAlready(cmd *cobra.Command, c *cluster) error {
	asked := c.cfg
	for _, g := range []struct {
		flag string
		set  func()
	}{
		{"name", func() { asked.Name = o.name }}, {"host", func() { asked.Host = o.host }},
		{"listen", func() { asked.Listen = o.listen }}, {"iods", func() { asked.Iods = o.iods }},
		{"store", func() { asked.Stores, _ = absolutePaths(o.stores) }}, // which were looked at
	} {
		if o.given(g.flag) {
			g.set()
		}
	}
	if err := c.isAsked(&asked); err != nil {
		return err
	}
	return o.tell(cmd, c, nil)
}

// run does all steps, in a folder that nobody else may work in, and tells which.
func (f *founding) run() (made []string, err error) {
	steps := f.steps()
	for i, s := range steps {
		if err := s.do(); err != nil {
			return made, err
		}
		made = append(made, s.what)
		if i == 0 {
			lock, err := f.cluster.acquire()
			if err != nil {
				return made, err
			}
			defer lock.Release()
		}
	}
	return made, nil
}

// tell says what is there, and what to type next.
func (o *initOptions) tell(cmd *cobra.Command, c *cluster, made []string) error {
	if o.asJSON {
		return printJSON(cmd, initStory{Cluster: c.cfg.Name, ID: c.cfg.ID, Host: c.cfg.Host, Dir: c.dir,
			Config: c.configFile(), Listen: c.cfg.Listen, Made: append([]string{}, made...)})
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	if made == nil {
		fmt.Fprintf(&b, "The cluster %s is there already.\n", named(c.cfg.Name))
	} else {
		fmt.Fprintf(&b, "The cluster %s is made; this host is %s.\n", c.cfg.Name, c.cfg.Host)
	}
	line("folder", "%s", c.dir)
	line("file", "%s", c.configFile())
	at := ""
	if o.dir != defaultDir {
		at = " --config " + c.configFile()
	}
	line("start", "%s serve%s", os.Args[0], at)
	line("at boot", "%s serve%s --systemd --install", os.Args[0], at)
	if c.cfg.Security.Keyed() {
		line("others", "%s token create --host --dir %s   when it runs: what to type on other hosts",
			os.Args[0], c.shown())
	}
	line("look", "%s config show%s", os.Args[0], strings.Replace(at, " --config", "", 1))
	_, err := fmt.Fprint(cmd.OutOrStdout(), b.String())
	return err
}

// openHost opens the folder that a file names, and refuses one of another cluster.
func openHost(cfg *config.Config) (*cluster, error) {
	c, err := openCluster(cfg.Folder)
	if err != nil {
		var h *hinted
		if errors.As(err, &h) {
			return nil, hint(h.err, "Make it with: sluice init --dir %s", cfg.Folder)
		}
		return nil, err
	}
	if c.cfg.Name != "" && c.cfg.Name != cfg.Cluster {
		return nil, refuse(fmt.Sprintf("the folder %s belongs to the cluster %s, not %s", cfg.Folder,
			c.cfg.Name, cfg.Cluster), "Set cluster or folder in "+cfg.File())
	}
	if c.cfg.Mem != cfg.InMemory {
		return nil, refuse(fmt.Sprintf("the cluster in %s was made with in-memory = %v", cfg.Folder,
			c.cfg.Mem), "Set in-memory in "+cfg.File()+", or use another folder")
	}
	if err := c.checkHostKeys(cfg.Security); err != nil {
		return nil, err
	}
	return c, c.makeDirs()
}
