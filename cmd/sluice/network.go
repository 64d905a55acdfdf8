package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/bench/tune"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/shm"
	"github.com/sluice-storage/sluice/fabric/tcp"
	rdma "github.com/sluice-storage/sluice/fabric/verbs" // the tests have verbs of their own
	"github.com/sluice-storage/sluice/msg"
)

// providersEnv says which providers are used where no flag does.
const providersEnv = "SLUICE_PROVIDERS"

// tuningEnv names a file that sluice bench tune has made, for processes that are not of a
// cluster's folder; see loadTuning for those that are.
const tuningEnv = "SLUICE_TUNING"

// ladder is all providers, best first.
func ladder() []string { return []string{shmProvider, verbsProvider, plainProvider} }

// providersFlag says which providers a process uses, and how it is known there.
type providersFlag struct {
	list   string
	secret secretFlag
}

func (f *providersFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.list, "providers", "", "ways to reach each other that may be used "+
		"(default $"+providersEnv+", else "+strings.Join(ladder(), ",")+")")
}

// names are the providers that were asked for, best first.
func (f *providersFlag) names() ([]string, error) {
	list := f.list
	if list == "" {
		list = os.Getenv(providersEnv)
	}
	if list == "" {
		return ladder(), nil
	}
	asked := strings.Split(list, ",")
	for _, name := range asked {
		if !slices.Contains(ladder(), name) {
			return nil, refuse("there is no provider "+name,
				"Choose of "+strings.Join(ladder(), ",")+", like --providers tcp")
		}
	}
	if !slices.Contains(asked, plainProvider) {
		return nil, refuse("--providers "+list+": without tcp nobody is found",
			"Add it: --providers "+list+",tcp")
	}
	return slices.DeleteFunc(ladder(), func(name string) bool {
		return !slices.Contains(asked, name)
	}), nil
}

// args is the flag for a child.
func (f *providersFlag) args() []string {
	if f.list == "" {
		return nil // it has the same environment
	}
	return []string{"--providers", f.list}
}

// network is what a process reaches its peers by, and can be reached by: of the providers that
// were asked for, those that this host has.
type network struct {
	domains []fabric.Domain // best first; the last one is tcp
	missing []msg.Step
	arenas  *shm.Arenas    // clients: memory that servers of this host may be let into
	tokens  *fabric.Tokens // servers: what devices ask of whoever dials
	secret  *tcp.Secret    // what both sides prove by tcp
	limits  map[string]msg.Limits
	memory  int64 // bytes for eager slots and units; 0: as package msg has it
	log     *slog.Logger
}

// openClient opens the providers for a process that only dials. log hears of those that are not to
// be had; nil: nobody does.
func openClient(f *providersFlag, log *slog.Logger) (*network, error) {
	n := &network{arenas: shm.NewArenas(), log: log, secret: f.secret.client()}
	if name := os.Getenv(tuningEnv); name != "" {
		var err error
		if n.limits, err = tune.Load(name); err != nil {
			return nil, hint(err, "Make it anew with: sluice bench tune --save %s   or unset $%s", name,
				tuningEnv)
		}
	}
	return n, n.open(f)
}

// tokensMax is how many clients can be on their way from tcp to a device at one moment.
const tokensMax = 1024

// openServer opens them for one that listens. It offers no memory of its own to anybody: only
// servers map memory, that of their clients.
func (c *cluster) openServer(f *providersFlag, log *slog.Logger) (*network, error) {
	limits, err := loadTuning(c.dir)
	if err != nil {
		return nil, err
	}
	if f.secret.trust {
		log.Warn(trustWarning)
	}
	n := &network{tokens: fabric.NewTokens(tokensMax), limits: limits, log: log,
		secret: &tcp.Secret{File: c.secretFile(), Optional: f.secret.trust}}
	return n, n.open(f)
}

