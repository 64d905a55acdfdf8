package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
)

// copyBytes is the size of the pieces that tools read and write: whole stripe rows of a default
// layout.
const copyBytes = 4 << 20

func newCat() *cobra.Command {
	const usual = "cached"
	var f urlFlag
	var uses wayFlag
	cmd := &cobra.Command{
		Use:   "cat PATH...",
		Short: "Print files",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			way, err := uses.parse(usual)
			if err != nil {
				return err
			}
			for _, arg := range args {
				err := f.withPath(cmd.Context(), arg, func(fs *client.FS, path string) error {
					file, err := fs.Open(cmd.Context(), path)
					if err != nil {
						return err
					}
					way.apply(file)
					s := file.IO(cmd.Context())
					defer s.Close()
					_, err = io.CopyBuffer(onlyWriter{cmd.OutOrStdout()}, onlyReader{s},
						make([]byte, copyBytes))
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	uses.add(cmd, usual)
	return cmd
}

// onlyReader and onlyWriter hide shortcuts of io.Copy that would choose another buffer size.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)
