package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/identity"
	"github.com/sluice-storage/sluice/meta"
)

// keysInfo is what `sluice key ls --json` prints.
type keysInfo struct {
	Authority keyAge       `json:"authority"`
	Secret    keyAge       `json:"secret"`
	Signs     uint64       `json:"signs"` // the secret whose key signs; 0: cluster.key
	Servers   []serverInfo `json:"servers"`
}

type keyAge struct {
	Generation  uint64        `json:"generation"` // 0: there is none
	Fingerprint identity.Hash `json:"fingerprint"`
	Valid       int           `json:"valid"` // 2: the one before as well
	Since       time.Time     `json:"since"`
}

// serverInfo is which keys an I/O server knows.
type serverInfo struct {
	ID     uint32 `json:"id"`
	Host   string `json:"host"`
	Up     bool   `json:"up"`
	Secret uint64 `json:"secret"` // the newest whose key it has; 0: none, or unknown
}

func ageOf(g *meta.Generation) (a keyAge) {
	if g.Number == 0 {
		return a
	}
	a = keyAge{Generation: g.Number, Fingerprint: g.Fingerprint, Valid: 2,
		Since: time.Unix(0, g.Since)}
	if g.Retired || g.Number == 1 {
		a.Valid = 1
	}
	return a
}

func newKeyLs() *cobra.Command {
	var f registryFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "Show the generations of the keys, and which I/O servers know them",
		Long: `Shows the generations of the authority and of the secret, which secret signs the
capabilities that clients show to I/O servers, and for every I/O server the newest secret that it
has the key of. While a secret changes both are valid: the new one signs when all servers that are
up have its key, or after 30 s, and the one before ends by itself about a minute later. A cluster
without an authority signs with cluster.key.`,
		Example: "  sluice key ls\n  sluice key ls --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn, err := dialRegistry(cmd, &f)
			if err != nil {
				return err
			}
			defer conn.close()
			r, err := conn.meta.Registry(cmd.Context(), processCaller())
			if err != nil {
				return registryAdvice(err)
			}
			servers, err := conn.meta.Servers(cmd.Context())
			if err != nil {
				return err
			}
			info := keysInfo{Authority: ageOf(&r.Authority), Secret: ageOf(&r.Secret),
				Signs: meta.SecretOf(r.Signs), Servers: []serverInfo{}}
			for _, s := range servers {
				info.Servers = append(info.Servers, serverInfo{s.ID, s.Host, s.Up, meta.SecretOf(s.Keys)})
			}
			if asJSON {
				return printJSON(cmd, info)
			}
			return printKeyAges(cmd, &info)
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON, keysInfo{})
	return cmd
}

func printKeyAges(cmd *cobra.Command, k *keysInfo) error {
	t := newTable(cmd)
	if k.Secret.Generation == 0 {
		fmt.Fprintln(t, "The cluster has no authority: capabilities are signed with cluster.key")
		return t.Flush()
	}
	fmt.Fprintln(t, "KEY\tGENERATION\tVALID\tSINCE\tFINGERPRINT")
	for _, row := range []struct {
		name string
		keyAge
	}{{"authority", k.Authority}, {"secret", k.Secret}} {
		valid := "this one"
		if row.Valid > 1 {
			valid = "and the one before"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%.16s\n", row.name, row.Generation, valid,
			row.Since.Local().Format(time.DateTime), row.Fingerprint.String())
	}
	fmt.Fprintf(t, "\nSERVER\tHOST\tSTATE\tSECRET\t(%d signs)\n", k.Signs)
	for _, s := range k.Servers {
		state, secret := "up", fmt.Sprint(s.Secret)
		if !s.Up {
			state = "down"
		}
		if s.Secret == 0 {
			secret = "-"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", s.ID, s.Host, state, secret)
	}
	return t.Flush()
}
