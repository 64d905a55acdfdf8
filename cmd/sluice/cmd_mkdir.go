package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
)

func newMkdir() *cobra.Command {
	var f urlFlag
	var parents bool
	cmd := &cobra.Command{
		Use:   "mkdir PATH...",
		Short: "Make directories",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				err := f.withPath(cmd.Context(), arg, func(fs *client.FS, path string) error {
					if parents {
						return fs.MkdirAll(cmd.Context(), path, 0o755)
					}
					return hintMissingParent(fs.Mkdir(cmd.Context(), path, 0o755))
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&parents, "parents", "p", false,
		"make missing directories above it too; an existing one is fine")
	return cmd
}
