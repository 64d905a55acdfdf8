package main

import (
	"github.com/spf13/cobra"

	benchmount "github.com/sluice-storage/sluice/bench/mount"
	benchnbd "github.com/sluice-storage/sluice/bench/nbd"
)

// The groups in which `sluice help` shows the verbs.
const (
	groupCluster = "cluster"
	groupFiles   = "files"
	groupBlock   = "block"
)

// allVerbs are all commands, in the order of `sluice help`.
func allVerbs() []rootVerb {
	return []rootVerb{
		{"up", groupCluster, newUp},
		{"down", groupCluster, newDown},
		{"init", groupCluster, newInit},
		{"serve", groupCluster, newServe},
		{"config", groupCluster, newConfig},
		{"status", groupCluster, newStatus},
		{"top", groupCluster, newTop},
		{"meta", groupCluster, newMeta},
		{"iod", groupCluster, newIod},
		{"store", groupCluster, newStore},
		{"fsck", groupCluster, newFsck},
		{"bounds", groupCluster, newBounds},
		{"demo", groupCluster, newDemo},
		{"token", groupCluster, newToken},
		{"join", groupCluster, newJoin},
		{"host", groupCluster, newHostVerb},
		{"server", groupCluster, newServerVerb},
		{"client", groupCluster, newClient},
		{"key", groupCluster, newKey},
		{"mount", groupFiles, newMount},
		{"umount", groupFiles, newUmount},
		{"ls", groupFiles, newLs},
		{"tree", groupFiles, newTree},
		{"find", groupFiles, newFind},
		{"cp", groupFiles, newCp},
		{"mv", groupFiles, newMv},
		{"ln", groupFiles, newLn},
		{"rm", groupFiles, newRm},
		{"mkdir", groupFiles, newMkdir},
		{"touch", groupFiles, newTouch},
		{"truncate", groupFiles, newTruncate},
		{"chmod", groupFiles, newChmod},
		{"chown", groupFiles, newChown},
		{"stat", groupFiles, newStat},
		{"cat", groupFiles, newCat},
		{"array", groupFiles, newArray},
		{"hints", groupFiles, newHints},
		{"layout", groupFiles, newLayout},
		{"pool", groupFiles, newPool},
		{"quota", groupFiles, newQuota},
		{"du", groupFiles, newDu},
		{"df", groupFiles, newDf},
		{"transfer", groupFiles, newTransfer},
		{"volume", groupBlock, newVolume},
		{"nbd", groupBlock, newNBD},
		{"attach", groupBlock, newAttach},
		{"detach", groupBlock, newDetach},
		{"bench", "", newBench},
		{"bench-peer", "", newBenchPeer},
		{benchmount.JobCommand, "", newBenchJob},
		{benchnbd.AideCommand, "", newBenchAide},
		{"man", "", newMan},
		{"version", "", newVersion},
	}
}

// rootVerb is a command, with its name and group, and what makes it.
type rootVerb struct {
	name, group string
	make        func() *cobra.Command
}

// newRoot is the program with all its commands.
func newRoot() *cobra.Command { return rootWith(allVerbs()) }

// rootFor is the program with the command that a command line names, or all of them where it names
// none: to make all takes longer than most of them run.
func rootFor(args []string) *cobra.Command {
	all := allVerbs()
	for i := range all {
		if len(args) > 0 && all[i].name == args[0] && args[0] != "man" { // which tells of all others
			return rootWith(all[i : i+1])
		}
	}
	return rootWith(all)
}

func rootWith(list []rootVerb) *cobra.Command {
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
	for _, v := range list {
		cmd := v.make()
		cmd.GroupID = v.group
		root.AddCommand(cmd)
	}
	return root
}
