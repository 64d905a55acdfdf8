package main

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// tokenInfo is a token as `sluice token ls --json` shows it. Its secret is told once, to who makes
// it.
type tokenInfo struct {
	ID      string           `json:"id"`
	Kind    identity.Kind    `json:"kind"`
	Name    string           `json:"name"` // empty: the joiner chooses
	Roles   identity.Roles   `json:"roles,omitempty"`
	Rights  *identity.Rights `json:"rights,omitempty"`
	Uses    uint32           `json:"uses"`
	Used    uint32           `json:"used"`
	Created time.Time        `json:"created"`
	Expires time.Time        `json:"expires"`
	Expired bool             `json:"expired"`
	Note    string           `json:"note"`
}

// newTokenInfo is what token create --json prints.
type newTokenInfo struct {
	Token string `json:"token"`
	Join  string `json:"join"` // what to type
	tokenInfo
}

func tokenOf(t *meta.Token) tokenInfo {
	i := tokenInfo{ID: tokenID(t.ID), Kind: t.Kind, Name: t.Name, Roles: t.Roles, Uses: t.Uses,
		Used: t.Used, Created: time.Unix(0, t.Created), Expires: time.Unix(0, t.Expires), Note: t.Note}
	i.Expired = !time.Now().Before(i.Expires)
	if t.Kind == identity.Client {
		i.Rights = &t.Rights
	}
	return i
}

func tokenID(id uint64) string { return fmt.Sprintf("%016x", id) }

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Let hosts and clients join the cluster",
		Long: `A token lets a host or a client join the cluster: it pins the cluster's authority, so that
the joiner knows whom it talks to, says what it may become, is good for a time and for a number of
uses, and is kept as a hash only. Whoever has its text can join by it: hand it over with care.`,
		Example: "  sluice token create --client ann --path /home/ann\n  sluice token ls",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenCreate(), newTokenLs(), newTokenRm())
	return cmd
}

// tokenFlags is what `sluice token create` was asked for.
type tokenFlags struct {
	host               bool
	client, name, path string
	roles, squash      string
	readOnly           bool
	volumes            []string
	uses               int
	life               time.Duration
	note               string
}

// tokenLifeMax bounds the life of a token: it is no key.
const tokenLifeMax = 30 * 24 * time.Hour

func newTokenCreate() *cobra.Command {
	var f registryFlag
	var o tokenFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create {--host | --client NAME}",
		Short: "Make a token, by which a host or a client joins",
		Long: `Makes a token and prints it, once: the cluster keeps its hash only. With --host the joiner
becomes a host of the cluster, with the roles of --role. With --client it becomes a client: it sees
the tree below --path, may not write with --ro, and speaks for the users that --squash leaves it:
root makes nobody of root, all of everybody, none believes whoever it says it is and is for machines
that are trusted like those of the cluster. It opens the volumes that --volume names, * for all.`,
		Example: "  sluice token create --client ann --path /home/ann\n" +
			"  sluice token create --client lab --ro --uses 20 --for 24h\n" +
			"  sluice token create --host --role iod",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := o.token(cmd)
			if err != nil {
				return err
			}
			return createToken(cmd, &f, &o, t, asJSON)
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, newTokenInfo{})
	flags := cmd.Flags()
	flags.BoolVar(&o.host, "host", false, "the joiner becomes a host of the cluster")
	flags.StringVar(&o.client, "client", "", "the joiner becomes the client `NAME`")
	flags.StringVar(&o.name, "name", "", "name of the host (default: what it calls itself)")
	flags.StringVar(&o.roles, "role", "iod,gateway", "roles of the host: keeper, meta, iod, gateway")
	flags.StringVar(&o.path, "path", "/", "the directory that the client sees as its root")
	flags.BoolVar(&o.readOnly, "ro", false, "the client may only read")
	flags.StringVar(&o.squash, "squash", "root", "whom the client may not speak for: root, all, none")
	flags.StringArrayVar(&o.volumes, "volume", nil, "a volume that the client may open; several times")
	flags.IntVar(&o.uses, "uses", 1, "how often the token can be used")
	flags.DurationVar(&o.life, "for", time.Hour, "how long it can be used, like 30m or 24h")
	flags.StringVar(&o.note, "note", "", "what it is for, shown by ls (default: who made it)")
	return cmd
}

