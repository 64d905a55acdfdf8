package main

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-storage/sluice/bench/tune"
	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/internal/supervise"
	"github.com/sluice-storage/sluice/peer"
)

// The stages in which processes stop: mounts first, then gateways, which flush their volumes, then
// the I/O servers, the metadata service last. They start the other way round.
const (
	stageMeta = iota
	stageIod
	stageNBD
	stageMount
)

// How long a process may take to end before it is killed. Programs are given time to leave a mount,
// and what they have written is told to the servers; a gateway answers what is under way, for 30 s;
// an I/O server writes back its cache.
const (
	mountStopMax = 20 * time.Second
	nbdStopMax   = 35 * time.Second
	iodStopMax   = 30 * time.Second
)

// role is one process that a host runs.
type role struct {
	name  string
	stage int
	args  []string
	env   []string

	id   int    // of an I/O server
	dir  string // of a mount
	file string // that is there when a gateway listens

	reads []string // exports that a gateway reads from the host's file, again when it gets SIGHUP
}

// same tells whether a process that runs as one role need not be started anew for the other.
func (r *role) same(other *role) bool {
	return r.stage == other.stage && slices.Equal(r.args, other.args) && slices.Equal(r.env, other.env)
}

// spec is the role for whoever supervises it.
func (r *role) spec(self string, c *cluster) supervise.Spec {
	s := supervise.Spec{Name: r.name, Path: self, Args: r.args, Stage: r.stage, Log: c.logFile(r.name),
		Env: append([]string{readyEnv + "="}, r.env...)} // it has nobody to tell that it is ready
	switch r.stage {
	case stageIod:
		s.StopMax = iodStopMax
	case stageNBD:
		s.StopMax = nbdStopMax
	case stageMount:
		s.MayEnd = true                 // when somebody unmounts it
		s.DeathSignal = syscall.SIGTERM // so that it unmounts
		s.StopMax = mountStopMax
	}
	return s
}

// byOf are the flags about the network that a file stands for. What it leaves out may be said by
// the environment.
func byOf(cfg *config.Config) *providersFlag {
	by := &providersFlag{secret: secretFlag{trust: cfg.TrustLocal, security: string(cfg.Security)}}
	if !slices.Equal([]string(cfg.Providers), peer.Names()) {
		by.list = strings.Join(cfg.Providers, ",")
	}
	if cfg.Progress != "any" {
		by.progress = cfg.Progress
	}
	return by
}

// metaRole is the metadata service.
func metaRole(c *cluster, cfg *config.Config) role {
	m := cfg.Meta
	by := byOf(cfg)
	sessions, at := metaSessions(m), joinFlag{m.Join}
	return role{name: "meta", stage: stageMeta, args: slices.Concat(
		[]string{"meta", "--dir", c.dir, "--listen", strings.Join(m.Listen, ",")}, sessions.args(),
		at.args(), by.args(), adminArgs(cfg, m.Admin), by.secret.args())}
}

// metaSessions are the flags about clients that a file stands for.
func metaSessions(m *config.Meta) sessionFlag {
	return sessionFlag{time: time.Duration(m.SessionTime), lease: time.Duration(m.LeaseTime),
		files: m.OpenFiles, all: m.OpenFilesAll}
}

// iodRoles are the I/O servers.
func iodRoles(c *cluster, cfg *config.Config) ([]role, error) {
	var roles []role
	by := byOf(cfg)
	for i := range cfg.Iods {
		d := &cfg.Iods[i]
		listen, err := iodListen(cfg, d)
		if err != nil {
			return nil, err
		}
		args := []string{"iod", "--dir", c.dir, "--id", strconv.Itoa(d.ID), "--listen", listen}
		for _, path := range d.Store {
			args = append(args, "--store", path)
		}
		if d.Size.Bytes() > 0 {
			args = append(args, "--size", string(d.Size))
		}
		memory := memoryOf(d)
		roles = append(roles, role{name: d.Name, stage: stageIod, id: d.ID,
			args: slices.Concat(args, memory.args(), by.args(), adminArgs(cfg, d.Admin),
				by.secret.args())})
	}
	return roles, nil
}

