package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe/logstore"
)

func newStoreInfo() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "info PATH...",
		Short: "Tell what a store is: identity, format, sizes, members, log, memory",
		Long: `Tells what a store says of itself. It changes nothing, and may look at a store that a
server has open; then it sees what is on the disk.

Of memory it tells what a server needs that opens the store: for what is logged and not yet in
place (a bound), for the index's pages, and for the maps of objects.`,
		Example: "  sluice store info /srv/sluice\n  sluice store info --json /mnt/a /mnt/b",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, done, err := openMembers(args, false)
			if err != nil {
				return err
			}
			defer done()
			infos, err := logstore.Inspect(o)
			if err != nil {
				return storeAdvice(err)
			}
			if asJSON {
				return printJSON(cmd, infos)
			}
			printStoreInfo(cmd, infos)
			return membersComplete(infos)
		},
	}
	addJSON(cmd, &asJSON, []logstore.MemberInfo{})
	return cmd
}

func printStoreInfo(cmd *cobra.Command, infos []logstore.MemberInfo) {
	first := infos[0]
	t := newTable(cmd)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("store", "%s", first.StoreID)
	row("format", "%d", first.Format)
	if first.ServerID != 0 {
		row("server", "%d", first.ServerID)
	}
	row("members", "%d", first.Members)
	var used, data, memory int64
	for i := range infos {
		m := &infos[i]
		used, data = used+m.Used, data+m.Data
		memory += m.PendingMemory + m.IndexMemory + m.MapMemory
	}
	row("data", "%s in use of %s", admin.Bytes(used), admin.Bytes(data))
	row("memory", "%s for a server that opens it", admin.Bytes(memory))
	for i := range infos {
		m := &infos[i]
		state := "open, or not closed in order: the log is replayed by the next open"
		if m.Clean {
			state = "closed in order"
		}
		row("", "")
		row(fmt.Sprintf("member %d", m.Member), "%s", m.Device)
		row("  state", "%s", state)
		row("  size", "%s, %s for data, %s in use", admin.Bytes(m.Bytes), admin.Bytes(m.Data),
			admin.Bytes(m.Used))
		row("  log", "%s, of which a restart reads %s", admin.Bytes(m.LogBytes),
			admin.Bytes(m.LogUsed))
		row("  holds", "%s, %s, %s", plural(m.Objects, "object"), plural(m.Fences, "fence"),
			plural(m.Sessions, "session slot"))
		row("  memory", "at most %s pending, %s index, %s maps", admin.Bytes(m.PendingMemory),
			admin.Bytes(m.IndexMemory), admin.Bytes(m.MapMemory))
	}
	_ = t.Flush() // standard output is gone: nobody is there to be told
}

// membersComplete says when members are missing, in another order, or of several stores.
func membersComplete(infos []logstore.MemberInfo) error {
	for i := range infos {
		m := &infos[i]
		if m.StoreID != infos[0].StoreID || m.Member != i+1 || m.Members != len(infos) {
			return hint(errs.Newf(errs.Invalid, "store info", m.Device,
				"member %d of %d of store %s", m.Member, m.Members, m.StoreID),
				"Name all %d members of one store, in their order", infos[0].Members)
		}
	}
	return nil
}