// token is what was asked for.
func (o *tokenFlags) token(cmd *cobra.Command) (t meta.Token, err error) {
	if o.host == (o.client != "") {
		return t, refuse("say what the joiner becomes", "Write --host, or --client NAME")
	}
	of := map[bool][]string{true: {"path", "ro", "squash", "volume"}, false: {"name", "role"}}
	for _, flag := range of[o.host] {
		if cmd.Flags().Changed(flag) {
			return t, refuse(fmt.Sprintf("--%s is not for a %s", flag, map[bool]string{true: "host",
				false: "client"}[o.host]), "Leave it out")
		}
	}
	if o.life <= 0 || o.life > tokenLifeMax {
		return t, refuse(fmt.Sprintf("--for %v", o.life), fmt.Sprintf("Choose up to %v", tokenLifeMax))
	}
	if o.uses < 1 || o.uses > meta.TokenUsesMax {
		return t, refuse(fmt.Sprintf("--uses %d", o.uses),
			fmt.Sprintf("Choose from 1 to %d", meta.TokenUsesMax))
	}
	t = meta.Token{Kind: identity.Host, Name: o.name, Uses: uint32(o.uses), Note: o.note}
	if t.Note == "" {
		t.Note = "by " + userName()
	}
	if o.host {
		t.Roles, err = identity.ParseRoles(o.roles)
	} else {
		t.Kind, t.Name = identity.Client, o.client
		t.Rights = identity.Rights{Path: o.path, ReadOnly: o.readOnly, Volumes: o.volumes}
		if t.Rights.Squash, err = identity.ParseSquash(o.squash); err == nil {
			err = t.Rights.Check()
		}
	}
	if err == nil && t.Name != "" {
		err = identity.CheckName(t.Name)
	}
	return t, err
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

func createToken(cmd *cobra.Command, f *registryFlag, o *tokenFlags, t meta.Token,
	asJSON bool) error {
	conn, err := dialRegistry(cmd, f)
	if err != nil {
		return err
	}
	defer conn.close()
	r, err := conn.meta.Registry(cmd.Context(), processCaller())
	if err != nil {
		return registryAdvice(err)
	}
	if r.Authority.Number == 0 {
		return hint(errs.Newf(errs.NotFound, "token", "", "the cluster has no keys, and nobody can join "+
			"it"), "Start it with: sluice up --join 127.0.0.1:9401")
	}
	now := time.Now()
	t.Created, t.Expires = now.UnixNano(), now.Add(o.life).UnixNano()
	secret := identity.NewToken(t.Kind, r.Authority.Fingerprint)
	t.ID, t.Hash = secret.ID, secret.SecretHash()
	if t, err = conn.meta.CreateToken(cmd.Context(), processCaller(), t); err != nil {
		return registryAdvice(err)
	}
	at := cmp.Or((&cluster{dir: f.dir}).readJoinAddr(), "HOST:PORT")
	info := newTokenInfo{Token: secret.String(), tokenInfo: tokenOf(&t),
		Join: "sluice join " + at + " " + secret.String()}
	if asJSON {
		return printJSON(cmd, info)
	}
	what := fmt.Sprintf("for %s, until %s", plural(o.uses, t.Kind.String()),
		info.Expires.Local().Format(time.DateTime))
	tellClock(cmd, info.Created.Sub(now))
	fmt.Fprintln(cmd.OutOrStdout(), info.Token)
	fmt.Fprintf(cmd.ErrOrStderr(), "A token %s. Whoever has it can join. Type there:\n  %s\n", what,
		info.Join)
	return nil
}

// registryFlag says which cluster an administrator means: one at a URL, or in a folder.
type registryFlag struct {
	urlFlag
	dir string
}

func (f *registryFlag) add(cmd *cobra.Command) {
	f.urlFlag.add(cmd)
	cmd.Flags().StringVar(&f.dir, "dir", defaultDir, "the folder of a host of the cluster, where no "+
		"URL says where that is")
}

// dialRegistry connects to the metadata service for administrators.
func dialRegistry(cmd *cobra.Command, f *registryFlag) (*metaConnection, error) {
	url, by := f.base(), &f.by
	if f.url == "" && os.Getenv("SLUICE_URL") == "" {
		if c, err := openCluster(f.dir); err == nil {
			by = by.within(c)
			if at := c.registryAddr(); at != "" {
				url = scheme + "//" + at
			}
		}
	}
	conn, err := dialMeta(cmd.Context(), url, by)
	if err != nil {
		return nil, by.unreached(err, url, "Is the cluster running at "+url+"? Start one with: sluice "+
			"up   Another address: --url or $SLUICE_URL")
	}
	return conn, nil
}

// registryAddr is where the metadata service is: where the processes of this host have found it, or
// where the host's credential says, also while nothing runs here; empty: nobody knows.
func (c *cluster) registryAddr() string {
	if at, err := c.metaAddr(); err == nil {
		return at
	}
	own, err := identity.ReadCredential(c.hostCredentialFile())
	if err != nil || len(own.Addresses) == 0 {
		return ""
	}
	return own.Addresses[0]
}

// registryAdvice is for errors of tokens, hosts and clients.
func registryAdvice(err error) error {
	switch errs.KindOf(err) {
	case errs.NotFound:
		return hint(err, "See who is there: sluice token ls, sluice host ls, sluice client ls")
	case errs.Perm:
		return hint(err, "Run it as root, or as the user who made the cluster")
	case errs.Quota:
		return hint(err, "See: sluice token ls   Remove some with: sluice token rm ID")
	}
	return err
}

func newTokenLs() *cobra.Command {
	var f registryFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the tokens by which one can join",
		Long: `Lists all tokens, without their secrets. One whose time is over is shown for a day more, as
expired. What a host may do are its roles; what a client may do are the path that it sees, rw or ro,
whom it may not speak for, and its volumes.`,
		Example: "  sluice token ls\n  sluice token ls --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := dialRegistry(cmd, &f)
			if err != nil {
				return err
			}
			defer conn.close()
			infos := []tokenInfo{}
			for after := uint64(0); ; {
				page, err := conn.meta.ListTokens(cmd.Context(), processCaller(), after, meta.MemberPageMax)
				if err != nil {
					return registryAdvice(err)
				}
				if len(page) == 0 {
					break
				}
				for i := range page {
					infos = append(infos, tokenOf(&page[i]))
				}
				after = page[len(page)-1].ID
			}
			if asJSON {
				return printJSON(cmd, infos)
			}
			return printTokens(cmd, infos)
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, []tokenInfo{})
	return cmd
}

