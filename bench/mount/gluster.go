package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-storage/sluice/bench/process"
)

const (
	servers = 4 // of each peer, as sluice has them

	glusterHost = "127.0.0.1"
)

// gluster is GlusterFS: four bricks and a client, without the management daemon, which keeps its
// state in fixed places and listens on a fixed port. The graphs are those that it makes for a plain
// distributed volume: the same translators in the same order, with their defaults.
type gluster struct {
	dir    string
	ports  []int
	bricks process.Daemons
	client *process.Daemon
}

func startGluster(ctx context.Context, dir string) (System, error) {
	ports, err := process.FreePorts(glusterHost, servers)
	if err != nil {
		return nil, err
	}
	g := &gluster{dir: dir, ports: ports}
	if err := os.Mkdir(g.Dir(), 0o755); err != nil {
		return nil, err
	}
	for i := range servers {
		// One translator wants this folder before another makes it.
		if err := os.MkdirAll(filepath.Join(g.brick(i), ".glusterfs"), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(g.brick(i)+".vol", []byte(brickGraph(g.brick(i), ports[i])),
			0o600); err != nil {
			return nil, err
		}
	}
	err = os.WriteFile(g.volume(), []byte(clientGraph(g.brick, ports)), 0o600)
	if err == nil {
		err = g.startBricks(ctx)
	}
	if err == nil {
		err = g.mount(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *gluster) Name() string { return Gluster }

func (g *gluster) Dir() string { return filepath.Join(g.dir, "mnt") }

func (g *gluster) Pids() []int { return append(g.bricks, g.client).Pids() }

func (g *gluster) brick(i int) string { return filepath.Join(g.dir, fmt.Sprintf("brick%d", i+1)) }

func (g *gluster) volume() string { return filepath.Join(g.dir, "client.vol") }

func (g *gluster) startBricks(ctx context.Context) error {
	for i := range servers {
		d, err := process.Start(g.brick(i)+".out", nil, "glusterfsd", "-N", "-f", g.brick(i)+".vol", "-l",
			g.brick(i)+".log", "-p", g.brick(i)+".pid", "-L", "WARNING")
		if err != nil {
			return err
		}
		g.bricks = append(g.bricks, d)
	}
	return g.bricks.Await(ctx, "bricks", func() bool {
		for _, port := range g.ports {
			if !process.Listens(addrOf(glusterHost, port)) {
				return false
			}
		}
		return true
	})
}

func (g *gluster) mount(ctx context.Context) (err error) {
	log := filepath.Join(g.dir, "client")
	if g.client, err = process.Start(log+".out", nil, "glusterfs", "-N", "-f", g.volume(), "-l",
		log+".log", "-p", log+".pid", "-L", "WARNING", g.Dir()); err != nil {
		return err
	}
	return g.client.Await(ctx, "mount", func() bool {
		return isOther(g.Dir()) && room(g.Dir()) > 0
	})
}

func (g *gluster) unmount() error {
	err := errors.Join(unmount(g.Dir()), g.client.Stop())
	g.client = nil
	return err
}

func (g *gluster) Cold(ctx context.Context, servers bool) error {
	if err := g.unmount(); err != nil {
		return err
	}
	if servers {
		if err := g.bricks.Stop(); err != nil {
			return err
		}
		g.bricks = nil
		if err := g.startBricks(ctx); err != nil {
			return err
		}
	}
	return g.mount(ctx)
}

func (g *gluster) Close() error {
	// The client first: a mount whose server is dead can always be taken away.
	err := g.client.Stop()
	g.client = nil
	return errors.Join(err, unmount(g.Dir()), g.bricks.Stop())
}

// graph writes translators, each above the one before.
type graph struct {
	strings.Builder
	below string
}

// add puts a translator on top; its options are pairs.
func (g *graph) add(name, kind string, options ...string) {
	if g.below == "" {
		g.top(name, kind, nil, options...)
		return
	}
	g.top(name, kind, []string{g.below}, options...)
}

func (g *graph) top(name, kind string, below []string, options ...string) {
	fmt.Fprintf(g, "volume %s\n    type %s\n", name, kind)
	for i := 0; i+1 < len(options); i += 2 {
		fmt.Fprintf(g, "    option %s %s\n", options[i], options[i+1])
	}
	if len(below) > 0 {
		fmt.Fprintf(g, "    subvolumes %s\n", strings.Join(below, " "))
	}
	g.WriteString("end-volume\n\n")
	g.below = name
}

// brickGraph is a server's, on loopback only.
func brickGraph(dir string, port int) string {
	var g graph
	hidden := filepath.Join(dir, ".glusterfs")
	g.add("posix", "storage/posix", "directory", dir, "fips-mode-rchecksum", "on")
	g.add("trash", "features/trash", "trash-dir", ".trashcan", "brick-path", dir,
		"trash-internal-op", "off")
	g.add("changelog", "features/changelog", "changelog-brick", dir, "changelog-dir",
		filepath.Join(hidden, "changelogs"), "changelog-notification", "off")
	g.add("bitrot-stub", "features/bitrot-stub", "export", dir, "bitrot", "disable")
	g.add("access-control", "features/access-control")
	g.add("locks", "features/locks", "enforce-mandatory-lock", "off")
	g.add("worm", "features/worm", "worm", "off", "worm-file-level", "off")
	g.add("read-only", "features/read-only", "read-only", "off")
	g.add("leases", "features/leases", "leases", "off")
	g.add("upcall", "features/upcall", "cache-invalidation", "off")
	g.add("io-threads", "performance/io-threads")
	g.add("selinux", "features/selinux", "selinux", "on")
	g.add("marker", "features/marker", "quota", "off", "inode-quota", "off", "xtime", "off",
		"gsync-force-xtime", "off", "timestamp-file", dir+".tstamp")
	g.add("barrier", "features/barrier", "barrier", "disable")
	g.add("index", "features/index", "index-base", filepath.Join(hidden, "indices"),
		"xattrop-dirty-watchlist", "trusted.afr.dirty", "xattrop-pending-watchlist",
		"trusted.afr.bench-")
	g.add("quota", "features/quota", "volume-uuid", "bench", "server-quota", "off", "deem-statfs",
		"off")
	g.add(dir, "debug/io-stats", "unique-id", dir, "latency-measurement", "off", "count-fop-hits",
		"off")
	g.add("server", "protocol/server", "transport-type", "tcp", "transport.address-family", "inet",
		"transport.socket.bind-address", glusterHost, "transport.socket.listen-port",
		fmt.Sprint(port), "auth.addr."+dir+".allow", glusterHost)
	return g.String()
}

// clientGraph spreads files over the bricks.
func clientGraph(brick func(int) string, ports []int) string {
	var g graph
	var clients []string
	for i, port := range ports {
		name := fmt.Sprintf("client-%d", i)
		g.top(name, "protocol/client", nil, "transport-type", "tcp", "transport.address-family",
			"inet", "remote-host", glusterHost, "remote-port", fmt.Sprint(port), "remote-subvolume",
			brick(i), "send-gids", "true")
		clients = append(clients, name)
	}
	g.top("dht", "cluster/distribute", clients, "lock-migration", "off", "force-migration", "off")
	g.add("utime", "features/utime", "noatime", "on")
	g.add("write-behind", "performance/write-behind")
	g.add("open-behind", "performance/open-behind")
	g.add("quick-read", "performance/quick-read")
	g.add("md-cache", "performance/md-cache")
	g.add("io-threads", "performance/io-threads")
	g.add("bench", "debug/io-stats", "latency-measurement", "off", "count-fop-hits", "off")
	return g.String()
}
