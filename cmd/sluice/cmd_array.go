package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-storage/sluice/admin"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/client/array"
	"github.com/sluice-storage/sluice/errs"
)

const arrayText = `Reads and writes parts of N-dimensional arrays without moving the rest: each I/O
server is asked once for all that it has of a slice. An array is a .npy file, as NumPy's save
writes it, or with --raw a file of elements without a header, whose type and shape you say.

A slice is written as in NumPy, without brackets: for each axis an index, or START:STOP:STEP, any
of which may be left out; negative numbers count from the end, and a negative step walks backwards;
... stands for the axes that are not named. One that begins with a minus stands behind --.`

// arrayInfo is an array as `sluice array info` shows it.
type arrayInfo struct {
	Path     string       `json:"path"`
	Format   string       `json:"format"`            // npy, raw
	Version  int          `json:"version,omitempty"` // of the format
	Dtype    string       `json:"dtype"`
	Shape    []int64      `json:"shape"`
	Fortran  bool         `json:"fortran_order"`
	Offset   int64        `json:"offset"` // of the first element
	Element  int64        `json:"element_bytes"`
	Elements int64        `json:"elements"`
	Bytes    int64        `json:"bytes"`
	Missing  int64        `json:"missing"` // bytes that the file is too short
	Layout   layoutInfo   `json:"layout"`
	Stripes  []stripePart `json:"stripes"`
}

func newArray() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "array",
		Short: "Look at, read and write slices of N-dimensional arrays (NumPy's .npy, raw)",
		Long:  arrayText,
		Example: "  sluice array info /field.npy\n" +
			"  sluice array get /field.npy 0:10,::2,3\n" +
			"  sluice array get /field.npy ...,0 -o plane.npy\n" +
			"  sluice array create --dtype float32 --shape 4096,4096 /new.npy\n" +
			"  sluice array put tile.npy /new.npy 0:256,0:256",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newArrayInfo(), newArrayGet(), newArrayPut(), newArrayCreate())
	return cmd
}

// arrayFlags say what an array is that has no header.
type arrayFlags struct {
	raw, fortran         bool
	dtype, shape, offset string
}

func (f *arrayFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVar(&f.raw, "raw", false, "the file has no header: --dtype and --shape say what it is")
	fl.StringVar(&f.dtype, "dtype", "", "`TYPE` of the elements: float64, >i4, S16, "+
		"\"[('x','<f4'),('y','<f4')]\"")
	fl.StringVar(&f.shape, "shape", "", "`LENGTHS` of the axes: 100,200; 1 for a single number")
	fl.BoolVar(&f.fortran, "fortran", false, "the first axis is the fastest")
	fl.StringVar(&f.offset, "offset", "0", "with --raw: `BYTES` before the first element")
	completeWords(cmd, "dtype", "float64", "float32", "int64", "int32", "uint8", "complex128")
}

// header is the array that the flags describe.
func (f *arrayFlags) header() (h array.Header, off int64, err error) {
	h.Fortran = f.fortran
	if f.dtype == "" || f.shape == "" {
		return h, 0, refuse("which type and shape?", "Give both: --dtype float64 --shape 100,200")
	}
	if h.Type, err = array.ParseType(f.dtype); err != nil {
		return h, 0, hint(err, "Write NumPy's name or short form: float64, >i4, S16")
	}
	for _, word := range strings.Split(strings.Trim(f.shape, "() ,"), ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 64)
		if err != nil || n < 0 {
			return h, 0, refuse(f.shape+" is no shape", "Write lengths with commas: 100,200")
		}
		h.Shape = append(h.Shape, n)
	}
	off, err = parseSize(f.offset)
	return h, off, err
}

// open opens the array in a file.
func (f *arrayFlags) open(ctx context.Context, file array.File) (*array.Array, error) {
	if f.raw {
		h, off, err := f.header()
		if err != nil {
			return nil, err
		}
		return array.Raw(file, off, h)
	}
	if f.dtype != "" || f.shape != "" || f.fortran {
		return nil, refuse("a .npy file says by itself what it is",
			"Leave --dtype, --shape and --fortran out, or add --raw")
	}
	a, err := array.Open(ctx, file)
	if errs.KindOf(err) == errs.Invalid {
		err = hint(err, "If it is an array without a header, add --raw --dtype TYPE --shape LENGTHS")
	}
	return a, err
}

