package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
)

func newRm() *cobra.Command {
	var f urlFlag
	var recursive bool
	cmd := &cobra.Command{
		Use:   "rm PATH...",
		Short: "Remove files and directories",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				err := f.withPath(cmd.Context(), arg, func(fs *client.FS, path string) error {
					if path == "/" {
						return refuse("refusing to remove /", "Name what is in it, see: sluice ls /")
					}
					if !recursive {
						return fs.Remove(cmd.Context(), path)
					}
					if _, err := fs.Lstat(cmd.Context(), path); err != nil {
						return err
					}
					return fs.RemoveAll(cmd.Context(), path)
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "remove directories with all they hold")
	return cmd
}
