package main

import (
	"encoding/json"
	"reflect"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/size"
)

// addJSON adds the flag. Given an example of what is printed, the command's help tells its keys;
// without one the command tells them by itself. Long must be set before.
func addJSON(cmd *cobra.Command, asJSON *bool, example ...any) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON")
	for _, e := range example {
		if cmd.Long == "" {
			cmd.Long = cmd.Short + "."
		}
		cmd.Long += "\n\n" + wrapped("With --json one document is printed: "+
			jsonShape(reflect.TypeOf(e))+".")
	}
}

// addJSONLines is addJSON for what comes one after the other: every line is a document.
func addJSONLines(cmd *cobra.Command, asJSON *bool, example any) {
	addJSON(cmd, asJSON)
	cmd.Long += "\n\n" + wrapped("With --json every line is a document: "+
		jsonShape(reflect.TypeOf(example))+".")
}

func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// newTable aligns columns; cells are separated by tabs. Flush it.
func newTable(cmd *cobra.Command) *tabwriter.Writer {
	return tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
}

// parseSize reads a number of bytes with a binary unit: 4096, 64K, 64KiB, 10G, 1T.
func parseSize(text string) (int64, error) {
	n, ok := size.Parse(text)
	if !ok {
		return 0, errs.Newf(errs.Invalid, "", "",
			"%q is no size: write bytes or a unit, like 1048576, 64M or 10GiB", text)
	}
	return n, nil
}
