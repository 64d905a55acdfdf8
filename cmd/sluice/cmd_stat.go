package main

import (
	"context"
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// statted is a file as `sluice stat` shows it.
type statted struct {
	listed
	Atime      meta.Time    `json:"atime"`     // read
	Ctime      meta.Time    `json:"ctime"`     // changed, with its attributes
	Btime      meta.Time    `json:"btime"`     // made
	Allocated  int64        `json:"allocated"` // bytes of space: holes are left out
	Generation uint32       `json:"generation"`
	Layout     *layoutInfo  `json:"layout,omitempty"` // of a regular file
	Stripes    []stripePart `json:"stripes,omitempty"`
	Extents    []extentPart `json:"extents,omitempty"` // with --extents
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
	var asJSON, follow, extents bool
	cmd := &cobra.Command{
		Use:   "stat PATH...",
		Short: "Show a file's attributes and which server holds how much of it",
		Long: `Shows type, size, rights, owner, times and inode of files and directories; of a
regular file also how it is striped, and for every server how many bytes of the file lie there
(BYTES) and how many of them are not in holes (DATA). A symbolic link is shown itself, unless -L
is given.

With --extents also where each part of the file lies: offset, length, what it is (data, a hole, or
space that fallocate has reserved and nobody has written yet), the server, and the offset in that
server's object. It is what FIEMAP and filefrag tell on local disks, which the kernel does not let
a FUSE file system answer.`,
		Example: "  sluice stat /data/big\n  sluice stat -L /runs/latest\n" +
			"  sluice stat --json /data/* | jq '.[].size'\n  sluice stat --extents /vm.img",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := []statted{}
			err := f.look(cmd, args, func(fs *client.FS, path string) error {
				s, err := statPath(cmd.Context(), fs, path, follow)
				if err == nil && extents {
					err = s.addExtents(cmd.Context(), fs)
				}
				if err == nil {
					all = append(all, s)
				}
				return err
			})
			if asJSON {
				if perr := printJSON(cmd, all); perr != nil {
					return perr
				}
				return err
			}
			for i := range all {
				if perr := printStat(cmd, &all[i]); perr != nil {
					return perr
				}
			}
			return err
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&follow, "dereference", "L", false, "follow symbolic links")
	cmd.Flags().BoolVar(&extents, "extents", false, "list where each part of the file lies")
	addJSON(cmd, &asJSON, []statted{})
	return cmd
}

func statPath(ctx context.Context, fs *client.FS, at string, follow bool) (statted, error) {
	look := fs.Lstat
	if follow {
		look = fs.Stat
	}
	a, err := look(ctx, at)
	if err != nil {
		return statted{}, err
	}
	s := statted{listed: listing(at, path.Base(at), &a), Generation: a.Gen, Atime: a.Atime,
		Ctime: a.Ctime, Btime: a.Btime}
	switch a.Type {
	case meta.Symlink:
		s.Target, err = fs.Readlink(ctx, at)
	case meta.Regular:
		s.Layout = &layoutInfo{Unit: a.Layout.Unit, Servers: a.Layout.Servers}
		if s.Allocated, err = spaceOf(ctx, fs, &a); err == nil {
			s.Stripes, err = statStripes(ctx, fs, at)
		}
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
	if s.Device != "" {
		fmt.Fprintf(t, "device\t%s\n", s.Device)
	}
	fmt.Fprintf(t, "size\t%d (%s)\n", s.Size, admin.Bytes(s.Size))
	if s.Layout != nil {
		fmt.Fprintf(t, "space\t%d (%s)\n", s.Allocated, admin.Bytes(s.Allocated))
	}
	fmt.Fprintf(t, "mode\t%s (%s)  uid %d  gid %d  links %d\n", s.Mode, s.Perm, s.UID, s.GID, s.Links)
	fmt.Fprintf(t, "accessed\t%s\n", s.Atime)
	fmt.Fprintf(t, "changed\t%s\n", s.Mtime)
	fmt.Fprintf(t, "status\t%s\n", s.Ctime)
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
	if err := t.Flush(); err != nil {
		return err
	}
	return printExtents(cmd, s.Extents)
}
