// Package volumeexport serves a volume, striped over the I/O servers of a cluster, as a block
// device. Reads and writes go straight to the servers, all of them at once; a flush makes durable
// what any connection has written; a trim gives space back on every server.
//
// It does not make or resize volumes, and it caches nothing. An export that may write has the
// volume for itself, see client.FS.OpenVolume: its flush covers all writes to the volume.
//
// Read volume.go; there is no other file.
package volumeexport

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/stripe"
)

// What the export needs of an open volume; *client.File has it.
type (
	bytes interface {
		ReadAt(ctx context.Context, p []byte, off int64) (int, error)
		WriteAt(ctx context.Context, p []byte, off int64) (int, error)
		WriteAtDurable(ctx context.Context, p []byte, off int64) (int, error)
	}
	file interface {
		bytes
		Punch(ctx context.Context, off, n int64) error
		Map(ctx context.Context, off, n int64) ([]stripe.Extent, error)
		Sync(ctx context.Context) error
		Close(ctx context.Context) error
	}
)

// Volume is an nbd.Export of a volume. Safe for concurrent use.
type Volume struct {
	file file
	size int64
	text string
}

var (
	_ nbd.Export    = (*Volume)(nil)
	_ nbd.Trimmer   = (*Volume)(nil)
	_ nbd.Zeroer    = (*Volume)(nil)
	_ nbd.Mapper    = (*Volume)(nil)
	_ nbd.Describer = (*Volume)(nil)
	_ nbd.Sizer     = (*Volume)(nil)
)

// Options of an export.
type Options struct {
	// ReadOnly opens the volume for reading. Default false.
	ReadOnly bool

	// How is the way that data takes at the I/O servers. Default: through their caches, for reads
	// and writes. A guest keeps in its own memory what it reads often; what it asks for is either
	// small, and then readahead and what other guests have read of the same image make the servers'
	// caches worth while, or a stream, for which client.DirectReads is better. client.Direct suits
	// volumes that are larger than the caches and not read twice.
	How client.How
}

// Open opens a volume by name. The FS stays the caller's and must outlive the export.
func Open(ctx context.Context, fs *client.FS, name string, readOnly bool) (*Volume, error) {
	return OpenWith(ctx, fs, name, Options{ReadOnly: readOnly})
}

// OpenWith is Open with options.
func OpenWith(ctx context.Context, fs *client.FS, name string, o Options) (*Volume, error) {
	f, v, err := fs.OpenVolume(ctx, name, o.ReadOnly)
	if err != nil {
		return nil, errs.Wrap("volumeexport.Open", name, err)
	}
	f.SetHow(o.How)
	text := fmt.Sprintf("volume %s, striped over %d servers", name, len(v.Layout.Servers))
	return &Volume{file: f, size: v.Size, text: text}, nil
}

// Size is the volume's size, fixed when it was made.
func (v *Volume) Size() int64 { return v.size }

// Description says what it is.
func (v *Volume) Description() string { return v.text }

// BlockSizes asks for whole pages where it is possible; any byte range works.
func (v *Volume) BlockSizes() (minimum, preferred, maximum uint32) { return 1, 4096, 0 }

// ReadAt reads the range from all servers that hold a part of it.
func (v *Volume) ReadAt(ctx context.Context, p []byte, off int64) error {
	n, err := v.file.ReadAt(ctx, p, off)
	if n == len(p) {
		return nil // an end of file right behind the last byte is no error here
	}
	if err == nil {
		err = errs.Newf(errs.IO, "volumeexport.Read", v.text, "%d of %d bytes at %d", n, len(p), off)
	}
	return err
}

// WriteAt writes the range. With fua every server has it on stable storage on return.
func (v *Volume) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	write := v.file.WriteAt
	if fua {
		write = v.file.WriteAtDurable
	}
	_, err := write(ctx, p, off)
	return err
}

// Flush makes durable what was acknowledged before, through whatever connection: the export has one
// file for all of them, and nobody else writes.
func (v *Volume) Flush(ctx context.Context) error { return v.file.Sync(ctx) }

// Trim gives the range's space back.
func (v *Volume) Trim(ctx context.Context, off, length int64, fua bool) error {
	if err := v.file.Punch(ctx, off, length); err != nil || !fua {
		return err
	}
	return v.file.Sync(ctx)
}

// WriteZeroes punches a hole. A range that must stay allocated is left to the server, which writes
// the zeroes.
func (v *Volume) WriteZeroes(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	if flags.NoHole {
		return errs.Newf(errs.Unsupported, "volumeexport.WriteZeroes", v.text, "only by holes")
	}
	return v.Trim(ctx, off, length, flags.FUA)
}

// Map asks the servers where data and holes are.
func (v *Volume) Map(
	ctx context.Context, off, length int64, most int, dst []nbd.Extent,
) ([]nbd.Extent, error) {
	extents, err := v.file.Map(ctx, off, length)
	if err != nil {
		return dst, err
	}
	for _, e := range extents[:min(len(extents), most)] {
		dst = append(dst, nbd.Extent{Len: e.Len, Hole: e.Hole && !e.Reserved, Zero: e.Hole})
	}
	return dst, nil
}

// closeMax bounds Close, however long requests may wait: a gateway that is told to end must do so.
const closeMax = 20 * time.Second

// Close ends the use of the volume and makes durable what no flush has: another gateway may write
// to it from then on.
func (v *Volume) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeMax)
	defer cancel()
	return v.file.Close(ctx)
}
