package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/identity"
)

// keyInfo is what `sluice key rotate --json` prints.
type keyInfo struct {
	Cluster   identity.ClusterID `json:"cluster"`
	Authority keyState           `json:"authority"`
	Secret    keyState           `json:"secret"`
}

type keyState struct {
	Generation  uint64        `json:"generation"`
	Fingerprint identity.Hash `json:"fingerprint"`
	Valid       int           `json:"valid"` // 2: the one before as well
}

func keysOf(a *identity.Authority) keyInfo {
	number, pin := a.Generation()
	secrets := a.Secrets()
	return keyInfo{Cluster: a.Cluster(),
		Authority: keyState{number, pin, len(a.Roots())},
		Secret:    keyState{secrets[0].Generation, secrets[0].Fingerprint(), len(secrets)}}
}

func newKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "See and change the keys of the cluster",
		Long: `A cluster has two keys: its authority's, which signs the certificates of hosts and clients,
and a secret that the keys of capabilities are derived from. Both lie in the folder keys/ of the
metadata service's host, are never sent, and can be changed while the cluster runs. Programs that
are no part of sluice get what they need to talk to it by sluice key export.`,
		Example: "  sluice key ls\n  sluice key rotate --dir /var/lib/sluice\n" +
			"  sluice key export /etc/prometheus/sluice",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newKeyLs(), newKeyRotate(), newKeyExport())
	return cmd
}

func newKeyRotate() *cobra.Command {
	var dir string
	var retire, asJSON bool
	cmd := &cobra.Command{
		Use:   "rotate [authority|secret]",
		Short: "Make new keys; the ones before stay valid until they are retired",
		Long: `Makes a new authority and a new secret, or the one that is named. Those before them stay
valid: hosts and clients hear of a new authority and are renewed by themselves, clients within some
minutes. When all of them are, end the old one with --retire: who was not renewed by then has to
join again. The secret before ends by itself, about a minute after the new one is in use; see
sluice key ls. At most two are valid at a time. Run it on the host of the metadata service, as the
owner of the folder; a running service takes it over within a second. It can be repeated if it was
interrupted.`,
		Example: "  sluice key rotate --dir /var/lib/sluice\n" +
			"  sluice key rotate secret --dir /var/lib/sluice\n" +
			"  sluice key rotate --dir /var/lib/sluice --retire",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{identity.SigningKey.String(), identity.SecretKey.String()},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openCluster(dir)
			if err != nil {
				return err
			}
			if !identity.HasAuthority(c.keysDir()) {
				return hint(errs.Newf(errs.NotFound, "key", c.keysDir(), "the cluster has no keys"),
					"They are made with: sluice up --join 127.0.0.1:9401   If the metadata service is on "+
						"another host, run it there")
			}
			a, err := identity.OpenAuthority(c.keysDir())
			if err == nil {
				err = rotateKeys(a, retire, args)
			}
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, keysOf(a))
			}
			return printKeys(cmd, dir, keysOf(a))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "the cluster's folder")
	cmd.Flags().BoolVar(&retire, "retire", false, "end the keys before the current ones")
	addJSON(cmd, &asJSON, keyInfo{})
	return cmd
}

// rotateKeys changes the keys that are named, or both. One that is changed already, by an attempt
// that was interrupted, is left as it is.
func rotateKeys(a *identity.Authority, retire bool, names []string) error {
	done := 0
	for _, what := range []identity.KeyKind{identity.SigningKey, identity.SecretKey} {
		if len(names) > 0 && names[0] != what.String() {
			continue
		}
		if retire {
			if err := a.Retire(what); err != nil {
				return err
			}
			continue
		}
		err := a.Rotate(what, time.Now())
		switch errs.KindOf(err) {
		case errs.OK:
			done++
		case errs.Busy:
		default:
			return err
		}
	}
	if !retire && done == 0 && len(names) > 0 {
		return refuse("two keys of that kind are valid already: "+names[0],
			"An older secret ends by itself, see: sluice key ls   An older authority is ended with: "+
				"sluice key rotate --retire")
	}
	if !retire && done == 0 {
		return refuse("two authorities and two secrets are valid already",
			"End the older ones first, when all have been renewed: sluice key rotate --retire")
	}
	return nil
}

func printKeys(cmd *cobra.Command, dir string, k keyInfo) error {
	t := newTable(cmd)
	fmt.Fprintln(t, "KEY\tGENERATION\tVALID\tFINGERPRINT")
	for _, row := range []struct {
		name string
		keyState
	}{{"authority", k.Authority}, {"secret", k.Secret}} {
		valid := "this one"
		if row.Valid > 1 {
			valid = "and the one before"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.16s\n", row.name, row.Generation, valid,
			row.Fingerprint.String())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if k.Authority.Valid > 1 {
		fmt.Fprintf(cmd.ErrOrStderr(), "When hosts and clients have been renewed (sluice host ls, "+
			"sluice client ls):\n  sluice key rotate --dir %s --retire\n", dir)
	}
	return nil
}
