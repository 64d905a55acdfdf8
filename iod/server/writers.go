package server

import (
	"context"
	"slices"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/iod"
	"github.com/sluice-storage/sluice/stripe"
)

// writers keeps deposed writers off. A file that has generations of writers (epochs: a volume has,
// other files do not) is changed by the present one only. The store refuses all others, durably;
// but a change that is acknowledged when the cache has it must be refused before the cache has it,
// or it would be acknowledged, seen, and lost. So every change of such a file that goes through the
// cache enters here for the moment in which it is made visible, and a fence waits until those of
// older generations have left. Moving the data is not part of that moment: a writer that is stuck
// in the middle of it holds up nobody.
type writers struct {
	least func(file uint64) uint32 // the store's minimal epoch
	parts [fenceParts]writersPart
}

type writersPart struct {
	mu    sync.Mutex
	files map[uint64]*fileWriters
}

// writersIdle is how many files of a part are remembered at most of which nothing is under way, so
// that the next change finds its place made.
const writersIdle = 16

// fileWriters are the changes of one file that are under way.
type fileWriters struct {
	least  uint32        // the store's, or what fences under way demand
	fences int           // under way
	inside []epochCount  // none of them 0
	left   chan struct{} // closed when an epoch has none any more; nil: nobody waits
}

// epochCount are changes of one epoch.
type epochCount struct {
	epoch uint32
	n     int
}

func (x *writers) part(file uint64) *writersPart { return &x.parts[file%fenceParts] }

// check refuses a deposed writer before anything is moved.
func (x *writers) check(t *iod.Target) error {
	if t.Stamp.Epoch == 0 {
		return nil // the store refuses it where that is too little: nobody is given a right to it
	}
	p := x.part(t.Object.File)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fileLocked(x, t.Object.File).check(t)
}

func (f *fileWriters) check(t *iod.Target) error {
	return stripe.CheckEpoch("iod.Serve", t.Object, f.least, t.Stamp)
}

// fileLocked finds a file, or makes it. Nobody else raises the store's minimal epoch.
func (p *writersPart) fileLocked(x *writers, file uint64) *fileWriters {
	f := p.files[file]
	if f == nil {
		f = &fileWriters{least: x.least(file)}
		if p.files == nil {
			p.files = map[uint64]*fileWriters{}
		}
		p.files[file] = f
		p.tidyLocked(file)
	}
	return f
}

// tidyLocked forgets a file of which nothing is under way, other than the one given, where there
// are too many.
func (p *writersPart) tidyLocked(keep uint64) {
	if len(p.files) <= writersIdle {
		return
	}
	for file, f := range p.files {
		if file != keep && f.fences == 0 && len(f.inside) == 0 {
			delete(p.files, file)
			return
		}
	}
}

// enter begins a change; leave must follow unless it fails.
func (x *writers) enter(t *iod.Target) error {
	if t.Stamp.Epoch == 0 {
		return nil
	}
	p := x.part(t.Object.File)
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fileLocked(x, t.Object.File)
	if err := f.check(t); err != nil {
		return err
	}
	for i := range f.inside {
		if f.inside[i].epoch == t.Stamp.Epoch {
			f.inside[i].n++
			return nil
		}
	}
	f.inside = append(f.inside, epochCount{t.Stamp.Epoch, 1})
	return nil
}

func (x *writers) leave(t *iod.Target) {
	if t.Stamp.Epoch == 0 {
		return
	}
	p := x.part(t.Object.File)
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.files[t.Object.File]
	i := slices.IndexFunc(f.inside, func(c epochCount) bool { return c.epoch == t.Stamp.Epoch })
	if f.inside[i].n--; f.inside[i].n > 0 {
		return
	}
	f.inside = slices.Delete(f.inside, i, i+1)
	if f.left != nil {
		close(f.left)
		f.left = nil
	}
}

// fence refuses epochs below one from now on, waits for their changes that are under way, and calls
// seal, which has the store refuse them for ever. If that fails they may go on.
func (x *writers) fence(ctx context.Context, file uint64, epoch uint32, seal func() error) error {
	p := x.part(file)
	p.mu.Lock()
	f := p.fileLocked(x, file)
	f.fences++
	f.least = max(f.least, epoch)
	for f.older(epoch) {
		if f.left == nil {
			f.left = make(chan struct{})
		}
		left := f.left
		p.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			break
		}
	}
	p.mu.Unlock()
	err := ctx.Err()
	if err == nil {
		err = seal()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.fences--; f.fences == 0 {
		f.least = x.least(file)
	}
	return errs.Wrap("iod.Fence", "", err)
}

// older tells whether changes of epochs below one are under way.
func (f *fileWriters) older(epoch uint32) bool {
	return slices.ContainsFunc(f.inside, func(c epochCount) bool { return c.epoch < epoch })
}
