package store

import (
	"context"
	"sync"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// objectsAt is where a run is in the objects of the servers.
type objectsAt struct {
	begun   bool
	servers []uint32 // those that are left; the first one is being looked at
	after   meta.ObjectRef
}

// objectStage compares the objects of the servers that are up with the inodes, as the collector
// does, see collect.go: an inode is committed before its first object is made, and a page of
// objects is older than the snapshot that it is compared with, so that what was just made is never
// taken for unnamed. What was just removed may be: so it is looked at again.
func (r *checkRun) objectStage(at meta.Collector) work {
	return func(ctx context.Context, max int) (bool, error) {
		o := &r.objects
		if !o.begun {
			o.begun, o.servers = true, r.s.servers.up(r.s.heardSince())
		}
		for n := 0; n < min(max, checkSome); {
			if len(o.servers) == 0 {
				return true, nil
			}
			server := o.servers[0]
			page, err := r.listObjects(ctx, at, server, o.after)
			if err != nil {
				return false, err
			}
			if len(page) == 0 {
				o.servers, o.after = o.servers[1:], meta.ObjectRef{}
				continue
			}
			page = page[:min(len(page), checkSome)]
			remains, _, err := r.s.remains(server, page)
			if err != nil {
				return false, err
			}
			for i, x := range remains {
				if len(r.flaws) == meta.FindingsMax {
					// The rest of the page comes with the next step.
					if i > 0 {
						o.after = remains[i-1]
					}
					r.looked += uint64(n)
					return false, nil
				}
				r.add(r.objectUnnamed(at, server, x))
			}
			o.after = page[len(page)-1]
			n += len(page)
			r.looked += uint64(len(page))
		}
		return false, nil
	}
}

func (r *checkRun) listObjects(ctx context.Context, at meta.Collector, server uint32,
	after meta.ObjectRef) ([]meta.ObjectRef, error) {

	bounded, cancel := context.WithTimeout(ctx, workMax)
	defer cancel()
	return at.ListObjects(bounded, server, after)
}

func (r *checkRun) objectUnnamed(at meta.Collector, server uint32, o meta.ObjectRef) flaw {
	f := found(meta.ObjectUnnamed, o.Ino, "server %d has an object of file %d (generation %d, "+
		"stripe %d) that no file names", server, o.Ino, o.Gen, o.Stripe)
	f.Server = server
	f.there = func(ctx context.Context) (bool, error) {
		before := o // the object that would stand just before this one
		switch {
		case o.Stripe > 0:
			before.Stripe--
		case o.Gen > 0:
			before.Gen, before.Stripe = o.Gen-1, ^uint32(0)
		default:
			before = meta.ObjectRef{Ino: o.Ino - 1, Gen: ^uint32(0), Stripe: ^uint32(0)}
		}
		page, err := r.listObjects(ctx, at, server, before)
		if err != nil || len(page) == 0 || page[0] != o {
			return false, err
		}
		remains, _, err := r.s.remains(server, page[:1])
		return len(remains) == 1, err
	}
	// Until the removal of its inode is on disk, a power cut could bring the inode back.
	f.act = func(ctx context.Context) error {
		if err := r.s.kv.Sync(ctx); err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, workMax)
		defer cancel()
		return at.RemoveObject(bounded, server, o)
	}
	return f
}

// dataStage compares the sizes of files with what their servers have, as far as all of them are up.
// A file that somebody writes to is left out: its size is what its objects say.
func (r *checkRun) dataStage(at meta.Examiner) work {
	return func(ctx context.Context, max int) (over bool, err error) {
		files, pos, n, over, err := r.someFiles(max)
		if err != nil {
			return false, err
		}
		flaws := make([]*flaw, len(files))
		fails := make([]error, len(files))
		var wg sync.WaitGroup
		slots := make(chan struct{}, measuresMax)
		for i := range files {
			slots <- struct{}{}
			wg.Go(func() {
				flaws[i], fails[i] = r.s.examineData(ctx, at, files[i])
				<-slots
			})
		}
		wg.Wait()
		for i := range files {
			if fails[i] != nil && r.s.allUp(&meta.FileRef{Layout: files[i].n.Layout}) {
				return false, fails[i]
			}
			if flaws[i] != nil && fails[i] == nil {
				r.add(*flaws[i])
			}
		}
		r.pos = pos
		r.looked += uint64(n)
		return over, nil
	}
}

// fileAt is a file as a snapshot has it.
type fileAt struct {
	ino meta.Ino
	n   *inode
}

