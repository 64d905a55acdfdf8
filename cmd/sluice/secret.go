package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/tcp"
)

// secretEnv names the file of a cluster's secret, for clients that no flag tells.
const secretEnv = "SLUICE_SECRET_FILE"

// secretFlag says by what a process proves that it may use a cluster. All processes of a host reach
// the servers' ports, so the servers serve only who knows the secret in the cluster's folder, which
// only its owner and root can read.
type secretFlag struct {
	file  string // of a client; empty: the one that the server names
	trust bool   // a server: serve every user of this host; a client: trust whoever listens
}

// addClient is the flags of a process that only dials.
func (f *secretFlag) addClient(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "secret", "", "`FILE` with the cluster's secret (default $"+
		secretEnv+", else the one in the cluster's folder, if you may read it)")
	cmd.Flags().BoolVar(&f.trust, "trust-local", false,
		"talk to servers that do not prove who they are, of a cluster that was started so")
}

// addServer is the flags of a process of a cluster.
func (f *secretFlag) addServer(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.trust, "trust-local", false,
		"serve every user of this host, and believe who they say they are")
}

// args is the flag for another server.
func (f *secretFlag) args() []string {
	if f.trust {
		return []string{"--trust-local"}
	}
	return nil
}

// client is how a process that only dials proves itself.
func (f *secretFlag) client() *tcp.Secret {
	s := &tcp.Secret{File: f.file, Optional: f.trust}
	if s.File == "" {
		s.File = os.Getenv(secretEnv)
	}
	return s
}

// within is the flags of a client that knows the cluster's folder.
func (f providersFlag) within(c *cluster) *providersFlag {
	if f.secret.file == "" && isFile(c.secretFile()) {
		f.secret.file = c.secretFile()
	}
	return &f
}

func (c *cluster) secretFile() string { return c.path(tcp.SecretName) }

// makeSecret makes the secret of a cluster that has none, in a folder that is checked.
func (c *cluster) makeSecret() error {
	if err := c.checkPrivate(); err != nil {
		return err
	}
	if _, err := os.Lstat(c.secretFile()); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var key [tcp.SecretBytes]byte
	rand.Read(key[:])
	return writeFile(c.secretFile(), []byte(hex.EncodeToString(key[:])+"\n"), 0o600)
}

// checkPrivate refuses a folder whose keys others could read or replace.
func (c *cluster) checkPrivate() error {
	var st unix.Stat_t
	if err := unix.Stat(c.dir, &st); err != nil {
		return errs.Wrap("cluster", c.dir, err)
	}
	if st.Mode&0o022 != 0 {
		return hint(errs.Newf(errs.Perm, "cluster", c.dir, "others could replace the keys in it"),
			"Take the right from them: chmod go-w %s", c.dir)
	}
	for _, name := range []string{c.keyFile(), c.secretFile()} {
		err := unix.Stat(name, &st)
		switch {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return errs.Wrap("cluster", name, err)
		case st.Mode&0o077 != 0:
			return hint(errs.Newf(errs.Perm, "cluster", name, "it is readable by others"),
				"If nobody has read it: chmod 600 %s", name)
		}
	}
	return nil
}

// explainProof puts advice on the error of a client that could not prove itself, or of a server.
func explainProof(err error, url string) error {
	return hint(err, "%s serves only who can read its secret, its owner. Name a copy with --secret "+
		"FILE or $%s; of a cluster that was started with --trust-local, say --trust-local", url,
		secretEnv)
}

// trustWarning is said wherever a cluster is shown that serves everybody.
const trustWarning = "every user of this host can read and change everything here: " +
	"it was started with --trust-local"

// knownAs tells how the other side of a connection is known.
func knownAs(proof fmt.Stringer, name string) string {
	if name == "" {
		return proof.String()
	}
	return fmt.Sprintf("%s (%s)", proof, name)
}
