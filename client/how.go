package client

import (
	"context"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/hint"
	"github.com/sluice-storage/sluice/layout"
	"github.com/sluice-storage/sluice/meta"
)

// How is the way that a handle's data takes at the I/O servers, and hints to their caches. The zero
// value, through the cache, is right for most. A handle begins with the hints of its file (see
// FS.SetHints) unless WithHints says others.
type How = hint.Hints

// The modes. They may be mixed, on one file and at one moment: all see the same bytes.
const (
	Cached      = hint.Cached      // reads and writes through the servers' caches
	Direct      = hint.Direct      // both past them, straight between disks and network
	DirectReads = hint.DirectReads // writes through the caches, reads past them
)

// The hints to the caches.
const (
	PolicyScan   = hint.PolicyScan   // what is used once does not displace what is used often
	PolicyLRU    = hint.PolicyLRU    // the least recently used goes first
	PolicyStream = hint.PolicyStream // read or written once, in order
	PolicyKeep   = hint.PolicyKeep   // goes last
	PolicyNone   = hint.PolicyNone   // is not kept
)

// HintPrefix begins the names of hints as extended attributes.
const HintPrefix = hint.Prefix

// HintNames are the names of all hints, as How.Get and How.Set take them.
func HintNames() []string { return hint.Names() }

// SetHow changes the mode and the hints of a handle, from the next request on. Servers refuse hints
// that make no sense with errs.Invalid.
func (f *File) SetHow(h How) { f.how.Store(&h) }

// PassCaches has the handle's data go past the servers' caches, as O_DIRECT asks for; its other
// hints stay.
func (f *File) PassCaches() {
	h := f.How()
	h.Mode = Direct
	f.SetHow(h)
}

// How are the handle's mode and hints.
func (f *File) How() How {
	if h := f.how.Load(); h != nil {
		return *h
	}
	return How{}
}

// OpenOption changes what OpenFile does.
type OpenOption func(o *openOptions)

type openOptions struct {
	how    *How
	strict bool
	policy layout.Policy
}

// WithHints makes a handle use these hints in place of those of the file.
func WithHints(h How) OpenOption { return func(o *openOptions) { o.how = &h } }

// WithStrict makes every read of a handle see all that any client has written, or cut off, before
// the read began. Without it that holds for what was done before the file was opened
// (close-to-open), and in most cases for what was done since, too: data of larger files is never
// kept here, and what is known of small ones, and of any file's length, is known under a lease that
// is recalled before somebody else changes it.
//
// What WithStrict changes is the rest. While several clients have a file open for writing nobody
// has a lease on it, and a handle goes on believing the length that it has heard of last: of a part
// that another client has cut off it reads zeroes, not the end of the file. A strict handle asks
// the metadata service before each read, unless a lease makes that unnecessary. And a Reader of a
// strict handle reads nothing ahead, a Writer keeps nothing back.
func WithStrict() OpenOption { return func(o *openOptions) { o.strict = true } }

// Hints are those that a file has, or that what is made in a directory begins with.
func (fs *FS) Hints(ctx context.Context, path string) (How, error) {
	p, err := fs.existing(ctx, fs.self(), path, true)
	var h How
	if err == nil {
		h, err = fs.hintsOf(ctx, p.attr.Ino)
	}
	return h, errs.Wrap("client.Hints", path, err)
}

func (fs *FS) hintsOf(ctx context.Context, ino meta.Ino) (How, error) {
	var h How
	for _, name := range hint.Names() {
		value, err := fs.GetXattr(ctx, *fs.opts.Cred, ino, name)
		if err == nil {
			err = h.Set(name, string(value))
		}
		if err != nil {
			return How{}, err
		}
	}
	return h, nil
}

// SetHints gives a file hints, which count for those who open it from then on, or a directory,
// which count for what is made in it from then on. They are the extended attributes user.sluice.*;
// NoSums is none of them.
func (fs *FS) SetHints(ctx context.Context, path string, h How) error {
	const op = "client.SetHints"
	err := h.Validate()
	if err == nil && h.NoSums {
		err = errs.Newf(errs.Invalid, "", "", "NoSums is of a handle, not of a file")
	}
	if err != nil {
		return errs.Wrap(op, path, err)
	}
	p, err := fs.existing(ctx, fs.self(), path, true)
	if err != nil {
		return errs.Wrap(op, path, err)
	}
	old, err := fs.hintsOf(ctx, p.attr.Ino)
	if err != nil {
		return errs.Wrap(op, path, err)
	}
	for _, name := range h.Changed(&old) {
		value, _ := h.Get(name)
		err := fs.SetXattr(ctx, *fs.opts.Cred, p.attr.Ino, name, []byte(value), false, false)
		if err != nil {
			return errs.Wrap(op, path, err)
		}
	}
	return nil
}
