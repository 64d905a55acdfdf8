package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/array"
	"github.com/sluice-storage/sluice/seg"
)

// slabBytes is how much of an array is held in memory while it is copied.
const slabBytes = 16 << 20

// textMax is how much of an array is written as text or JSON, in bytes; valuesMax how many values
// and lists as JSON, each of which takes some ten times the memory of a number.
const (
	textMax   = 64 << 20
	valuesMax = 4 << 20
)

// arrayGot is what `sluice array get --json` prints.
type arrayGot struct {
	Path    string  `json:"path"`
	Slice   string  `json:"slice"`
	Dtype   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Fortran bool    `json:"fortran_order"`
	Bytes   int64   `json:"bytes"`
	File    string  `json:"file,omitempty"`   // that it was written to
	Values  any     `json:"values,omitempty"` // as nested lists, where it was not
}

func newArrayGet() *cobra.Command {
	var f urlFlag
	var af arrayFlags
	var output string
	var asJSON, explain bool
	cmd := &cobra.Command{
		Use:   "get PATH [SLICE]",
		Short: "Read a slice of an array, as text or into a .npy file",
		Long: `Reads a slice (see: sluice help array); without one the whole array. It is printed as text,
a line for each row of the last axis, or with -o written to a .npy file on this host, in the same
order of axes and bytes as the array.`,
		Example: "  sluice array get /field.npy 0:10,::2,3\n" +
			"  sluice array get -o last.npy /field.npy -- -1\n" +
			"  sluice array get --json /field.npy ...,0 | jq .values",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			got := arrayGot{Slice: strings.Join(args[1:], ""), File: output}
			return f.withPath(cmd.Context(), args[0], func(fs *client.FS, path string) error {
				file, err := fs.Open(cmd.Context(), path)
				if err != nil {
					return err
				}
				defer file.Close(context.WithoutCancel(cmd.Context()))
				told := &toldFile{File: file}
				v, a, err := af.view(cmd.Context(), told, got.Slice)
				if err != nil {
					return err
				}
				told.tell(cmd, explain)
				h := a.Header()
				got.Path, got.Dtype, got.Fortran = path, h.Type.String(), h.Fortran
				got.Shape, got.Bytes = append([]int64{}, v.Shape()...), v.Bytes()
				return hintShort(got.get(cmd, v, h, asJSON), path)
			})
		},
		ValidArgsFunction: completeFirst(completePaths(&f)),
	}
	f.add(cmd)
	af.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "write a .npy `FILE` on this host")
	addExplain(cmd, &explain)
	addJSON(cmd, &asJSON, arrayGot{})
	return cmd
}

// get writes a view to where it was asked for.
func (g *arrayGot) get(cmd *cobra.Command, v array.View, h array.Header, asJSON bool) error {
	ctx := cmd.Context()
	if g.File != "" {
		h.Shape, h.Version = v.Shape(), 0
		if err := saveView(ctx, v, h, g.File); err != nil || !asJSON {
			return err
		}
		return printJSON(cmd, g)
	}
	what := ""
	switch {
	case g.Bytes > textMax:
		what = fmt.Sprintf("%d bytes", g.Bytes)
	case asJSON && !printable(g.Shape):
		what = shapeWords(g.Shape) + " values"
	}
	if what != "" {
		return refuse(what+" are too many to print",
			"Write them to a file: -o FILE.npy, or choose a smaller slice")
	}
	p := make([]byte, g.Bytes)
	if err := v.Read(ctx, p, array.RowMajor); err != nil {
		return err
	}
	if asJSON {
		g.Values = nested(h.Type, g.Shape, &p)
		return printJSON(cmd, g)
	}
	w := bufio.NewWriter(cmd.OutOrStdout())
	printRows(w, h.Type, g.Shape, p)
	return w.Flush()
}

