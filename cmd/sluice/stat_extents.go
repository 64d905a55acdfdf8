package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/stripe"
)

// extentPart is a part of a file that lies together on one server.
type extentPart struct {
	Offset int64  `json:"offset"` // in the file
	Bytes  int64  `json:"bytes"`
	Kind   string `json:"kind"`             // data, hole or reserved
	Server uint32 `json:"server,omitempty"` // of data and reserved space that is not in the metadata
	Object string `json:"object,omitempty"` // file.generation.stripe, as sluice store dump names it
	At     int64  `json:"at"`               // offset in the object
	Inline bool   `json:"in_metadata,omitempty"`
}

// addExtents lists where the parts of a regular file lie.
func (s *statted) addExtents(ctx context.Context, fs *client.FS) error {
	if s.Layout == nil {
		return nil
	}
	f, err := fs.Open(ctx, s.Path)
	if err != nil {
		return err
	}
	defer f.Close(context.WithoutCancel(ctx))
	a, l := f.Attr(), f.Layout()
	for off := int64(0); off < f.Size(); {
		extents, err := f.Map(ctx, off, f.Size()-off)
		if err != nil || len(extents) == 0 {
			return err // it was cut meanwhile
		}
		for _, e := range extents {
			s.Extents = appendParts(s.Extents, &a, &l, e)
			off = e.Off + e.Len
		}
	}
	return nil
}

// appendParts cuts an extent at the units of the layout. Holes are on no server, and of a small
// file there are no objects.
func appendParts(list []extentPart, a *meta.Attr, l *layout.Layout, e stripe.Extent) []extentPart {
	p := extentPart{Offset: e.Off, Bytes: e.Len, Kind: "data"}
	switch {
	case e.Reserved:
		p.Kind = "reserved"
	case e.Hole:
		p.Kind = "hole"
		return append(list, p)
	case a.Small:
		p.Inline = true
		return append(list, p)
	}
	for off, end := e.Off, e.Off+e.Len; off < end; {
		s, at, run := l.Locate(off)
		p.Offset, p.Bytes, p.At, p.Server = off, min(run, end-off), at, l.Servers[s]
		p.Object = stripe.ObjectID{File: uint64(a.Ino), Gen: a.Gen, Stripe: uint32(s)}.String()
		off += p.Bytes
		if k := len(list) - 1; k >= 0 && list[k].touches(&p) {
			list[k].Bytes += p.Bytes
			continue
		}
		list = append(list, p)
	}
	return list
}

// touches tells whether one part goes on where another ends, in the file and on the server.
func (p *extentPart) touches(next *extentPart) bool {
	return p.Kind == next.Kind && p.Object == next.Object && p.Offset+p.Bytes == next.Offset &&
		p.At+p.Bytes == next.At
}

func printExtents(cmd *cobra.Command, list []extentPart) error {
	if len(list) == 0 {
		return nil
	}
	t := newTable(cmd)
	fmt.Fprintln(t, "  OFFSET\tBYTES\tKIND\tSERVER\tOBJECT\tAT")
	for i := range list {
		p := &list[i]
		server, object, at := "-", "-", "-"
		switch {
		case p.Inline:
			server = "meta"
		case p.Object != "":
			server, object, at = fmt.Sprint("iod", p.Server), p.Object, fmt.Sprint(p.At)
		}
		fmt.Fprintf(t, "  %d\t%d\t%s\t%s\t%s\t%s\n", p.Offset, p.Bytes, p.Kind, server, object, at)
	}
	return t.Flush()
}
