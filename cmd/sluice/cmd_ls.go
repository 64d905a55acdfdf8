package main

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// listed is one entry as `sluice ls` shows it.
type listed struct {
	Name  string    `json:"name"`
	Type  string    `json:"type"`
	Mode  string    `json:"mode"`
	Size  int64     `json:"size"`
	Mtime meta.Time `json:"mtime"`
	UID   uint32    `json:"uid"`
	GID   uint32    `json:"gid"`
	Ino   uint64    `json:"ino"`
}

func newLs() *cobra.Command {
	var f urlFlag
	var long, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls [PATH]",
		Short:   "List a directory",
		Example: "  sluice ls /\n  sluice ls -l sluice://127.0.0.1:9400/data",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			where := "/"
			if len(args) == 1 {
				where = args[0]
			}
			return f.withPath(cmd.Context(), where, func(fs *client.FS, path string) error {
				entries, err := list(cmd.Context(), fs, path)
				if err != nil {
					return err
				}
				return printList(cmd, entries, long, asJSON)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&long, "long", "l", false, "show rights, owner, size and time")
	addJSON(cmd, &asJSON)
	return cmd
}

// list is sorted by name; a file lists itself.
func list(ctx context.Context, fs *client.FS, where string) ([]listed, error) {
	a, err := fs.Stat(ctx, where)
	if err != nil {
		return nil, err
	}
	if a.Type != meta.Directory {
		return []listed{listing(path.Base(where), &a)}, nil
	}
	entries := []listed{}
	err = fs.ReadDir(ctx, where, func(e meta.Entry) error {
		if e.Attr == nil {
			e.Attr = &meta.Attr{Ino: e.Ino, Type: e.Type}
		}
		entries = append(entries, listing(e.Name, e.Attr))
		return nil
	})
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	return entries, err
}

func listing(name string, a *meta.Attr) listed {
	return listed{Name: name, Type: typeText(a.Type), Mode: fileMode(a).String(), Size: a.Size,
		Mtime: a.Mtime, UID: a.UID, GID: a.GID, Ino: uint64(a.Ino)}
}

func printList(cmd *cobra.Command, entries []listed, long, asJSON bool) error {
	if asJSON {
		return printJSON(cmd, entries)
	}
	if !long {
		for _, e := range entries {
			fmt.Fprintln(cmd.OutOrStdout(), e.Name)
		}
		return nil
	}
	t := newTable(cmd)
	for _, e := range entries {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\n", e.Mode, e.UID, e.GID, e.Size,
			dateTime(e.Mtime), e.Name)
	}
	return t.Flush()
}

// dateTime is a time to the second, in the local zone.
func dateTime(t meta.Time) string {
	if text := t.String(); text[0] == '@' { // a year that has no other form
		return text
	}
	return t.Time().Format(time.DateTime)
}

func typeText(t meta.Type) string {
	switch t {
	case meta.Regular:
		return "file"
	case meta.Directory:
		return "directory"
	case meta.Symlink:
		return "symlink"
	case meta.Fifo:
		return "fifo"
	case meta.Socket:
		return "socket"
	case meta.CharDevice:
		return "character device"
	case meta.BlockDevice:
		return "block device"
	}
	return "unknown"
}

// fileMode is the mode in Go's words.
func fileMode(a *meta.Attr) fs.FileMode {
	m := fs.FileMode(a.Mode & 0o777)
	for _, bit := range []struct {
		raw uint32
		is  fs.FileMode
	}{{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky}} {
		if a.Mode&bit.raw != 0 {
			m |= bit.is
		}
	}
	switch a.Type {
	case meta.Directory:
		m |= fs.ModeDir
	case meta.Symlink:
		m |= fs.ModeSymlink
	case meta.Fifo:
		m |= fs.ModeNamedPipe
	case meta.Socket:
		m |= fs.ModeSocket
	case meta.CharDevice:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case meta.BlockDevice:
		m |= fs.ModeDevice
	}
	return m
}