// memoryOf are the flags of an I/O server's memory that a file stands for.
func memoryOf(d *config.Iod) memoryFlags {
	return memoryFlags{memory: string(d.Memory), ready: string(d.Ready),
		readahead: string(d.Readahead), huge: d.HugePages, reserve: string(d.Reserve),
		writeBack: d.WriteBack == nil || *d.WriteBack, lend: d.Lend == nil || *d.Lend}
}

// iodListen is where an I/O server listens: where it is told, else at this host's addresses in the
// data networks, else where the host listens, at any port.
func iodListen(cfg *config.Config, d *config.Iod) (string, error) {
	if len(d.Listen) > 0 {
		return strings.Join(d.Listen, ","), nil
	}
	if len(cfg.DataNetwork) == 0 {
		hosts := []string{"127.0.0.1"}
		if len(cfg.Listen) > 0 {
			hosts = nil
		}
		for _, a := range cfg.Listen {
			host, _, err := net.SplitHostPort(a)
			if err != nil {
				return "", err
			}
			hosts = append(hosts, host)
		}
		return anyPort(hosts), nil
	}
	own, err := ownAddrs()
	if err != nil {
		return "", err
	}
	chosen, missing := config.Choose(cfg.DataNetwork, own)
	if len(missing) > 0 {
		return "", config.Invalid{cfg.Problem("data-network", "this host has no address in "+
			strings.Join(missing, ", "), fmt.Sprintf("Its addresses are: %v", own))}
	}
	var hosts []string
	for _, a := range chosen {
		hosts = append(hosts, a.String())
	}
	return anyPort(hosts), nil
}

// anyPort is a list of addresses with any port, each host once.
func anyPort(hosts []string) string {
	var list []string
	for _, h := range hosts {
		if a := net.JoinHostPort(h, "0"); !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return strings.Join(list, ",")
}

// ownAddrs are the addresses of this host.
func ownAddrs() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	var list []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			list = append(list, p.Addr())
		}
	}
	return list, err
}

// nbdRoles are the gateways.
func nbdRoles(c *cluster, cfg *config.Config, url string) []role {
	var roles []role
	for i := range cfg.NBDs {
		n := &cfg.NBDs[i]
		file := c.path("run", n.Name+".addr")
		args := []string{"nbd", "--listen", n.Listen, "--timeout", n.Timeout.String(), "--addr-file",
			file, "--admin", n.Admin, "--admin-file", c.adminFile(n.Name)}
		exports := exportTexts(n)
		if cfg.File() != "" {
			args = append(args, "--config", cfg.File(), "--gateway", n.Name)
		} else {
			for _, text := range exports {
				args = append(args, "--export", text)
			}
			exports = nil
		}
		args = append(args, c.gatewayTLS(cfg, n)...)
		by := byOf(cfg)
		args = append(args, by.args()...)
		if url != "" {
			args = append(append(args, "--url", url), c.proof(cfg)...)
		}
		roles = append(roles, role{name: n.Name, stage: stageNBD, args: args, env: tuningOf(c),
			file: file, reads: exports})
	}
	return roles
}

// gatewayTLS are the flags for the keys of a gateway: files, or those of the host.
func (c *cluster) gatewayTLS(cfg *config.Config, n *config.NBD) (args []string) {
	if n.TLSCert != "" {
		args = append(args, "--tls-cert", n.TLSCert, "--tls-key", n.TLSKey, "--tls-ca", n.TLSCA)
	} else if cfg.Security.Keyed() && n.TLS != "" && n.TLS != tlsOff {
		args = append(args, "--tls-credential", c.hostCredentialFile())
	}
	if n.TLS != "" {
		args = append(args, "--tls", n.TLS)
	}
	if n.Insecure {
		args = append(args, "--insecure")
	}
	return args
}

