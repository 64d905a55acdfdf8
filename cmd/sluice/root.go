package main

import (
	"github.com/spf13/cobra"
)

// The groups in which `sluice help` shows the verbs.
const (
	groupCluster = "cluster"
	groupFiles   = "files"
	groupBlock   = "block"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "One shared, striped store from the disks of ordinary Linux hosts",
		Long: `sluice turns the disks of ordinary Linux hosts into one shared, striped store: files, a
mount, and block volumes.

Start with: sluice up

Commands on files take paths on the cluster: /a/b, or sluice://HOST:PORT/a/b for another cluster
than that of --url and SLUICE_URL. With --json commands print one JSON document with keys in small
letters, which each command's help lists; times are those of RFC 3339, sizes are bytes. Keys are
added, never renamed.`,
		Example: "  sluice up -d --mount ./mnt\n  sluice cp -r dataset sluice:/dataset\n" +
			"  sluice ls -l /dataset\n  sluice help cp",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddGroup(
		&cobra.Group{ID: groupCluster, Title: "The cluster:"},
		&cobra.Group{ID: groupFiles, Title: "Files:"},
		&cobra.Group{ID: groupBlock, Title: "Block devices:"},
	)
	add := func(group string, verbs ...*cobra.Command) {
		for _, v := range verbs {
			v.GroupID = group
			root.AddCommand(v)
		}
	}
	add(groupCluster, newUp(), newDown(), newInit(), newServe(), newConfig(),
		newStatus(), newTop(), newMeta(), newIod(), newStore(), newFsck(), newBounds(), newDemo())
	add(groupCluster, newToken(), newJoin(), newHostVerb(), newServerVerb(), newClient(), newKey())
	add(groupFiles, newMount(), newUmount(), newLs(), newTree(), newFind(), newCp(), newMv(), newLn(),
		newRm(), newMkdir(), newTouch(), newTruncate(), newChmod(), newChown(), newStat(), newCat(),
		newArray(), newHints(), newLayout(), newPool(), newQuota(), newDu(), newDf(),
		newTransfer())
	add(groupBlock, newVolume(), newNBD(), newAttach(), newDetach())
	add("", newBench(), newBenchPeer(), newBenchJob(), newBenchAide(), newMan(), newVersion())
	return root
}
