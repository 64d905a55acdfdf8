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
		Long: "sluice turns the disks of ordinary Linux hosts into one shared, striped store: " +
			"files, a mount, and block volumes.\n\nStart with: sluice up",
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
	add(groupCluster, newUp(), newDown(), newStatus(), newTop(), newMeta(), newIod(), newStore(),
		newFsck(), newBounds(), newDemo())
	add(groupFiles, newMount(), newUmount(), newLs(), newCp(), newRm(), newMkdir(), newStat(),
		newCat(), newHints(), newQuota(), newDf())
	add(groupBlock, newVolume(), newNBD())
	add("", newBench(), newBenchPeer(), newBenchJob(), newVersion())
	return root
}
