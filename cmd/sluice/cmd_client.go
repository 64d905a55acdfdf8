package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/identity"
)

func newClient() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "client",
		Short: "See and remove the clients of the cluster",
		Long: `Clients mount the file system or use it by commands and programs. They join by a token,
which says what they may do, and have a certificate of 90 days that is renewed by itself.`,
		Example: "  sluice client ls\n  sluice client rm ann",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(membersLs(identity.Client, `Lists the clients that have joined, what they may do
(the path that they see, rw or ro, whom they may not speak for, volumes), and how long the latest
certificate lasts.`),
		membersRm(identity.Client, `Removes clients. Their certificates go onto the deny list at once,
and are refused everywhere within a minute. Their sessions end at once: files that they have open
are closed when the last rights that were given have run out, in a minute at the most. A client that
was removed by mistake joins again by a new token.`))
	return cmd
}
