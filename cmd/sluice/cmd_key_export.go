package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/join"
)

// The files that sluice key export writes.
const (
	exportedTrust = "ca.pem"
	exportedKey   = "client.pem"
)

// exportMax bounds the questions to the cluster: whatever it says, what is at hand is written.
const exportMax = 10 * time.Second

// exportInfo is what `sluice key export --json` prints.
type exportInfo struct {
	Cluster     identity.ClusterID `json:"cluster"`
	ServerName  string             `json:"server_name"`           // in the certificates of all hosts
	Trust       string             `json:"trust"`                 // file with the authorities
	Authorities int                `json:"authorities"`           // 2: while they change
	Certificate string             `json:"certificate,omitempty"` // file with key and certificate
	Name        string             `json:"name,omitempty"`        // of the client
	Rights      *identity.Rights   `json:"rights,omitempty"`
	Expires     *time.Time         `json:"expires,omitempty"`
	Renews      *time.Time         `json:"renews,omitempty"` // export it again then
}

// exportOptions is what the user asked for.
type exportOptions struct {
	cred         credentialFlag
	trust, write bool
	asJSON       bool
}

func newKeyExport() *cobra.Command {
	var o exportOptions
	cmd := &cobra.Command{
		Use:   "export FOLDER",
		Short: "Write the cluster's trust and a client's certificate as PEM, for other programs",
		Long: `Writes PEM files into FOLDER by which programs that speak ordinary TLS, such as Prometheus
and curl, reach admin addresses that ask for certificates:

  ` + exportedTrust + `      the cluster's authorities, for everybody to read
  ` + exportedKey + `  the private key and the certificate of a client, for its owner alone

All hosts of a cluster have the server name CLUSTER.sluice in their certificates, which is printed:
such programs must be told it, because addresses are not in there.

The certificate is that of the credential that other commands use, too (--credential). It must be a
client's that may only read (sluice token create --client NAME --ro), because whoever has the file
has its rights; --write lets one that may write out. A host's key is never written, its trust is.
Admin addresses are shown to clients whom admin-clients in sluice.toml names.

A certificate lasts 90 days. Before it writes, the command renews one that is due, and asks which
authorities are valid: run it once a day. Each file is replaced as a whole. Programs that read
them for each connection, as Prometheus does, need not be told.`,
		Example: "  sluice key export /etc/prometheus/sluice --credential /etc/prometheus/sluice.json\n" +
			"  sluice key export --trust .\n" +
			"  curl --cacert ca.pem --cert client.pem --connect-to ::10.1.0.1:9421 " +
			"https://CLUSTER.sluice/metrics",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.cred.add(cmd)
	cmd.Flags().BoolVar(&o.trust, "trust", false, "write "+exportedTrust+" only, no key")
	cmd.Flags().BoolVar(&o.write, "write", false, "also of a client that may write")
	addJSON(cmd, &o.asJSON, exportInfo{})
	return cmd
}

func (o *exportOptions) run(cmd *cobra.Command, folder string) error {
	dir, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	c, file, _, err := join.Locate(o.cred.file, localHost())
	if err == nil && c == nil {
		err = errs.Newf(errs.NotFound, "key.export", "", "no credential says which cluster is meant")
	}
	if err != nil {
		return hint(err, "Join first, by a token of sluice token create --client NAME --ro: sluice join "+
			"HOST:PORT TOKEN   Or name what join has made: --credential FILE")
	}
	if !o.trust {
		if err := o.allowed(c, file); err != nil {
			return err
		}
	}
	if c, err = fresh(cmd, file); err != nil {
		return err
	}
	info, err := o.export(c, dir)
	if err != nil {
		return hint(err, "Choose a folder that you may write to")
	}
	if o.asJSON {
		return printJSON(cmd, info)
	}
	return info.tell(cmd)
}

// allowed refuses what must not leave its file.
func (o *exportOptions) allowed(c *identity.Credential, file string) error {
	switch {
	case c.Kind == identity.Host:
		return hint(errs.Newf(errs.Perm, "key.export", file, "it is the key of the host %s, which may "+
			"do everything", c.Name), "Make a client that may only read: sluice token create --client NAME "+
			"--ro, and sluice join.   For the authorities alone: --trust")
	case !c.Rights.ReadOnly && !o.write:
		return hint(errs.Newf(errs.Perm, "key.export", file, "the client %s may write: %s", c.Name,
			rightsText(c.Rights)), "Make one that may only read: sluice token create --client NAME --ro   "+
			"If it shall be this one: --write")
	}
	return nil
}

// fresh is the credential of a file, renewed if that is due, with the authorities that are valid
// now. A cluster that cannot be asked is waited for the next time, unless it is too late then.
func fresh(cmd *cobra.Command, file string) (*identity.Credential, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), exportMax)
	defer cancel()
	k, err := identity.NewKeeper(file, identity.KeeperOptions{Source: join.Remote{},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	if _, err := k.Certificate(); err != nil {
		return nil, hint(err, "Ask for a new token (sluice token create), and type: sluice join "+
			"HOST:PORT TOKEN --credential %s --force", file)
	}
	k.Refresh(ctx)
	if err := k.Renew(ctx); err != nil {
		complain(cmd, hint(err, "The certificate is due and could not be renewed. It lasts until %s: "+
			"try again before that", k.Credential().Peer().NotAfter.Local().Format(time.DateTime)))
	}
	return k.Credential(), nil
}

// export writes the files.
func (o *exportOptions) export(c *identity.Credential, dir string) (*exportInfo, error) {
	info := &exportInfo{Cluster: c.Cluster, ServerName: identity.ServerName(c.Cluster),
		Trust: filepath.Join(dir, exportedTrust), Authorities: len(c.Roots())}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := replaceFile(info.Trust, identity.TrustPEM(c.Roots()), 0o644); err != nil || o.trust {
		return info, err
	}
	text, err := c.PEM()
	if err != nil {
		return nil, err
	}
	expires, renews := c.Peer().NotAfter, c.RenewAt()
	info.Certificate, info.Name, info.Rights = filepath.Join(dir, exportedKey), c.Name, c.Rights
	info.Expires, info.Renews = &expires, &renews
	return info, identity.WritePrivate(info.Certificate, text)
}

// tell shows what was written, and how Prometheus is told.
func (i *exportInfo) tell(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "The authorities of cluster %s are in %s\n", i.Cluster, i.Trust)
	if i.Certificate == "" {
		_, err := fmt.Fprintf(out, "  its hosts have the server name %s\n", i.ServerName)
		return err
	}
	_, err := fmt.Fprintf(out, `The key and the certificate of the client %s are in %s
  it ends    %s; run this again every day, and it is renewed in time
  next       admin-clients = ["%s"] in sluice.toml of the hosts, and for Prometheus:

  - job_name: sluice
    scheme: https
    tls_config:
      ca_file: %s
      cert_file: %s
      key_file: %s
      server_name: %s
    static_configs:
      - targets: ["HOST:PORT"]   # those that sluice status shows under admin
`, i.Name, i.Certificate, i.Expires.Local().Format(time.DateTime), i.Name, i.Trust, i.Certificate,
		i.Certificate, i.ServerName)
	return err
}