// view opens the array in a file and chooses a slice of it.
func (f *arrayFlags) view(ctx context.Context, file array.File, text string) (array.View,
	*array.Array, error) {
	a, err := f.open(ctx, file)
	if err != nil {
		return array.View{}, nil, err
	}
	list, err := array.ParseSlices(text)
	if err != nil {
		return array.View{}, nil, err
	}
	v, err := a.All().Slice(list...)
	return v, a, err
}

func newArrayInfo() *cobra.Command {
	var f urlFlag
	var af arrayFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "info PATH...",
		Short: "Show type, shape and order of arrays, and how they are striped",
		Long: `Shows what a header says: type of the elements, shape, order; where the data begins and
how long it is; and how the file is striped: how many bytes lie on each server.`,
		Example: "  sluice array info /field.npy\n  sluice array info --json /runs/*.npy\n" +
			"  sluice array info --raw --dtype '>f4' --shape 180,360 /dump",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := []arrayInfo{}
			err := f.look(cmd, args, func(fs *client.FS, path string) error {
				i, err := af.info(cmd.Context(), fs, path)
				if err == nil {
					all = append(all, i)
				}
				return err
			})
			if asJSON {
				return errors.Join(printJSON(cmd, all), err)
			}
			for i := range all {
				if perr := printArray(cmd, &all[i]); perr != nil {
					return perr
				}
			}
			return err
		},
		ValidArgsFunction: completePaths(&f),
	}
	f.add(cmd)
	af.add(cmd)
	addJSON(cmd, &asJSON, []arrayInfo{})
	return cmd
}

func (f *arrayFlags) info(ctx context.Context, fs *client.FS, path string) (arrayInfo, error) {
	file, err := fs.Open(ctx, path)
	if err != nil {
		return arrayInfo{}, err
	}
	defer file.Close(context.WithoutCancel(ctx))
	a, err := f.open(ctx, file)
	if err != nil {
		return arrayInfo{}, err
	}
	h, l := a.Header(), file.Layout()
	i := arrayInfo{Path: path, Format: "npy", Version: h.Version, Dtype: h.Type.String(),
		Shape: append([]int64{}, h.Shape...), Fortran: h.Fortran, Offset: a.Offset(),
		Element: h.Type.Bytes, Elements: 1, Bytes: a.Bytes(),
		Missing: max(a.End()-file.Size(), 0), Layout: layoutInfo{l.Unit, l.Servers}}
	if a.IsRaw() {
		i.Format = "raw"
	}
	for _, n := range h.Shape {
		i.Elements *= n
	}
	i.Stripes, err = statStripes(ctx, fs, path)
	return i, err
}

func printArray(cmd *cobra.Command, i *arrayInfo) error {
	t := newTable(cmd)
	fmt.Fprintf(t, "path\t%s\n", i.Path)
	if i.Format == "npy" {
		fmt.Fprintf(t, "format\t.npy %d.0, data from byte %d on\n", i.Version, i.Offset)
	} else {
		fmt.Fprintf(t, "format\traw, from byte %d on\n", i.Offset)
	}
	fmt.Fprintf(t, "dtype\t%s\n", i.Dtype)
	fmt.Fprintf(t, "shape\t%s\n", shapeWords(i.Shape))
	order := "the last axis is the fastest (C)"
	if i.Fortran {
		order = "the first axis is the fastest (Fortran)"
	}
	fmt.Fprintf(t, "order\t%s\n", order)
	fmt.Fprintf(t, "data\t%d (%s): %d elements of %s\n", i.Bytes, admin.Bytes(i.Bytes),
		i.Elements, counted(i.Element, "byte", "bytes"))
	if i.Missing > 0 {
		fmt.Fprintf(t, "missing\t%d bytes: the file is too short\n", i.Missing)
	}
	fmt.Fprintf(t, "layout\tunits of %s over %s\n", admin.Bytes(i.Layout.Unit),
		serverNames(i.Layout.Servers))
	if err := t.Flush(); err != nil {
		return err
	}
	t = newTable(cmd)
	fmt.Fprintln(t, "  STRIPE\tSERVER\tADDRESS\tBYTES\tDATA")
	for _, p := range i.Stripes {
		fmt.Fprintf(t, "  %d\tiod%d\t%s\t%d\t%d\n", p.Stripe, p.Server, p.Address, p.Bytes, p.Data)
	}
	return t.Flush()
}

