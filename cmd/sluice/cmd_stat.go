package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// statted is a file as `sluice stat` shows it.
type statted struct {
	listed
	Path       string       `json:"path"`
	Links      uint32       `json:"links"`
	Atime      meta.Time    `json:"atime"` // read
	Ctime      meta.Time    `json:"ctime"` // changed, with its attributes
	Btime      meta.Time    `json:"btime"` // made
	Generation uint32       `json:"generation"`
	Target     string       `json:"target,omitempty"` // of a symlink
	Layout     *layoutInfo  `json:"layout,omitempty"` // of a regular file
	Stripes    []stripePart `json:"stripes,omitempty"`
}

// stripePart is what one server holds of a file.
type stripePart struct {
	Stripe  int    `json:"stripe"`
	Server  uint32 `json:"server"`
	Address string `json:"address"`
	Bytes   int64  `json:"bytes"` // of the file, holes included
	Data    int64  `json:"data"`  // of them, not in holes, as the server says
}

func newStat() *cobra.Command {
	var f urlFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stat PATH...",
		Short: "Show a file's attributes and which server holds how much of it",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []statted
			for _, arg := range args {
				err := f.withPath(cmd.Context(), arg, func(fs *client.FS, path string) error {
					s, err := statPath(cmd.Context(), fs, path)
					all = append(all, s)
					return err
				})
				if err != nil {
					return err
				}
			}
			if asJSON {
				return printJSON(cmd, all)
			}
			for i := range all {
				if err := printStat(cmd, &all[i]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.add(cmd)
	addJSON(cmd, &asJSON)
	return cmd
}

func statPath(ctx context.Context, fs *client.FS, path string) (statted, error) {
	a, err := fs.Lstat(ctx, path)
	if err != nil {
		return statted{}, err
	}
	s := statted{listed: listing(path, &a), Path: path, Links: a.Nlink, Generation: a.Gen,
		Atime: a.Atime, Ctime: a.Ctime, Btime: a.Btime}
	switch a.Type {
	case meta.Symlink:
		s.Target, err = fs.Readlink(ctx, path)
	case meta.Regular:
		s.Layout = &layoutInfo{Unit: a.Layout.Unit, Servers: a.Layout.Servers}
		s.Stripes, err = statStripes(ctx, fs, path)
	}
	return s, err
}

// statStripes asks every server of a file what it holds.
func statStripes(ctx context.Context, fs *client.FS, path string) ([]stripePart, error) {
	f, err := fs.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close(context.WithoutCancel(ctx))
	addrs := map[uint32]string{}
	servers, err := fs.Meta().Servers(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		addrs[s.ID] = s.Addr
	}
	l := f.Layout()
	parts := make([]stripePart, l.Width())
	for i, id := range l.Servers {
		parts[i] = stripePart{Stripe: i, Server: id, Address: addrs[id],
			Bytes: l.ObjectSize(i, f.Size())}
	}
	return parts, addData(ctx, f, &l, parts)
}

// addData adds up the file's data extents by the server that they lie on.
func addData(ctx context.Context, f *client.File, l *layout.Layout, parts []stripePart) error {
	for off := int64(0); off < f.Size(); {
		extents, err := f.Map(ctx, off, f.Size()-off)
		if err != nil {
			return err
		}
		if len(extents) == 0 {
			return nil // the file was cut meanwhile
		}
		for _, e := range extents {
			off = e.Off + e.Len
			if e.Hole {
				continue
			}
			for i := range parts {
				parts[i].Data += l.ObjectSize(i, e.Off+e.Len) - l.ObjectSize(i, e.Off)
			}
		}
	}
	return nil
}

func printStat(cmd *cobra.Command, s *statted) error {
	t := newTable(cmd)
	fmt.Fprintf(t, "path\t%s\n", s.Path)
	fmt.Fprintf(t, "type\t%s\n", s.Type)
	if s.Target != "" {
		fmt.Fprintf(t, "target\t%s\n", s.Target)
	}
	fmt.Fprintf(t, "size\t%d (%s)\n", s.Size, admin.Bytes(s.Size))
	fmt.Fprintf(t, "mode\t%s  uid %d  gid %d  links %d\n", s.Mode, s.UID, s.GID, s.Links)
	fmt.Fprintf(t, "changed\t%s (data)  %s (all)\n", s.Mtime, s.Ctime)
	fmt.Fprintf(t, "read\t%s\n", s.Atime)
	fmt.Fprintf(t, "made\t%s\n", s.Btime)
	fmt.Fprintf(t, "inode\t%d, generation %d\n", s.Ino, s.Generation)
	if s.Layout == nil {
		return t.Flush()
	}
	fmt.Fprintf(t, "layout\tunits of %s, round robin over %d servers\n",
		admin.Bytes(s.Layout.Unit), len(s.Stripes))
	if err := t.Flush(); err != nil {
		return err
	}
	t = newTable(cmd)
	fmt.Fprintln(t, "  STRIPE\tSERVER\tADDRESS\tBYTES\tDATA")
	for _, p := range s.Stripes {
		fmt.Fprintf(t, "  %d\tiod%d\t%s\t%d\t%d\n", p.Stripe, p.Server, p.Address, p.Bytes, p.Data)
	}
	return t.Flush()
}
