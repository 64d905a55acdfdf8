package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// manned is what `sluice man --json` shows.
type manned struct {
	Dir   string   `json:"dir"`
	Pages []string `json:"pages"`
}

func newMan() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages",
		Long: `Writes a manual page of section 1 for every command into a folder, which is made if it is
not there: sluice.1, sluice-cp.1, sluice-volume-create.1. They say what --help says. make install
puts them where man(1) looks.`,
		Example: "  sluice man ./man1\n  man ./man1/sluice-cp.1\n" +
			"  sluice man /usr/local/share/man/man1",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			m := manned{Dir: args[0], Pages: []string{}}
			for _, c := range manCommands(cmd.Root()) {
				name := manName(c) + ".1"
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(manPage(c)), 0o644); err != nil {
					return err
				}
				m.Pages = append(m.Pages, name)
			}
			if asJSON {
				return printJSON(cmd, m)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d pages in %s\n", len(m.Pages), args[0])
			return nil
		},
		ValidArgsFunction: completeFolders,
	}
	addJSON(cmd, &asJSON, manned{})
	return cmd
}