// shapeWords writes a shape as people do: 100 x 200.
func shapeWords(shape []int64) string {
	words := make([]string, len(shape))
	for i, n := range shape {
		words[i] = strconv.FormatInt(n, 10)
	}
	if len(words) == 0 {
		return "one element"
	}
	return strings.Join(words, " x ")
}

func newArrayCreate() *cobra.Command {
	var f urlFlag
	var af arrayFlags
	var how policyFlags
	var version int
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "create PATH",
		Short: "Make an array of zeroes",
		Long: `Makes a .npy file, or with --raw one without a header, of the given type and shape. Its
elements are zero, and take no space until they are written.`,
		Example: "  sluice array create --dtype float64 --shape 1000,1000,1000 /cube.npy\n" +
			"  sluice array create --dtype '<i2' --shape 512,512 --fortran --unit 4M /image.npy\n" +
			"  sluice array create --raw --dtype uint8 --shape 1048576 /dump",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			policy, err := how.parse()
			if err != nil {
				return err
			}
			h, off, err := af.header()
			if err != nil {
				return err
			}
			h.Version = version
			if err := checkArray(h, off, af.raw); err != nil { // before anything is cut
				return err
			}
			flags := os.O_RDWR | os.O_CREATE | os.O_EXCL
			if force {
				flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
			}
			var info arrayInfo
			err = f.change(cmd.Context(), args[0], func(fs *client.FS, path string) error {
				file, err := fs.OpenFile(cmd.Context(), path, flags, 0o666&^umask(),
					client.WithLayout(policy))
				if err != nil {
					return hintMissingParent(hintExists(err))
				}
				err = createArray(cmd.Context(), file, h, off, af.raw)
				if err = errors.Join(err, file.Close(cmd.Context())); err == nil {
					info, err = af.forget().info(cmd.Context(), fs, path)
				}
				return err
			})
			if err == nil && asJSON {
				err = printJSON(cmd, info)
			}
			return err
		},
		ValidArgsFunction: completeFirst(completePaths(&f)),
	}
	f.add(cmd)
	af.add(cmd)
	how.add(cmd, &f)
	cmd.Flags().IntVar(&version, "format", 0, "version of the .npy format: `N` 1, 2 or 3 (default: "+
		"the lowest that can hold the header)")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "overwrite what is there")
	addJSON(cmd, &asJSON, arrayInfo{})
	return cmd
}

// forget leaves out what the header of a file says by now.
func (f *arrayFlags) forget() *arrayFlags {
	if f.raw {
		return f
	}
	return &arrayFlags{}
}

func hintExists(err error) error {
	if errs.KindOf(err) == errs.Exists {
		return hint(err, "Overwrite it with --force")
	}
	return err
}

// checkArray refuses what cannot be made.
func checkArray(h array.Header, off int64, raw bool) error {
	var err error
	if raw {
		_, err = array.Raw(nil, off, h)
	} else if _, err = h.Bytes(); err == nil {
		_, err = h.Append(nil)
	}
	return err
}

func createArray(ctx context.Context, f array.File, h array.Header, off int64, raw bool) error {
	if !raw {
		_, err := array.Create(ctx, f, h)
		return err
	}
	a, err := array.Raw(f, off, h)
	if err != nil {
		return err
	}
	return f.Truncate(ctx, a.End())
}

// change opens the cluster of a path that something is written to.
func (f *urlFlag) change(ctx context.Context, arg string,
	fn func(fs *client.FS, path string) error) error {
	s := newClusters(f)
	fs, at, err := s.open(ctx, arg)
	if err == nil {
		err = fn(fs, at)
	}
	return errors.Join(err, s.close())
}

// sameType compares what elements are.
func sameType(a, b array.Type) bool { return a.String() == b.String() }

// sameLengths compares shapes.
func sameLengths(a, b []int64) bool { return slices.Equal(a, b) }
