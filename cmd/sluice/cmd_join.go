package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/join"
)

// joinInfo is what `sluice join --json` prints.
type joinInfo struct {
	Cluster    identity.ClusterID `json:"cluster"`
	Kind       identity.Kind      `json:"kind"`
	Name       string             `json:"name"`
	Roles      identity.Roles     `json:"roles,omitempty"`
	Rights     *identity.Rights   `json:"rights,omitempty"`
	Addresses  []string           `json:"addresses"`
	Expires    time.Time          `json:"expires"`
	Credential string             `json:"credential"`
	Config     string             `json:"config,omitempty"` // of a host: what it runs
}

// joinOptions is what the user asked for.
type joinOptions struct {
	name, dir     string
	file          credentialFlag
	force, asJSON bool

	iods   int // of a host, as what follows
	stores []string
	listen string
	serve  bool

	mount string // of a client: where the cluster is mounted then
}

func newJoin() *cobra.Command {
	var o joinOptions
	cmd := &cobra.Command{
		Use:   "join HOST:PORT TOKEN",
		Short: "Make this machine a host or a client of a cluster, by a token",
		Long: `Joins the cluster whose metadata service lets others join at HOST:PORT, by a token that
sluice token create has made there. The token says which cluster it must be: nothing is sent to any
other. The private key is made here and stays here. TOKEN may be -, to read it from standard input,
so that others do not see it among the arguments.

A client's credential is written to a file that other commands find by themselves; a host's goes to
` + hostCredentialName + ` in its folder, with the file sluice.toml, which says what it runs: as
many I/O servers as --iods asks for, with numbers that the cluster gives them. sluice serve starts
them. If it is interrupted, type the same again: it goes on where it was, without another use of the
token.`,
		Example: "  sluice join h1:9401 sluice1.04g...\n  sluice join h1:9401 - < token\n" +
			"  sluice join h1:9401 sluice1.04g... --mount /mnt/lab\n" +
			"  sluice join h1:9401 sluice1.04g... --serve --dir /var/lib/sluice --store /disk1",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, args[0], args[1])
		},
	}
	o.file.add(cmd)
	cmd.Flags().StringVar(&o.name, "name", "", "what it is called (default: what the token says, "+
		"else the name of this machine)")
	cmd.Flags().StringVar(&o.dir, "dir", defaultDir, "a host's folder")
	cmd.Flags().IntVar(&o.iods, "iods", 1, "how many I/O servers a host runs, if it may")
	cmd.Flags().StringArrayVar(&o.stores, "store", nil, "where a host's stores lie: a folder, or a "+
		"block device that sluice store init has prepared; several times for several disks (default DIR)")
	cmd.Flags().StringVar(&o.listen, "listen", "", "`HOST` or address at which a host is reached "+
		"(default: the one by which it reaches the cluster)")
	cmd.Flags().BoolVar(&o.serve, "serve", false, "a host: start what it runs, and leave it running")
	cmd.Flags().StringVar(&o.mount, "mount", "", "a client: mount the cluster at this `DIR`, and "+
		"leave it mounted")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace a credential that is there")
	addJSON(cmd, &o.asJSON, joinInfo{})
	return cmd
}

func (o *joinOptions) run(cmd *cobra.Command, addr, text string) error {
	if err := join.CheckAddress(addr); err != nil {
		return err
	}
	if text == "-" {
		line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 4096)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		text = line
	}
	t, err := identity.ParseToken(text)
	if err != nil {
		return hint(err, "Make one with: sluice token create   and copy it as a whole")
	}
	switch {
	case o.serve && t.Kind != identity.Host:
		return refuse("--serve is for hosts, and this token makes a client", "Leave it out")
	case o.mount != "" && t.Kind != identity.Client:
		return refuse("--mount is for clients, and this token makes a host",
			"Add a [[mount]] to its sluice.toml later")
	}
	stores, err := absolutePaths(o.stores)
	if err == nil && t.Kind == identity.Host {
		err = errors.Join(checkStores(stores, o.iods), checkCount(o.iods))
	}
	if err != nil {
		return err
	}
	if done, err := o.resume(cmd, t, stores); done || err != nil {
		return err
	}
	file, err := o.target(t.Kind)
	if err != nil {
		return err
	}
	pending, err := join.Begin(file, t)
	if err != nil {
		return err
	}
	j, err := join.Join(cmd.Context(), addr, t, o.name, localName(), pending.Key)
	if err != nil {
		return joinAdvice(err, addr, pending)
	}
	if err := j.Credential.Write(file); err != nil {
		return hint(err, "Nothing is lost: make room or give rights, and type the same again")
	}
	if err := pending.Done(); err != nil {
		return err
	}
	tellClock(cmd, j.Ahead)
	return o.settle(cmd, j.Credential, file, stores)
}

// tellClock says how far the cluster's clock is before that of this machine, negative: behind it,
// if that is more than anybody would not notice.
func tellClock(cmd *cobra.Command, ahead time.Duration) {
	word := "ahead of"
	if ahead < 0 {
		word = "behind"
	}
	if ahead.Abs() > identity.Skew {
		fmt.Fprintf(cmd.ErrOrStderr(), "The cluster's clock is %v %s this machine's: see which is "+
			"wrong, and set it, or certificates will seem too old or too young.\n",
			ahead.Abs().Round(time.Second), word)
	}
}