func (n *network) open(f *providersFlag) error {
	names, err := f.names()
	if err != nil {
		return err
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	for _, name := range names {
		d, err := n.openOne(name)
		if err == nil {
			n.domains = append(n.domains, d)
			n.untuned(name)
			continue
		}
		if name == plainProvider {
			n.close()
			return err
		}
		n.missing = append(n.missing, msg.Step{Provider: name, Err: err})
		n.log.Info("a provider is not to be had here", "provider", name, "why", err)
	}
	for _, name := range ladder() {
		if !slices.Contains(names, name) {
			n.missing = append(n.missing, msg.Step{Provider: name,
				Err: errs.Newf(errs.Unsupported, "providers", name, "not asked for")})
		}
	}
	return nil
}

// untuned sets limits that are known without measuring. Over shm a server reads arenas in one copy,
// and a slot only adds others.
func (n *network) untuned(provider string) {
	if _, tuned := n.limits[provider]; tuned || provider != shmProvider {
		return
	}
	if n.limits == nil {
		n.limits = map[string]msg.Limits{}
	}
	n.limits[provider] = msg.Limits{EagerMax: -1}
}

// peerMemory is how much of one client's memory a server maps at most; what is beyond takes the
// way of messages.
const peerMemory = 1 << 30

func (n *network) openOne(name string) (fabric.Domain, error) {
	switch name {
	case shmProvider:
		return shm.Open(shm.Options{Arenas: n.arenas, PeerBytes: peerMemory})
	case verbsProvider:
		return rdma.Open(rdma.Options{Tokens: n.tokens, Log: n.log})
	}
	return tcp.Open(tcp.Options{Secret: n.secret, Log: n.log})
}

// close ends all providers, after everything that runs on them.
func (n *network) close() {
	for _, d := range n.domains {
		if err := d.Close(); err != nil {
			n.log.Warn("a provider did not close cleanly", "provider", d.Caps().Provider, "err", err)
		}
	}
}

// base is the provider that every address is of: tcp.
func (n *network) base() fabric.Domain { return n.domains[len(n.domains)-1] }

// node makes the process's place in the message layer.
func (n *network) node() (*msg.Node, error) {
	return msg.NewNode(msg.Options{Domain: n.base(), Domains: n.domains, Missing: n.missing,
		Limits: n.limits, Memory: int(n.memory), Credits: creditsEach,
		Tokens: n.tokens, Known: []string{shmProvider}, Logger: n.log})
}

// has finds a provider; nil if it is not open.
func (n *network) has(name string) fabric.Domain {
	for _, d := range n.domains {
		if d.Caps().Provider == name {
			return d
		}
	}
	return nil
}

// doors are the places besides tcp's where a process listens. What it listens at is told to whoever
// comes by tcp.
func (n *network) doors(c *cluster, process string) []string {
	var doors []string
	if n.has(shmProvider) != nil {
		doors = append(doors, shmProvider+":"+c.socket(process))
	}
	if d := n.has(verbsProvider); d != nil {
		device, err := fabric.UpDevice(d.Connector())
		if err != nil {
			n.log.Warn("no door for RDMA", "err", err)
		} else {
			doors = append(doors, verbsProvider+":"+net.JoinHostPort(device.Addrs[0], "0"))
		}
	}
	return doors
}

// pathMax is the longest path of a unix socket.
const pathMax = 107

// socket is where a process of the cluster is found by others on this host: a socket in the folder
// run, which belongs to the cluster's owner alone, or, if that path is too long for a socket, a
// name that is no file.
func (c *cluster) socket(process string) string {
	path := c.path("run", process+".sock")
	if len(path) <= pathMax && !strings.Contains(path, ",") {
		return path
	}
	return fmt.Sprintf("@sluice-%s-%s", c.cfg.ID, process)
}

// serve listens at a tcp address and at as many of the doors as can be had.
func (n *network) serve(node *msg.Node, listen string, doors []string, h msg.Handler,
	opts msg.ServeOptions) (*msg.Server, error) {
	var failed []error
	for {
		s, err := node.Serve(strings.Join(append([]string{plainProvider + ":" + listen}, doors...), ","),
			h, opts)
		if err == nil {
			for _, err := range failed {
				n.log.Warn("not all providers can be listened at", "err", err)
			}
			return s, nil
		}
		if len(doors) == 0 {
			return nil, err
		}
		failed = append(failed, err)
		doors = doors[:len(doors)-1]
	}
}

// tcpAddr is the part of a server's address that others need to know: the rest it tells them.
func tcpAddr(s *msg.Server) string {
	for _, place := range strings.Split(s.Addr(), ",") {
		if at, ok := strings.CutPrefix(place, plainProvider+":"); ok {
			return at
		}
	}
	return s.Addr()
}

// whyNot are the steps above the one that a connection took.
func whyNot(c *msg.Conn) []msg.Step {
	var better []msg.Step
	for _, name := range ladder() {
		if name == c.Provider() {
			break
		}
		for _, s := range c.Ladder() {
			if s.Provider == name && s.Err != nil {
				better = append(better, s)
			}
		}
	}
	return better
}

// reason is the heart of a step's error, without the layers that it came through.
func reason(err error) string {
	for {
		e, ok := err.(*errs.Error)
		if !ok || e.Err == nil {
			return err.Error()
		}
		err = e.Err
	}
}
