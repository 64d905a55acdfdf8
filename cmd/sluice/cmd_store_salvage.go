package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/stripe/logstore"
)

func newStoreSalvage() *cobra.Command {
	var accept, asJSON bool
	cmd := &cobra.Command{
		Use:   "salvage PATH... --accept-loss",
		Short: "Make a damaged store usable again and forget what was lost",
		Long: `For people who have no copy. Opens a store although its log is damaged in the middle, its
index has lost entries or its list of sessions does not verify, forgets what was lost, and closes it
as it is then. Older bytes, or zeroes, are read in place of what was lost, without an error, for
ever: keep an image of the members if you can. What is lost is logged. Blocks whose checksum does
not verify are not touched; they give errors until they are written anew.

A store that is not damaged is opened and closed, and nothing changes.`,
		Example: "  sluice store check /srv/sluice\n" +
			"  sluice store salvage --accept-loss /srv/sluice",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !accept {
				return refuse("store salvage forgets what was lost",
					"Restore the store from a copy if there is one. Else: sluice store salvage "+
						"--accept-loss "+storeArgs(args))
			}
			s, err := logstore.OpenPaths(logstore.PathOptions{
				Paths: args, Salvage: true, Logger: newLogger(),
			})
			if err != nil {
				return storeAdvice(err)
			}
			if err := s.Close(); err != nil {
				return storeAdvice(err)
			}
			if asJSON {
				return printJSON(cmd, salvaged{Paths: args, Usable: true})
			}
			fmt.Fprintln(cmd.OutOrStdout(), "The store can be opened. See what it holds: "+
				"sluice store check "+storeArgs(args))
			return nil
		},
	}
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "what was lost may be forgotten")
	addJSON(cmd, &asJSON, salvaged{})
	return cmd
}

// salvaged is what `sluice store salvage --json` prints; what was lost is in the log.
type salvaged struct {
	Paths  []string `json:"paths"`
	Usable bool     `json:"usable"`
}
