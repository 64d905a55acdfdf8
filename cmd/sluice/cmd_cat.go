package main

import (
	"fmt"
	"io"
	"math"

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
	var offset, length string
	cmd := &cobra.Command{
		Use:   "cat PATH...",
		Short: "Print files",
		Long: `Prints files of the cluster to standard output, one after the other. With --offset and
--length a part of each. A file that cannot be read does not keep the others from being printed.`,
		Example: "  sluice cat /etc/motd\n  sluice cat /logs/a /logs/b | grep error\n" +
			"  sluice cat --offset 1G --length 4K /disk.img | xxd",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			way, err := uses.parse(usual)
			if err != nil {
				return err
			}
			from, err := parseSize(offset)
			if err != nil {
				return err
			}
			n := int64(math.MaxInt64) - from
			if length != "" {
				if n, err = parseSize(length); err != nil {
					return err
				}
			}
			return f.look(cmd, args, func(fs *client.FS, path string) error {
				return catPart(cmd, fs, path, way, from, n)
			})
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	uses.add(cmd, usual)
	cmd.Flags().StringVar(&offset, "offset", "0", "begin at this `BYTE` of each file, like 4096 or 1G")
	cmd.Flags().StringVar(&length, "length", "", "print at most this many `BYTES` of each file")
	return cmd
}

// catPart prints n bytes of a file, or up to its end.
func catPart(cmd *cobra.Command, fs *client.FS, path string, way way, from, n int64) error {
	file, err := fs.Open(cmd.Context(), path)
	if err != nil {
		return err
	}
	way.apply(file)
	s := file.IO(cmd.Context())
	defer s.Close()
	part := io.NewSectionReader(s, from, n)
	_, err = io.CopyBuffer(onlyWriter{cmd.OutOrStdout()}, onlyReader{part}, make([]byte, copyBytes))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// onlyReader and onlyWriter hide shortcuts of io.Copy that would choose another buffer size.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)
