package metatest

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// Objects plays the I/O servers: it knows of each file no more than they would.
type Objects struct {
	mu       sync.Mutex
	files    map[meta.Ino]*object
	fail     error  // returned by everything while set
	before   func() // see BeforeFence
	measures int
	spaces   int // times that somebody asked for a file's space
	truncs   int
}

type object struct {
	size     int64
	truncSeq uint64
	epoch    uint32       // writers of lower ones are refused
	fences   int          // times that somebody asked for that
	cuts     []int64      // sizes of all truncations, in order
	gone     map[int]bool // stripes that were removed
	removed  bool         // all of them
}

// NewObjects returns servers without objects.
func NewObjects() *Objects { return &Objects{files: map[meta.Ino]*object{}} }

func (o *Objects) fileLocked(ino meta.Ino) *object {
	f := o.files[ino]
	if f == nil {
		f = &object{}
		o.files[ino] = f
	}
	return f
}

// Write plays a client's write that the servers acknowledged.
func (o *Objects) Write(ino meta.Ino, end int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.fileLocked(ino)
	f.size = max(f.size, end)
}

// Fail lets everything fail with err until it is called with nil.
func (o *Objects) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail = err
}

func (o *Objects) look(ino meta.Ino) object {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := *o.fileLocked(ino)
	f.cuts = append([]int64(nil), f.cuts...)
	return f
}

func (o *Objects) measured() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.measures
}

// Measure implements meta.Objects.
func (o *Objects) Measure(_ context.Context, f meta.FileRef) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.measures++
	if o.fail != nil {
		return 0, o.fail
	}
	return o.fileLocked(f.Ino).size, f.Layout.Validate()
}

// Allocated implements meta.Allocator: half of a file is holes.
func (o *Objects) Allocated(_ context.Context, f meta.FileRef) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spaces++
	if o.fail != nil {
		return 0, o.fail
	}
	return o.fileLocked(f.Ino).size / 2, f.Layout.Validate()
}

func (o *Objects) spacesAsked() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.spaces
}

// FenceWriters implements meta.WriterFencer.
func (o *Objects) FenceWriters(_ context.Context, f meta.FileRef, epoch uint32) error {
	o.mu.Lock()
	before := o.before
	o.before = nil
	o.mu.Unlock()
	if before != nil {
		before()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return o.fail
	}
	file := o.fileLocked(f.Ino)
	if epoch < file.epoch {
		return errs.Newf(errs.Stale, "objects.FenceWriters", "", "epoch %d, and there was %d", epoch,
			file.epoch)
	}
	file.epoch = epoch
	file.fences++
	return f.Layout.Validate()
}

// BeforeFence has fn called before the next fence is carried out.
func (o *Objects) BeforeFence(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.before = fn
}

// SetEpoch plays servers that have heard of a generation that the service does not know of.
func (o *Objects) SetEpoch(ino meta.Ino, epoch uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fileLocked(ino).epoch = epoch
}

// Truncate implements meta.Objects. One that comes late is refused, as by I/O servers.
func (o *Objects) Truncate(_ context.Context, f meta.FileRef, size int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.truncs++
	if o.fail != nil {
		return o.fail
	}
	file := o.fileLocked(f.Ino)
	if file.removed {
		return errs.Newf(errs.Stale, "objects.Truncate", "", "the file was removed")
	}
	if f.TruncSeq > file.truncSeq {
		file.truncSeq, file.size = f.TruncSeq, size
		file.cuts = append(file.cuts, size)
	}
	if f.TruncSeq < file.truncSeq {
		return errs.Newf(errs.Stale, "objects.Truncate", "", "truncation %d, and there was %d",
			f.TruncSeq, file.truncSeq)
	}
	return f.Layout.Validate()
}

// Remove implements meta.Objects.
func (o *Objects) Remove(_ context.Context, f meta.FileRef, stripe int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail != nil {
		return o.fail
	}
	file := o.fileLocked(f.Ino)
	if file.gone == nil {
		file.gone = map[int]bool{}
	}
	file.gone[stripe], file.size = true, 0
	file.removed = len(file.gone) == f.Layout.Width()
	return f.Layout.Validate()
}

// Told is what the servers were told of a file: its latest truncation, and whether it was removed.
func (o *Objects) Told(ino meta.Ino) (truncSeq uint64, removed bool) {
	f := o.look(ino)
	return f.truncSeq, f.removed
}