// saveView writes a .npy file beside its name and renames it, so that no half file is left.
func saveView(ctx context.Context, v array.View, h array.Header, name string) (err error) {
	head, err := h.Append(nil)
	if err != nil {
		return err
	}
	part := name + ".sluice-part"
	out, err := os.Create(part)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err == nil {
			err = os.Rename(part, name)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	if _, err := out.Write(head); err != nil {
		return err
	}
	var p []byte
	for _, slab := range v.Slabs(slabBytes) {
		if n := slab.Bytes(); int64(cap(p)) < n {
			p = make([]byte, n)
		}
		p = p[:slab.Bytes()]
		if err := slab.Read(ctx, p, array.AsFile); err != nil {
			return err
		}
		if _, err := out.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// printable tells whether a shape has at most valuesMax values and lists: elements may be of no
// bytes, and rows of no elements.
func printable(shape []int64) bool {
	all, level := int64(0), int64(1)
	for _, n := range shape {
		if n > valuesMax {
			return false
		}
		level *= n
		if all += level; all > valuesMax {
			return false
		}
	}
	return true
}

// hintShort says what is wrong with a file that ends before its array.
func hintShort(err error, path string) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return hint(err, "The file ends before its array does: sluice array info %s", path)
	}
	return err
}

// printRows writes a line for each row of the last axis, and an empty one between planes.
func printRows(w io.Writer, t array.Type, shape []int64, p []byte) {
	row := int64(1)
	if k := len(shape); k > 0 {
		row = shape[k-1]
	}
	for i := int64(0); int64(len(p)) >= t.Bytes && t.Bytes > 0 && len(p) > 0; i++ {
		if i > 0 && len(shape) > 2 && i%shape[len(shape)-2] == 0 {
			fmt.Fprintln(w)
		}
		words := make([]string, row)
		for k := range words {
			words[k] = t.Text(p[:t.Bytes])
			p = p[t.Bytes:]
		}
		fmt.Fprintln(w, strings.Join(words, " "))
	}
}

// nested is an array as JSON has it: lists of lists, numbers where JSON has such.
func nested(t array.Type, shape []int64, p *[]byte) any {
	if len(shape) == 0 {
		text := t.Text((*p)[:t.Bytes])
		*p = (*p)[t.Bytes:]
		switch {
		case t.Kind == 'b':
			return text == "True"
		case strings.IndexByte("iumMf", t.Kind) >= 0 && json.Valid([]byte(text)):
			return json.RawMessage(text)
		}
		return text
	}
	list := make([]any, shape[0])
	for i := range list {
		list[i] = nested(t, shape[1:], p)
	}
	return list
}

// arrayPut is what `sluice array put --json` prints.
type arrayPut struct {
	Path  string  `json:"path"`
	Slice string  `json:"slice"`
	Shape []int64 `json:"shape"`
	Bytes int64   `json:"bytes"` // written
}

func newArrayPut() *cobra.Command {
	var f urlFlag
	var af arrayFlags
	var sync, asJSON, explain bool
	cmd := &cobra.Command{
		Use:   "put FILE PATH [SLICE]",
		Short: "Write a .npy file into a slice of an array",
		Long: `Writes the array in a .npy FILE of this host into a slice (see: sluice help array) of one
on the cluster, without one over all of it. Type and shape must be the same; axes of length 1
count. The order of the axes need not be.`,
		Example: "  sluice array put tile.npy /field.npy 0:256,256:512\n" +
			"  sluice array put --sync row.npy /field.npy 7:8",
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			put := arrayPut{Slice: strings.Join(args[2:], "")}
			err := f.change(cmd.Context(), args[1], func(fs *client.FS, path string) error {
				put.Path = path
				return put.put(cmd, fs, &af, args[0], sync, explain)
			})
			if err == nil && asJSON {
				err = printJSON(cmd, put)
			}
			return err
		},
	}
	f.add(cmd)
	af.add(cmd)
	cmd.Flags().BoolVar(&sync, "sync", false, "return when it is on stable storage")
	addExplain(cmd, &explain)
	addJSON(cmd, &asJSON, arrayPut{})
	return cmd
}

func (p *arrayPut) put(cmd *cobra.Command, fs *client.FS, af *arrayFlags, from string,
	sync, explain bool) (err error) {
	ctx := cmd.Context()
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	source, err := array.Open(ctx, hostArray{in})
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	file, err := fs.OpenFile(ctx, p.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close(context.WithoutCancel(ctx))) }()
	told := &toldFile{File: file}
	v, _, err := af.view(ctx, told, p.Slice)
	if err != nil {
		return err
	}
	told.tell(cmd, explain)
	switch {
	case !sameType(source.Type(), v.Type()):
		return refuse(fmt.Sprintf("%s has elements of type %v, the array of type %v", from,
			source.Type(), v.Type()), "Convert it first, with NumPy's astype")
	case !sameLengths(source.Shape(), v.Shape()):
		return refuse(fmt.Sprintf("%s is %s, the slice is %s", from, shapeWords(source.Shape()),
			shapeWords(v.Shape())), "Choose a slice of the same shape")
	}
	p.Shape, p.Bytes = append([]int64{}, v.Shape()...), v.Bytes()
	if err := copyView(ctx, source.All(), v); err != nil || !sync {
		return hintShort(err, from)
	}
	return file.Sync(ctx)
}

// copyView copies one view into another of the same shape, slab by slab.
func copyView(ctx context.Context, from, to array.View) error {
	var p []byte
	for box, slab := range to.Slabs(slabBytes) {
		part, err := from.Part(box)
		if err != nil {
			return err
		}
		if n := slab.Bytes(); int64(cap(p)) < n {
			p = make([]byte, n)
		}
		p = p[:slab.Bytes()]
		if err := part.Read(ctx, p, array.RowMajor); err != nil {
			return err
		}
		if err := slab.Write(ctx, p, array.RowMajor); err != nil {
			return err
		}
	}
	return nil
}

// hostArray is a file of this host, for arrays that are read from it.
type hostArray struct{ f *os.File }

func (h hostArray) ReadList(_ context.Context, bufs [][]byte, a seg.Access) (n int64, err error) {
	err = eachRun(bufs, a, func(p []byte, off int64) error {
		got, err := h.f.ReadAt(p, off)
		n += int64(got)
		return err
	})
	return n, err
}

func (h hostArray) WriteList(_ context.Context, bufs [][]byte, a seg.Access) (n int64, err error) {
	err = eachRun(bufs, a, func(p []byte, off int64) error {
		got, err := h.f.WriteAt(p, off)
		n += int64(got)
		return err
	})
	return n, err
}

// eachRun matches memory with pieces of a file.
func eachRun(bufs [][]byte, a seg.Access, fn func(p []byte, off int64) error) error {
	c := a.Cursor()
	for _, b := range bufs {
		for len(b) > 0 {
			piece, ok := c.Next(int64(len(b)))
			if !ok {
				return io.ErrShortBuffer
			}
			if err := fn(b[:piece.Len], piece.Off); err != nil {
				return err
			}
			b = b[piece.Len:]
		}
	}
	return nil
}

func (h hostArray) Truncate(_ context.Context, size int64) error { return h.f.Truncate(size) }

func (h hostArray) Size() int64 {
	st, err := h.f.Stat()
	if err != nil {
		return 0 // what follows reads, and says why it cannot
	}
	return st.Size()
}
