// Package volumeexport serves a volume, striped over the I/O servers of a cluster, as a block
// device. Reads and writes go straight to the servers, all of them at once; a flush makes durable
// what any connection has written; a trim gives space back on every server.
//
// It does not make or resize volumes, and it caches nothing. An export that may write has the
// volume for itself, see client.FS.OpenVolumeWith: its flush covers all writes to the volume. When
// it is asked to hand the volume over it lets what is under way end, makes it durable, and ends; so
// it does when another gateway has taken over.
//
// Read volume.go first, then turns.go (who writes), stream.go (large reads) and placement.go.
package volumeexport

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/nbd"
	"github.com/sluice-storage/sluice/seg"
	"github.com/sluice-storage/sluice/stripe"
)

// What the export needs of an open volume; *client.File has it.
type (
	bytes interface {
		ReadAt(ctx context.Context, p []byte, off int64) (int, error)
		WriteAt(ctx context.Context, p []byte, off int64) (int, error)
		WriteAtDurable(ctx context.Context, p []byte, off int64) (int, error)
	}
	lists interface {
		ReadList(ctx context.Context, bufs [][]byte, file seg.Access) (int64, error)
		WriteList(ctx context.Context, bufs [][]byte, file seg.Access) (int64, error)
	}
	file interface {
		bytes
		lists
		Punch(ctx context.Context, off, n int64) error
		Map(ctx context.Context, off, n int64) ([]stripe.Extent, error)
		Sync(ctx context.Context) error
		Close(ctx context.Context) error
	}
	growing interface {
		Grow(size int64)
		Epoch() uint32
	}
	volumeFile interface {
		file
		growing
	}
)

// cluster is what it needs of the cluster; clusterOf makes it of a client.FS.
type cluster interface {
	open(ctx context.Context, name string, o client.VolumeOptions) (volumeFile, client.Volume, error)
	await(ctx context.Context, name string, seen client.VolumeState) (client.Volume, error)
	handOver(ctx context.Context, name string, force bool) (client.Volume, error)
	buffer(bytes int) nbd.Buffer // nil: none is to be had
}

// Volume is an nbd.Export of a volume. Safe for concurrent use.
type Volume struct {
	in     cluster
	name   string
	opt    Options
	log    *slog.Logger
	size   atomic.Int64
	text   string
	layout layout.Layout

	taking sync.Mutex // one request at a time takes the volume over; may be held while waiting

	// mu is shared by requests, and held alone for the moment in which the file is replaced or given
	// up: then no request is under way.
	mu     sync.RWMutex
	file   volumeFile
	writes bool // the file may be written to
	gone   bool // given up, or lost: file is closed

	spare chan struct{} // one for each piece on the heap, see stream.go
	over  atomic.Bool   // as gone, for Ended
	stop  context.CancelFunc
	ended chan struct{} // closed when the watch has ended
}

var (
	_ nbd.Export    = (*Volume)(nil)
	_ nbd.Trimmer   = (*Volume)(nil)
	_ nbd.Zeroer    = (*Volume)(nil)
	_ nbd.Mapper    = (*Volume)(nil)
	_ nbd.Describer = (*Volume)(nil)
	_ nbd.Sizer     = (*Volume)(nil)
	_ nbd.Streamer  = (*Volume)(nil)
	_ nbd.Ender     = (*Volume)(nil)
	_ nbd.Batcher   = (*Volume)(nil)
)

