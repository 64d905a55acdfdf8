package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/bench/process"
	"github.com/sluice-storage/sluice/errs"
)

// moose is MooseFS: a master, four chunk servers and a client, with the settings that the packages
// have, but for places, ports and the user, and one copy of each chunk: the others keep one too.
type moose struct {
	dir, host string
	ports     []int // of the master for its spare, servers and clients; then of the servers
	servers   process.Daemons
	client    *process.Daemon
}

// The master's ports.
const (
	mooseSpare = iota
	mooseServers
	mooseClients
	mooseFirst // of the first chunk server
)

func startMoose(ctx context.Context, dir, host string) (System, error) {
	if host == "" {
		return nil, errs.Newf(errs.Unsupported, "bench mount", Moose,
			"its servers refuse 127.0.0.1, and this host lets no network of its own be made")
	}
	ports, err := process.FreePorts(host, mooseFirst+servers)
	if err != nil {
		return nil, err
	}
	m := &moose{dir: dir, host: host, ports: ports}
	if err := os.Mkdir(m.Dir(), 0o755); err != nil {
		return nil, err
	}
	if err := m.configure(); err != nil {
		return nil, err
	}
	err = m.startServers(ctx)
	if err == nil {
		err = m.mount(ctx)
	}
	if err == nil {
		var out []byte
		if out, err = exec.CommandContext(ctx, "mfssetgoal", "1", m.Dir()).CombinedOutput(); err != nil {
			err = errs.Newf(errs.IO, "mfssetgoal", m.Dir(), "%v: %s", err, out)
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *moose) Name() string { return Moose }

func (m *moose) Dir() string { return filepath.Join(m.dir, "mnt") }

func (m *moose) Pids() []int { return append(m.servers, m.client).Pids() }

func (m *moose) path(name string) string { return filepath.Join(m.dir, name) }

// configure writes all settings.
func (m *moose) configure() error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	group, err := user.LookupGroupId(me.Gid)
	if err != nil {
		return err
	}
	who := []string{"WORKING_USER", me.Username, "WORKING_GROUP", group.Name}
	files := map[string]string{
		"exports.cfg":  m.host + " / rw,alldirs,admin,maproot=0:0\n",
		"topology.cfg": "",
		"mount.cfg":    "", // so that the host's is not read
		"master.cfg": settings(append(who, "DATA_PATH", m.path("master"), "EXPORTS_FILENAME",
			m.path("exports.cfg"), "TOPOLOGY_FILENAME", m.path("topology.cfg"), "MATOML_LISTEN_HOST",
			m.host, "MATOML_LISTEN_PORT", fmt.Sprint(m.ports[mooseSpare]), "MATOCS_LISTEN_HOST", m.host,
			"MATOCS_LISTEN_PORT", fmt.Sprint(m.ports[mooseServers]), "MATOCL_LISTEN_HOST", m.host,
			"MATOCL_LISTEN_PORT", fmt.Sprint(m.ports[mooseClients]))),
		"master/metadata.mfs": "MFSM NEW", // which is an empty file system
	}
	for i := range servers {
		name := serverName(i)
		files[name+".disks"] = m.path(name+".data") + "\n"
		files[name+".cfg"] = settings(append(who, "DATA_PATH", m.path(name), "HDD_CONF_FILENAME",
			m.path(name+".disks"), "BIND_HOST", m.host, "MASTER_HOST", m.host, "MASTER_PORT",
			fmt.Sprint(m.ports[mooseServers]), "CSSERV_LISTEN_HOST", m.host, "CSSERV_LISTEN_PORT",
			fmt.Sprint(m.ports[mooseFirst+i])))
		err := errors.Join(os.Mkdir(m.path(name), 0o755), os.Mkdir(m.path(name+".data"), 0o755))
		if err != nil {
			return err
		}
	}
	if err := os.Mkdir(m.path("master"), 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(m.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func serverName(i int) string { return fmt.Sprintf("server%d", i+1) }

// settings are lines of pairs.
func settings(pairs []string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s = %s\n", pairs[i], pairs[i+1])
	}
	return b.String()
}

// startServers starts the master, which goes on with what its changelogs say, and the servers.
func (m *moose) startServers(ctx context.Context) error {
	d, err := process.Start(m.path("master.log"), nil, "mfsmaster", "-f", "-n", "-a", "-c",
		m.path("master.cfg"), "start")
	if err != nil {
		return err
	}
	m.servers = process.Daemons{d}
	if err := m.servers.Await(ctx, "master", func() bool {
		return process.Listens(addrOf(m.host, m.ports[mooseServers]))
	}); err != nil {
		return err
	}
	for i := range servers {
		name := serverName(i)
		d, err := process.Start(m.path(name+".log"), nil, "mfschunkserver", "-f", "-n", "-c",
			m.path(name+".cfg"), "start")
		if err != nil {
			return err
		}
		m.servers = append(m.servers, d)
	}
	return m.servers.Await(ctx, "chunk servers", func() bool {
		for i := range servers {
			if !process.Listens(addrOf(m.host, m.ports[mooseFirst+i])) {
				return false
			}
		}
		return true
	})
}

// mount mounts, and waits until the master knows of the room of all servers: it comes a moment
// after they have registered, and grows with each of them.
func (m *moose) mount(ctx context.Context) (err error) {
	m.client, err = process.Start(m.path("client.log"), nil, "mfsmount", "-f", "-c",
		m.path("mount.cfg"), "-H", m.host, "-P", fmt.Sprint(m.ports[mooseClients]), m.Dir())
	if err != nil {
		return err
	}
	const steady = time.Second
	var last uint64
	since := time.Now()
	return m.client.Await(ctx, "mount", func() bool {
		if !isOther(m.Dir()) {
			return false
		}
		if n := room(m.Dir()); n != last {
			last, since = n, time.Now()
		}
		return last > 0 && time.Since(since) > steady
	})
}

func (m *moose) Cold(ctx context.Context, servers bool) error {
	err := errors.Join(unmount(m.Dir()), m.client.Stop())
	m.client = nil
	if err != nil {
		return err
	}
	if servers {
		if err := m.servers.Stop(); err != nil {
			return err
		}
		m.servers = nil
		if err := m.startServers(ctx); err != nil {
			return err
		}
	}
	return m.mount(ctx)
}

func (m *moose) Close() error {
	err := m.client.Stop()
	m.client = nil
	return errors.Join(err, unmount(m.Dir()), m.servers.Stop())
}
