package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/identity"
)

func newHostVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host",
		Short: "See and remove the hosts of the cluster",
		Long: `Hosts are the machines that a cluster consists of. They join by a token, which says what
roles they may have, and have a certificate of 90 days that is renewed by itself.`,
		Example: "  sluice host ls\n  sluice host rm h3",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(membersLs(identity.Host, `Lists the hosts that have joined, their roles, and how
long the latest certificate lasts.`),
		membersRm(identity.Host, `Removes hosts. Their certificates go onto the deny list at once, and
are refused everywhere within a minute: what they serve cannot be reached any more. Data that is on
their disks stays there. Their sessions end, their I/O servers are refused, and the cluster gets a
new secret by itself (sluice key ls), because they know keys of this one. A host that was removed
by mistake joins again by a new token, and has the I/O servers that it had.`))
	return cmd
}
