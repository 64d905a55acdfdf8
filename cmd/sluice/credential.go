package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/join"
)

// hostCredentialName is what a host's credential is called in its folder.
const hostCredentialName = "host.json"

// credentialFlag says by which credential a client is known to its cluster.
type credentialFlag struct{ file string }

func (f *credentialFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "credential", "", "`FILE` that sluice join has made (default $"+
		identity.CredentialEnv+", else "+identity.CredentialName+" in /etc/sluice for root, in "+
		"~/.config/sluice for others, else that of the host in the folder here)")
}

// path is where the credential is, or is going to be. asked tells whether the user has said so.
func (f *credentialFlag) path() (file string, asked bool, err error) {
	file, asked, err = identity.CredentialFile(f.file)
	return file, asked, hint(err, "Say where with --credential FILE or $%s", identity.CredentialEnv)
}

// localHost is the credential of the host whose file is found from here; it need not be there.
func localHost() string {
	file, err := findConfig("")
	if err != nil {
		return ""
	}
	cfg, err := loadConfig(file)
	if err != nil || !cfg.Security.Keyed() {
		return ""
	}
	return filepath.Join(cfg.Folder, hostCredentialName)
}

// choose is the credential that proves a client to the cluster at a URL; empty where the cluster's
// secret does.
func (f *credentialFlag) choose(url string) (file string, err error) {
	at, _, _ := strings.Cut(strings.TrimPrefix(url, scheme+"//"), "/")
	file, err = join.Find(f.file, localHost(), at)
	if errs.KindOf(err) == errs.Perm {
		err = hint(err, "Ask the cluster's owner for a token (sluice token create --client NAME), and "+
			"type: sluice join HOST:PORT TOKEN")
	}
	return file, err
}

// url is where the cluster of the credential is; empty where there is none that can be read.
func (f *credentialFlag) url() string {
	c, _, _, err := join.Locate(f.file, localHost())
	if err != nil || c == nil || len(c.Addresses) == 0 {
		return ""
	}
	return scheme + "//" + c.Addresses[0]
}

// localName is what this host would be called: the first part of its name, in the letters that
// names have.
func localName() string {
	full, _ := os.Hostname()
	name, _, _ := strings.Cut(strings.ToLower(full), ".")
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("-_", r) {
			return r
		}
		return '-'
	}, name)
	name = strings.Trim(name[:min(len(name), identity.NameMax)], "-_")
	if identity.CheckName(name) != nil {
		return "host"
	}
	return name
}

func (c *cluster) keysDir() string            { return c.path("keys") }
func (c *cluster) joinAddrFile() string       { return c.path("run", "join.addr") }
func (c *cluster) hostCredentialFile() string { return c.path(hostCredentialName) }

// readJoinAddr is where others join the cluster, while it runs; empty: nowhere.
func (c *cluster) readJoinAddr() string {
	text, err := os.ReadFile(c.joinAddrFile())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