// resume goes on where somebody has a credential by this very token, and was killed before it could
// say so, or a host has one by this cluster and is not made yet.
func (o *joinOptions) resume(cmd *cobra.Command, t identity.Token, stores []string) (bool, error) {
	if o.force {
		return false, nil
	}
	if t.Kind == identity.Client {
		file, _, err := o.file.path()
		if err != nil {
			return false, err
		}
		c, err := identity.ReadCredential(file)
		if err != nil || c.Token != t.ID || join.Begun(file) {
			return false, nil
		}
		return true, o.settle(cmd, c, file, stores)
	}
	file := filepath.Join(o.dir, hostCredentialName)
	c, err := identity.ReadCredential(file)
	switch {
	case err != nil || join.Begun(file):
		return false, nil // as if it were the first time
	case c.Token == t.ID:
		return true, o.settle(cmd, c, file, stores)
	case isFile(filepath.Join(o.dir, config.FileName)) || len(c.Authorities) == 0 || !pins(c, t):
		return false, nil
	}
	return true, o.settle(cmd, c, file, stores)
}

// pins tells whether a credential is by the authority that a token is of.
func pins(c *identity.Credential, t identity.Token) bool {
	for _, root := range c.Roots() {
		if identity.KeyHash(root).Equal(t.Pin) {
			return true
		}
	}
	return false
}

// settle makes what a host needs besides, and tells what is there.
func (o *joinOptions) settle(cmd *cobra.Command, c *identity.Credential, file string,
	stores []string) error {
	if c.Kind != identity.Host {
		if err := o.tell(cmd, c, file, ""); err != nil || o.mount == "" {
			return err
		}
		return o.mountIt(cmd, c, file)
	}
	j := &joining{dir: o.dir, cred: c, iods: o.iods, stores: stores, listen: o.listen}
	host, _, err := j.run(cmd.Context())
	if err != nil {
		return err
	}
	if err := o.tell(cmd, c, file, host.configFile()); err != nil || !o.serve {
		return err
	}
	return detachServe(cmd, host.configFile())
}

// mountIt mounts the cluster that a client has just joined.
func (o *joinOptions) mountIt(cmd *cobra.Command, c *identity.Credential, file string) error {
	if len(c.Addresses) == 0 {
		return refuse("the cluster has not said where its metadata service is",
			"Mount it with: sluice mount -d sluice://HOST:PORT "+o.mount)
	}
	dir, err := ownFolder()
	if err != nil {
		return err
	}
	return detach(cmd, detachOptions{log: filepath.Join(dir, "mount.log"),
		args: []string{"mount", "--credential", file, "--", scheme + "//" + c.Addresses[0], o.mount}})
}

// target is where the credential goes, where nothing must be that is worth keeping.
func (o *joinOptions) target(kind identity.Kind) (file string, err error) {
	if kind == identity.Host {
		file = filepath.Join(o.dir, hostCredentialName)
	} else if file, _, err = o.file.path(); err != nil {
		return "", err
	}
	if file, err = filepath.Abs(file); err != nil {
		return "", err
	}
	old, err := identity.ReadCredential(file)
	switch {
	case errors.Is(err, errs.NotFound) || o.force || join.Begun(file):
		return file, nil
	case err != nil:
		return "", hint(err, "Repair that, or replace it with --force")
	case old.Expired(time.Now()):
		return file, nil
	}
	return "", hint(errs.Newf(errs.Exists, "join", file, "there is a credential of %s",
		old.Peer().Who), "Choose another file with --credential or --dir, or replace it with --force")
}

// joinAdvice says what to do next. A key that no token will be used with is forgotten.
func joinAdvice(err error, addr string, p *join.Pending) error {
	switch errs.KindOf(err) {
	case errs.Forged, errs.Expired, errs.Quota:
		if e := p.Done(); e != nil {
			return errors.Join(err, e)
		}
		return hint(err, "Ask for a new one: sluice token create")
	case errs.Exists:
		return hint(err, "Choose another name with --name, or remove the other one there: sluice host "+
			"rm, sluice client rm")
	case errs.Perm:
		return hint(err, "Is %s the address of the cluster that made the token? Nothing was sent to it",
			addr)
	case errs.Protocol:
		return hint(err, "Is %s the address that sluice token create has printed there? Others join at "+
			"a port of its own, 9401 mostly, not at that of the metadata service", addr)
	case errs.Disconnected, errs.TimedOut:
		return hint(err, "Is the cluster running, and does it let others join at %s? See --join of "+
			"sluice up there", addr)
	case errs.Invalid:
		return hint(err, "Choose a name with --name")
	}
	return err
}

func (o *joinOptions) tell(cmd *cobra.Command, c *identity.Credential, file, made string) error {
	if o.asJSON {
		return printJSON(cmd, joinInfo{Cluster: c.Cluster, Kind: c.Kind, Name: c.Name, Roles: c.Roles,
			Rights: c.Rights, Addresses: c.Addresses, Expires: c.Peer().NotAfter, Credential: file,
			Config: made})
	}
	may, next := "roles "+c.Roles.String(), "sluice serve"
	if o.dir != defaultDir {
		next += " --config " + made
	}
	if c.Kind == identity.Client {
		may, next = rightsText(c.Rights), "sluice ls /   or: sluice mount "+scheme+"//"+
			strings.Join(c.Addresses[:min(1, len(c.Addresses))], "")+" DIR"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "This is now the %s %s of cluster %s: %s\n"+
		"  credential %s, renewed by itself until it is removed\n  next       %s\n", c.Kind, c.Name,
		c.Cluster, may, file, next)
	return err
}