func printTokens(cmd *cobra.Command, infos []tokenInfo) error {
	t := newTable(cmd)
	fmt.Fprintln(t, "ID\tKIND\tNAME\tUSED\tENDS\tMAY\tNOTE")
	for _, i := range infos {
		ends := i.Expires.Local().Format(time.DateTime)
		if i.Expired {
			ends = "expired"
		}
		name, may := i.Name, i.Roles.String()
		if name == "" {
			name = "-"
		}
		if i.Rights != nil {
			may = rightsText(i.Rights)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d of %d\t%s\t%s\t%s\n", i.ID, i.Kind, name, i.Used, i.Uses, ends,
			may, i.Note)
	}
	return t.Flush()
}

// rightsText is a client's rights in a word.
func rightsText(r *identity.Rights) string {
	mode := "rw"
	if r.ReadOnly {
		mode = "ro"
	}
	text := r.Path + " " + mode + " squash=" + r.Squash.String()
	if len(r.Volumes) > 0 {
		text += " volumes=" + strings.Join(r.Volumes, ",")
	}
	return text
}

func newTokenRm() *cobra.Command {
	var f registryFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rm ID...",
		Short: "End tokens; who has joined by them stays",
		Long: `Ends tokens by their ids, which sluice token ls shows; the text of a token will do, too.
Who has joined by them stays: see sluice host rm and sluice client rm.`,
		Example: "  sluice token rm 3f9a0c1122334455",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]uint64, len(args))
			for i, arg := range args {
				id, err := parseTokenID(arg)
				if err != nil {
					return err
				}
				ids[i] = id
			}
			conn, err := dialRegistry(cmd, &f)
			if err != nil {
				return err
			}
			defer conn.close()
			const done = "The token %.16s is ended. Who has joined by it stays: sluice host ls, client ls\n"
			return removeEach(cmd, asJSON, done, args, func(i int) error {
				return conn.meta.RemoveToken(cmd.Context(), processCaller(), ids[i])
			})
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, removedInfo{})
	return cmd
}

func parseTokenID(text string) (uint64, error) {
	if t, err := identity.ParseToken(text); err == nil {
		return t.ID, nil
	}
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0, refuse(fmt.Sprintf("%.40q is no id of a token", text), "See: sluice token ls")
	}
	return id, nil
}