// atRest tells whether a file's size and its objects should agree.
func (n *inode) atRest() bool {
	return n.Type == meta.Regular && n.has(flagData) &&
		!n.has(flagWriters|flagPending|flagVolume|flagSmall)
}

// someFiles reads the next files whose objects can be looked at.
func (r *checkRun) someFiles(max int) (files []fileAt, pos []byte, n int, over bool, err error) {
	start := []byte{kindInode}
	if r.pos != nil {
		start = append(append([]byte(nil), r.pos...), 0)
	}
	over, pos = true, r.pos
	err = r.snap.Scan(start, kv.PrefixEnd([]byte{kindInode}),
		func(key, value []byte, _ kv.Version) bool {
			if n == max || len(files) == checkSome {
				over = false
				return false
			}
			n++
			pos = append(pos[:0:0], key...)
			f := fileAt{meta.Ino(number(key, 0)), &inode{}}
			ref := &meta.FileRef{}
			if parse(key, value, f.n) == nil {
				ref.Layout = f.n.Layout
			}
			if f.n.atRest() && r.s.allUp(ref) {
				files = append(files, f)
			}
			return true
		})
	return files, pos, n, over, err
}

// examineData compares a file with its objects; nil if they agree.
func (s *Store) examineData(ctx context.Context, at meta.Examiner, file fileAt) (*flaw, error) {
	long, missing, err := s.compareData(ctx, at, file)
	if err != nil || long == 0 && missing == "" {
		return nil, err
	}
	again := func(ctx context.Context) (now fileAt, err error) {
		now.ino = file.ino
		err = s.look(func(t *txn) (err error) {
			now.n, err = t.nodeOf(file.ino)
			return err
		})
		return now, err
	}
	var f flaw
	if missing != "" {
		f = found(meta.ObjectsMissing, file.ino, "file %d of %d bytes: %s", file.ino, file.n.Size,
			missing)
		f.there = func(ctx context.Context) (bool, error) {
			now, err := again(ctx)
			if err != nil || now.n == nil || !now.n.atRest() {
				return false, err
			}
			_, missing, err := s.compareData(ctx, at, now)
			return missing != "", err
		}
		return &f, nil
	}
	f = found(meta.ObjectsLong, file.ino, "file %d of %d bytes: its objects are of one of %d",
		file.ino, file.n.Size, long)
	var seen fileAt
	f.there = func(ctx context.Context) (bool, error) {
		var err error
		if seen, err = again(ctx); err != nil || seen.n == nil || !seen.n.atRest() {
			return false, err
		}
		long, _, err = s.compareData(ctx, at, seen)
		return long != 0, err
	}
	// Nobody knows whose bytes these are: the file gets them, as after the death of a writer.
	f.still = func(t *txn) (bool, error) {
		n, err := t.nodeOf(file.ino)
		return n != nil && n.atRest() && (seen.n == nil || n.TruncSeq == seen.n.TruncSeq), err
	}
	f.mend = func(_ *mending, t *txn) error {
		n, err := t.inode(file.ino)
		if err != nil {
			return err
		}
		w := closing{dirty: true, measured: true, size: long, truncSeq: n.TruncSeq, mtime: t.now}
		w.apply(n, &meta.Cred{}, t.now)
		t.putInode(file.ino, n)
		return nil
	}
	return &f, nil
}

// compareData asks for the sizes of a file's objects. long is the size that they imply where that
// is more than the file's; missing says what is not there of a file that has, or should have, data.
func (s *Store) compareData(ctx context.Context, at meta.Examiner, file fileAt) (long int64,
	missing string, err error) {

	bounded, cancel := context.WithTimeout(ctx, workMax)
	defer cancel()
	l := &file.n.Layout
	ref := file.n.ref(file.ino)
	needed, absent, first := 0, 0, -1
	for i := range l.Servers {
		got, err := at.ObjectSize(bounded, ref, i)
		if k := errs.KindOf(err); k == errs.NotFound || k == errs.Stale {
			got, err = 0, nil // it was removed or cut since: the second look tells
		}
		if err != nil {
			return 0, "", err
		}
		want := l.ObjectSize(i, file.n.Size)
		if got > want {
			long = max(long, l.FileSize(i, got))
		}
		if want > 0 {
			needed++
		}
		if want > 0 && got == 0 {
			absent++
		}
		if got < want && first < 0 {
			first = i
		}
	}
	switch {
	case needed > 0 && absent == needed:
		missing = "none of its data is there"
	case first >= 0 && !file.n.has(flagHoles):
		missing = text("stripe %d at server %d is not all there", first, l.Servers[first])
	}
	return long, missing, nil
}
