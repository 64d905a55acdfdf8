package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/config"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric/tcp"
	"github.com/sluice-storage/sluice/join"
	"github.com/sluice-storage/sluice/peer"
)

// secretEnv names the file of a cluster's secret, for clients that no flag tells.
const secretEnv = "SLUICE_SECRET_FILE"

// secretFlag says by what a process proves that it may use a cluster: by a certificate, or, on the
// one host of a cluster that nobody else can reach, by a secret. All processes of a host reach the
// servers' ports, so the servers serve only who knows the secret in the cluster's folder, which
// only its owner and root can read.
type secretFlag struct {
	file  string // of a client; empty: the one that the server names
	trust bool   // a server: serve every user of this host; a client: trust whoever listens

	cred     credentialFlag // of a client
	security string         // of a server: how others prove who they are; empty: by the secret
}

// addClient is the flags of a process that only dials.
func (f *secretFlag) addClient(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "secret", "", "`FILE` with the cluster's secret (default $"+
		secretEnv+", else the one in the cluster's folder, if you may read it)")
	cmd.Flags().BoolVar(&f.trust, "trust-local", false,
		"talk to servers that do not prove who they are, of a cluster that was started so")
	f.cred.add(cmd)
}

// addServer is the flags of a process of a cluster.
func (f *secretFlag) addServer(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.trust, "trust-local", false,
		"serve every user of this host, and believe who they say they are")
	cmd.Flags().StringVar(&f.security, "security", string(config.Secret),
		`how others prove who they are:
secret         by what is in cluster.secret; on loopback only
tls            by certificates; everything is encrypted
authenticated  by certificates; nobody can change what is sent, who listens there can read it`)
}

// args are the flags for another server.
func (f *secretFlag) args() (args []string) {
	if f.trust {
		args = append(args, "--trust-local")
	}
	if f.keyed() {
		args = append(args, "--security", f.security)
	}
	return args
}

// keyed tells whether others prove who they are by certificates.
func (f *secretFlag) keyed() bool { return config.Security(f.security).Keyed() }

// check refuses what no server can do.
func (f *secretFlag) check() error {
	if s := config.Security(f.security); s != "" && s != config.Secret && !s.Keyed() {
		return refuse("--security "+f.security, fmt.Sprintf("Choose of %s, %s and %s", config.Secret,
			config.TLS, config.Authenticated))
	}
	if f.trust && f.keyed() {
		return refuse("--trust-local with --security "+f.security+" says two things at once",
			"Leave one of them out")
	}
	return nil
}

// client is how a process that only dials proves itself to the cluster at a URL: by the secret or
// by a certificate.
func (f *secretFlag) client(url string) (*tcp.Secret, *tcp.Security, error) {
	s := &tcp.Secret{File: cmp.Or(f.file, os.Getenv(secretEnv)), Optional: f.trust}
	file, err := f.credential(url)
	if err != nil || file == "" {
		return s, nil, err
	}
	k, err := join.Keep(context.Background(), file, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	return nil, peer.ClientSecurity(k), nil
}

// credential is the file of the certificate that such a process shows; empty: it shows none.
func (f *secretFlag) credential(url string) (file string, err error) {
	if f.cred.file == "" && (f.trust || f.file != "" || os.Getenv(secretEnv) != "") {
		return "", nil
	}
	return f.cred.choose(url)
}

// within is the flags of a client that knows the cluster's folder.
func (f providersFlag) within(c *cluster) *providersFlag {
	if c.cfg.Security.Keyed() && f.secret.cred.file == "" {
		f.secret.cred.file = c.hostCredentialFile()
	}
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
