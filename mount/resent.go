package mount

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/mount/state"
)

// A request that the kernel sends again may have been carried out by the process that died, in part
// or as a whole. What changes names and attributes has a name that is the same both times
// (request.RequestID), by which the metadata service knows it again: it is done once. What was
// opened is in the table (kept.before). An append goes to the place that was noted for it. A write
// goes to its place once more, with the same data; locks are taken and released once more, by the
// same owner; all others change nothing.
//
// The service remembers many requests, but not all. Where it has forgotten one, the outcome that it
// would have had is taken for its own.

// resentBit marks the number of a request that is sent again (FUSE_UNIQUE_RESEND).
const resentBit = 1 << 63

func resent(unique uint64) bool { return unique&resentBit != 0 }

// plain is the number that a request had the first time.
func plain(unique uint64) uint64 { return unique &^ resentBit }

// Value implements context.Context.
func (r *request) Value(key any) any {
	if _, ok := key.(client.RequestKey); ok && r.kept != nil {
		return r
	}
	return r.Context.Value(key)
}

// RequestID implements client.Identified.
func (r *request) RequestID(use client.RequestUse) (id [16]byte) {
	r.mu.Lock()
	count := r.uses[use]
	r.uses[use]++
	r.mu.Unlock()
	var text [16 + 8 + 2]byte
	copy(text[:], r.kept.secret[:])
	binary.BigEndian.PutUint64(text[16:], plain(r.unique))
	text[24], text[25] = byte(use), count
	sum := sha256.Sum256(text[:])
	copy(id[:], sum[:])
	return id
}

// Repeated implements client.Identified.
func (r *request) Repeated() bool { return resent(r.unique) }

// carriedOut tells whether a change that has failed like that had been carried out before.
func carriedOut(unique uint64, err error, kind errs.Kind) bool {
	return resent(unique) && errs.KindOf(err) == kind
}

// madeBefore finds what a request has made that is sent again and finds the name taken.
func (b *bridge) madeBefore(ctx context.Context, unique uint64, dir meta.Ino, name string,
	err error, same func(a *meta.Attr) bool) (meta.Attr, error) {
	if !carriedOut(unique, err, errs.Exists) {
		return meta.Attr{}, err
	}
	a, found := b.fs.Lookup(ctx, b.as(ctx), dir, name)
	if found != nil || !same(&a) {
		return meta.Attr{}, err
	}
	return a, nil
}

// createdBefore opens what a request has made that is sent again and finds the name taken: the
// process that has died had told the service of it with others, by which it is not known again.
func (b *bridge) createdBefore(ctx context.Context, in *fuse.CreateIn, dir meta.Ino, name string,
	nf *meta.NewFile, flags meta.OpenFlags, exists error) (*client.File, error) {
	same := sameMake(nf, in.Uid)
	a, err := b.madeBefore(ctx, in.Unique, dir, name, exists,
		func(a *meta.Attr) bool { return same(a) && a.Size == 0 })
	if err != nil {
		return nil, err
	}
	return b.fs.OpenIno(ctx, meta.Cred{}, a.Ino, flags&^meta.OpenExclusive)
}

// sameMake tells whether an inode may be the one that a request was to make: of its type and owner,
// and made a short time ago.
func sameMake(f *meta.NewFile, uid uint32) func(a *meta.Attr) bool {
	return func(a *meta.Attr) bool {
		return a.Type == f.Type && a.UID == uid && time.Since(a.Ctime.Time()) < resentWithin
	}
}

// resentWithin is how long a mount may be without a process that serves it, and more.
const resentWithin = 10 * time.Minute

// renamedBefore tells whether a rename that is sent again and does not find its source was done.
func (b *bridge) renamedBefore(ctx context.Context, unique uint64, dir meta.Ino, name string,
	err error) bool {
	if !carriedOut(unique, err, errs.NotFound) {
		return false
	}
	_, found := b.fs.Lookup(ctx, b.as(ctx), dir, name)
	return found == nil
}

// appendAgain carries an append out that is sent again, if it is known where it was to go.
func (b *bridge) appendAgain(ctx context.Context, f *file, unique uint64, data []byte) (
	off int64, known bool, err error) {
	if b.kept == nil || !resent(unique) {
		return 0, false, nil
	}
	a, ok := b.kept.appends[plain(unique)]
	if !ok || a.N != int64(len(data)) || a.Ino != uint64(f.Ino()) {
		return 0, false, nil
	}
	b.kept.table.NoteAppend(a) // as the latest: this process may die, too
	_, err = f.WriteAt(ctx, data, a.Off)
	return a.Off, true, err
}

// appendNoted is File.Append that leaves a note where the data goes.
func (b *bridge) appendNoted(ctx context.Context, f *file, unique uint64, data []byte) (
	int64, error) {
	if b.kept == nil {
		return f.Append(ctx, data)
	}
	return f.AppendNoted(ctx, data, func(off int64) {
		b.kept.table.NoteAppend(state.Append{Request: plain(unique), Ino: uint64(f.Ino()), Off: off,
			N: int64(len(data))})
	})
}