// Options of an export.
type Options struct {
	// ReadOnly opens the volume for reading. Default false.
	ReadOnly bool

	// Shared lets other gateways that say so too write at the same time, for file systems that are
	// made for that. Every write is durable before it is answered. Default false.
	Shared bool

	// Standby opens the volume for reading while another gateway writes to it. The first request that
	// changes something, or a flush, asks that one to hand it over, and waits. Default false.
	Standby bool

	// TakeMax is how long such a request waits for the other gateway. Default 30 s.
	TakeMax time.Duration

	// How is the way that data takes at the I/O servers. Default: through their caches, for reads
	// and writes. A guest keeps in its own memory what it reads often; what it asks for is either
	// small, and then readahead and what other guests have read of the same image make the servers'
	// caches worth while, or a stream, for which client.DirectReads is better. client.Direct suits
	// volumes that are larger than the caches and not read twice.
	How client.How

	// Logger is told who takes the volume over. Default: nobody.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.TakeMax <= 0 {
		o.TakeMax = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Open opens a volume by name. The FS stays the caller's and must outlive the export.
func Open(ctx context.Context, fs *client.FS, name string, readOnly bool) (*Volume, error) {
	return OpenWith(ctx, fs, name, Options{ReadOnly: readOnly})
}

// OpenWith is Open with options.
func OpenWith(ctx context.Context, fs *client.FS, name string, o Options) (*Volume, error) {
	return open(ctx, clusterOf{fs, o.How}, name, o)
}

func open(ctx context.Context, in cluster, name string, o Options) (*Volume, error) {
	o = o.withDefaults()
	v := &Volume{in: in, name: name, opt: o, log: o.Logger, ended: make(chan struct{}),
		spare: make(chan struct{}, sparePieces)}
	f, vol, err := in.open(ctx, name, v.how(o.ReadOnly))
	v.writes = !o.ReadOnly
	if errs.KindOf(err) == errs.Busy && o.Standby && !o.ReadOnly {
		f, vol, err = in.open(ctx, name, v.how(true))
		v.writes = false
	}
	if err != nil {
		return nil, errs.Wrap("volumeexport.Open", name, err)
	}
	v.file, v.layout = f, vol.Layout
	v.size.Store(vol.Size)
	v.text = fmt.Sprintf("volume %s, striped over %d servers", name, len(vol.Layout.Servers))
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	v.stop = stop
	go v.watch(watch, vol.State())
	return v, nil
}

func (v *Volume) how(readOnly bool) client.VolumeOptions {
	return client.VolumeOptions{ReadOnly: readOnly, Shared: v.opt.Shared}
}

// Size is the volume's size. It grows when somebody makes the volume larger.
func (v *Volume) Size() int64 { return v.size.Load() }

// Description says what it is.
func (v *Volume) Description() string { return v.text }

// BlockSizes asks for whole pages where it is possible; any byte range works.
func (v *Volume) BlockSizes() (minimum, preferred, maximum uint32) { return 1, 4096, 0 }

// ReadAt reads the range from all servers that hold a part of it.
func (v *Volume) ReadAt(ctx context.Context, p []byte, off int64) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.gone {
		return v.given()
	}
	n, err := v.file.ReadAt(ctx, p, off)
	if n == len(p) {
		return nil // an end of file right behind the last byte is no error here
	}
	if err == nil {
		err = errs.Newf(errs.IO, "volumeexport.Read", v.text, "%d of %d bytes at %d", n, len(p), off)
	}
	return v.judge(err)
}

// change runs a request that needs the right to write.
func (v *Volume) change(ctx context.Context, fn func(f file) error) error {
	v.mu.RLock()
	if !v.writes && !v.gone {
		v.mu.RUnlock()
		if err := v.take(ctx); err != nil {
			return err
		}
		v.mu.RLock()
	}
	defer v.mu.RUnlock()
	if v.gone {
		return v.given()
	}
	return v.judge(fn(v.file))
}

// WriteAt writes the range. With fua every server has it on stable storage on return; so it has
// where others write too, because only who wrote can send again what a server has lost.
func (v *Volume) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	return v.change(ctx, func(f file) (err error) {
		if fua || v.opt.Shared {
			_, err = f.WriteAtDurable(ctx, p, off)
		} else {
			_, err = f.WriteAt(ctx, p, off)
		}
		return err
	})
}

// Flush makes durable what was acknowledged before, through whatever connection: the export has one
// file for all of them, and nobody else writes, or all that others wrote is durable.
func (v *Volume) Flush(ctx context.Context) error {
	if v.opt.ReadOnly {
		return nil
	}
	return v.change(ctx, func(f file) error { return f.Sync(ctx) })
}

// Trim gives the range's space back.
func (v *Volume) Trim(ctx context.Context, off, length int64, fua bool) error {
	return v.change(ctx, func(f file) error {
		if err := f.Punch(ctx, off, length); err != nil || !fua || v.opt.Shared {
			return err // of a volume that is shared it is durable
		}
		return f.Sync(ctx)
	})
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
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.gone {
		return dst, v.given()
	}
	extents, err := v.file.Map(ctx, off, length)
	if err != nil {
		return dst, v.judge(err)
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
	v.stop()
	<-v.ended
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return nil
	}
	v.gone = true
	ctx, cancel := context.WithTimeout(context.Background(), closeMax)
	defer cancel()
	return v.file.Close(ctx)
}