// proof are the flags by which clients that this host runs prove themselves.
func (c *cluster) proof(cfg *config.Config) []string {
	if cfg.Security.Keyed() {
		return []string{"--credential", c.hostCredentialFile()}
	}
	return []string{"--secret", c.secretFile()}
}

// exportText is an export as the flag of sluice nbd has it.
func exportText(e *config.Export) string {
	escape := func(s string) string { return strings.ReplaceAll(s, ",", ",,") }
	text := "name=" + escape(e.Name)
	members := make([]string, len(e.Members))
	for i, path := range e.Members {
		members[i] = strings.ReplaceAll(path, ":", "::")
	}
	for _, part := range [][2]string{{"volume", e.Volume}, {"file", e.File}, {"disk", e.Disk},
		{"members", strings.Join(members, ":")}, {"init", string(e.Init)}, {"unit", string(e.Unit)},
		{"streams", e.Streams}, {"mem", string(e.Mem)}, {"mode", e.Mode}} {
		if part[1] != "" {
			text += "," + part[0] + "=" + escape(part[1])
		}
	}
	for _, word := range []struct {
		text string
		said bool
	}{{"ro", e.ReadOnly}, {"standby", e.Standby}, {"shared", e.Shared}, {"tls", e.TLSOnly}} {
		if word.said {
			text += "," + word.text
		}
	}
	if e.Description != "" {
		text += ",description=" + escape(e.Description)
	}
	for _, name := range e.Allow {
		text += ",allow=" + escape(strings.ReplaceAll(name, ":", "::"))
	}
	for _, f := range e.Filters {
		text += ",filter=" + escape(f)
	}
	return text
}

// mountRoles are the mounts.
func mountRoles(c *cluster, cfg *config.Config, url string) []role {
	var roles []role
	for i := range cfg.Mounts {
		m := &cfg.Mounts[i]
		args := []string{"mount", "--keep-trying", "--admin-file", c.adminFile(m.Name), "--cache",
			m.Cache, "--atime", m.Atime, "--timeout", m.Timeout.String(), "--admin", m.Admin}
		args = append(args, c.proof(cfg)...)
		if m.ReadOnly {
			args = append(args, "--read-only")
		}
		if m.AllowOther != nil {
			args = append(args, fmt.Sprintf("--allow-other=%v", *m.AllowOther))
		}
		if m.LocalLocks {
			args = append(args, "--local-locks")
		}
		for _, o := range m.Options {
			args = append(args, "-o", o)
		}
		args = append(args, byOf(cfg).args()...)
		at := strings.TrimSuffix(url+m.Path, "/")
		roles = append(roles, role{name: m.Name, stage: stageMount, dir: m.Dir, env: tuningOf(c),
			args: append(args, "--", at, m.Dir)})
	}
	return roles
}

// tuningOf names the file that sluice bench tune has made of this cluster, for its clients.
func tuningOf(c *cluster) []string {
	if tuned := filepath.Join(c.dir, tune.File); isFile(tuned) {
		return []string{tuningEnv + "=" + tuned}
	}
	return nil
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// storesOf are the stores of a host's I/O servers by their numbers.
func storesOf(cfg *config.Config) map[int][]string {
	stores := map[int][]string{}
	for i := range cfg.Iods {
		stores[cfg.Iods[i].ID] = cfg.Iods[i].Store
	}
	return stores
}

// roleNames are the names of all processes that a file asks for.
func roleNames(cfg *config.Config) map[string]bool {
	names := map[string]bool{}
	if cfg.Meta != nil {
		names["meta"] = true
	}
	for i := range cfg.Iods {
		names[cfg.Iods[i].Name] = true
	}
	for i := range cfg.NBDs {
		names[cfg.NBDs[i].Name] = true
	}
	for i := range cfg.Mounts {
		names[cfg.Mounts[i].Name] = true
	}
	return names
}

// sortedNames are for messages.
func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
