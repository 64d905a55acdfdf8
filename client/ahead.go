package client

import (
	"context"

	"github.com/sluice-storage/sluice/meta"
)

// What programs are about to ask for is fetched with what they ask for: see
// client/internal/cache/ahead.go, which decides what that is. It is asked for on behalf of nobody:
// what is known is answered with the permission checks of the service. Whatever goes wrong here is
// left to who asks for the one thing.

// readAhead is for who opens a small file whose data is not known: it may fetch that, with others.
func (fs *FS) readAhead(ctx context.Context, ino meta.Ino) bool {
	dir, w, ok := fs.cache.Missed(ino)
	return ok && fs.fetchAhead(ctx, dir, w)
}

// lookAhead is for who has looked a name up that had to be asked for.
func (fs *FS) lookAhead(ctx context.Context, dir meta.Ino, name string, found *meta.Found) {
	if w, ok := fs.cache.Looked(dir, name, found.Cookie); ok {
		fs.fetchAhead(ctx, dir, w)
	}
}

func (fs *FS) fetchAhead(ctx context.Context, dir meta.Ino, w meta.Scan) bool {
	defer fs.cache.FetchedAhead(dir)
	_, err := fs.scan(ctx, fs.trusted(), dir, &w)
	return err == nil
}

// scan is Scan of the service, whose answer is taken in.
func (fs *FS) scan(ctx context.Context, c meta.Caller, dir meta.Ino, w *meta.Scan) (
	meta.Scanned, error) {
	t := fs.cache.Begin()
	s, err := fs.svc.Scan(ctx, c, dir, *w)
	if err == nil {
		fs.cache.PutScan(t, w, &s)
		for i := range s.Also {
			fs.cache.PutAlso(t, w, &s.Also[i])
		}
	}
	return s, err
}
