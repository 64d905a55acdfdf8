package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/attach"
)

// infoOf is what files tell of a device.
func infoOf(spec *attach.Spec, state *attach.State, system attach.System) attachInfo {
	i := attachInfo{Name: spec.Name, Link: system.Link(spec.Name), Target: spec.Target,
		State: isUnserved, ReadOnly: spec.ReadOnly, Shared: spec.Shared, Since: state.Since,
		Why: state.Lost}
	if state.Connected {
		i.Device = system.Node(state.Index)
	}
	return i
}

// attachedInfo is what is known of a device: of its process, or else of its files.
func attachedInfo(ctx context.Context, place attach.Place, name string) (attachInfo, error) {
	if a, err := askAttached(ctx, place, name, attachRequest{Do: "status"}); err == nil {
		return a.Info, nil
	}
	spec, err := place.Spec(name)
	if err != nil {
		return attachInfo{}, err
	}
	state, err := place.State(name)
	return infoOf(&spec, &state, attach.System{}), err
}

// listAttached prints all devices.
func listAttached(cmd *cobra.Command, place attach.Place, asJSON bool) error {
	names, err := place.List()
	if err != nil {
		return err
	}
	all := []attachInfo{}
	for _, name := range names {
		if i, err := attachedInfo(cmd.Context(), place, name); err == nil {
			all = append(all, i) // else it was detached meanwhile
		}
	}
	if asJSON {
		return printJSON(cmd, all)
	}
	if len(all) == 0 {
		fmt.Fprintln(cmd.OutOrStdout(), "Nothing is attached. Attach a volume with: sluice attach NAME")
		return nil
	}
	t := newTable(cmd)
	fmt.Fprintln(t, "DEVICE\tNAME\tSIZE\tSTATE\tCONNECTIONS\tREPLACED\tPID\tTARGET")
	for i := range all {
		a := &all[i]
		state := a.State
		if a.ReadOnly {
			state += ", read-only"
		}
		if a.Shared {
			state += ", shared"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", a.Device, a.Name, admin.Bytes(a.Size), state,
			a.Connections, a.Replaced, a.PID, a.Target)
	}
	return t.Flush()
}

// printAttached tells of one device.
func printAttached(cmd *cobra.Command, i *attachInfo, asJSON bool) error {
	if asJSON {
		return printJSON(cmd, []attachInfo{*i})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is %s, %s\nDetach it with: sluice detach %s\n", i.Target,
		i.Device, i.Link, i.Name)
	return nil
}
