package systest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// users are programs that have files open on a mount while it changes hands. They stop with stop,
// and fail the test by themselves; lossy says that data may be lost that was not synced.
type users struct {
	t     *testing.T
	dir   string
	stop  chan struct{}
	wg    sync.WaitGroup
	lossy bool
	seed  uint64

	rounds atomic.Int64 // of all of them
	losses atomic.Int64 // that fsync told of
}

func startUsers(t *testing.T, mnt string, lossy bool) *users {
	u := &users{t: t, dir: mnt, stop: make(chan struct{}), lossy: lossy,
		seed: uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))}
	t.Logf("seed %d (SLUICE_SEED)", u.seed)
	ready := sync.WaitGroup{}
	for i, run := range []func(r *rand.Rand, ready func()) error{u.watch, u.sync, u.stream, u.append,
		u.unlinked, u.list, u.lock, u.rename, u.small, u.small, u.small} {
		ready.Add(1)
		u.wg.Go(func() {
			var once sync.Once
			is := func() { once.Do(ready.Done) }
			defer is()
			if err := run(rand.New(rand.NewPCG(u.seed, uint64(i))), is); err != nil {
				t.Errorf("user %d: %v", i, err)
			}
		})
	}
	ready.Wait()
	return u
}

func (u *users) end() {
	close(u.stop)
	u.wg.Wait()
	u.t.Logf("%d rounds, %d losses told by fsync", u.rounds.Load(), u.losses.Load())
}

func (u *users) over() bool {
	u.rounds.Add(1)
	select {
	case <-u.stop:
		return true
	default:
		return u.t.Failed()
	}
}

// synced is fsync; false: it has told of a loss, which may be.
func (u *users) synced(f *os.File) (bool, error) {
	err := f.Sync()
	if err != nil && u.lossy && errors.Is(err, syscall.EIO) {
		u.losses.Add(1)
		return false, nil
	}
	return err == nil, err
}

// watch: the folder below the mount is never seen.
func (u *users) watch(_ *rand.Rand, ready func()) error {
	for !u.over() {
		var st unix.Statfs_t
		if err := unix.Statfs(u.dir, &st); err != nil || st.Type != unix.FUSE_SUPER_MAGIC {
			return fmt.Errorf("statfs: %v, type %x", err, st.Type)
		}
		ready()
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func fill(b []byte, number uint64) []byte {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], number^uint64(i)<<32)
	}
	return b
}

// sync: what was fsynced is there, for ever.
func (u *users) sync(r *rand.Rand, ready func()) error {
	const record, records = 20 << 10, 64
	f, err := os.Create(filepath.Join(u.dir, "sync"))
	if err != nil {
		return err
	}
	defer f.Close()
	durable, number := map[int]uint64{}, uint64(0)
	buf := make([]byte, record)
	for !u.over() {
		number++
		at := r.IntN(records)
		if _, err := f.WriteAt(fill(buf, number), int64(at*record)); err != nil {
			return err
		}
		if ok, err := u.synced(f); err != nil {
			return err
		} else if !ok {
			delete(durable, at) // the old one or the new one
		} else {
			durable[at] = number
		}
		ready()
		for at, number := range durable {
			got := make([]byte, record)
			if _, err := f.ReadAt(got, int64(at*record)); err != nil {
				return err
			}
			if !bytes.Equal(got, fill(buf, number)) {
				return fmt.Errorf("record %d is not what was synced", at)
			}
			break
		}
	}
	g, err := os.Open(filepath.Join(u.dir, "sync"))
	if err != nil {
		return err
	}
	defer g.Close()
	for at, number := range durable {
		got := make([]byte, record)
		if _, err := g.ReadAt(got, int64(at*record)); err != nil {
			return err
		}
		if !bytes.Equal(got, fill(buf, number)) {
			return fmt.Errorf("record %d, opened anew, is not what was synced", at)
		}
	}
	return nil
}

// stream: a file that is written from end to end is right, or its fsync fails.
func (u *users) stream(r *rand.Rand, ready func()) error {
	const piece = 64 << 10
	buf, got := make([]byte, piece), make([]byte, piece)
	own := r.Uint32()
	for round := uint64(1); !u.over(); round++ {
		name := filepath.Join(u.dir, fmt.Sprintf("stream%d-%d", own, round%4))
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		pieces := uint64(8 + r.IntN(60))
		for i := range pieces {
			if _, err := f.Write(fill(buf, round<<16|i)); err != nil {
				return err
			}
			ready()
		}
		ok, err := u.synced(f)
		if cerr := f.Close(); err == nil && ok {
			err = cerr
		}
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if f, err = os.Open(name); err != nil {
			return err
		}
		for i := range pieces {
			if n, err := f.ReadAt(got, int64(i*piece)); err != nil {
				return fmt.Errorf("%s: piece %d of %d of round %d has %d bytes: %w", name, i, pieces, round,
					n, err)
			}
			if !bytes.Equal(got, fill(buf, round<<16|i)) {
				return fmt.Errorf("%s: piece %d of round %d is not what was synced", name, i, round)
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// append: lines that were appended are there once, one behind the other.
func (u *users) append(_ *rand.Rand, ready func()) error {
	const line = 1000
	name := filepath.Join(u.dir, "append")
	start := bytes.Repeat([]byte("."), 32*line) // not a small file
	if err := os.WriteFile(name, start, 0o644); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return err
	}
	lines := uint64(0)
	buf := make([]byte, line)
	for !u.over() {
		lines++
		if _, err := f.Write(fill(buf, lines)); err != nil {
			return err
		}
		ready()
	}
	all, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if len(all) != len(start)+int(lines)*line {
		return fmt.Errorf("%d lines make %d bytes", lines, len(all)-len(start))
	}
	for i := range lines {
		at := len(start) + int(i)*line
		if !bytes.Equal(all[at:at+line], fill(buf, i+1)) {
			return fmt.Errorf("line %d of %d is another one", i, lines)
		}
	}
	return nil
}

// unlinked: a file without a name stays for who has it open.
func (u *users) unlinked(_ *rand.Rand, ready func()) error {
	var open []*os.File
	want := make([]byte, 40<<10)
	for i, size := range []int{100, 40 << 10} {
		name := filepath.Join(u.dir, fmt.Sprintf("unlinked%d", i))
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Write(fill(want, 7)[:size]); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		if err := os.Remove(name); err != nil {
			return err
		}
		open = append(open, f)
	}
	ready()
	for !u.over() {
		for i, size := range []int{100, 40 << 10} {
			got := make([]byte, size)
			if _, err := open[i].ReadAt(got, 0); err != nil || !bytes.Equal(got, want[:size]) {
				return fmt.Errorf("a file of %d bytes without a name: %v", size, err)
			}
		}
		time.Sleep(3 * time.Millisecond)
	}
	return nil
}

// list: a large directory that is read slowly has every name once.
func (u *users) list(_ *rand.Rand, ready func()) error {
	const names = 1500
	dir := filepath.Join(u.dir, "list")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for i := range names {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("name%d", i)), 0o755); err != nil {
			return err
		}
	}
	if err := syncDir(dir); err != nil { // what was made a moment ago may go with the mount's process
		return err
	}
	ready()
	for !u.over() {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for {
			some, err := d.Readdirnames(7)
			for _, name := range some {
				if seen[name] {
					return fmt.Errorf("%s is listed twice", name)
				}
				seen[name] = true
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		if len(seen) != names {
			return fmt.Errorf("%d names are listed, of %d", len(seen), names)
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	return nil
}

// lock: what is locked stays locked.
func (u *users) lock(_ *rand.Rand, ready func()) error {
	name := filepath.Join(u.dir, "lock")
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	region := unix.Flock_t{Type: unix.F_WRLCK, Start: 10, Len: 10}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &region); err != nil {
		return err
	}
	ready()
	for !u.over() {
		g, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		err = unix.Flock(int(g.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("a second flock: %v", err)
		}
		other := unix.Flock_t{Type: unix.F_WRLCK, Start: 19, Len: 1}
		err = unix.FcntlFlock(g.Fd(), unix.F_OFD_SETLK, &other)
		if !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("a second lock of a byte: %v", err)
		}
		if err := g.Close(); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		return err
	}
	g, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer g.Close()
	return unix.Flock(int(g.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// rename: every change of a name is done once.
func (u *users) rename(r *rand.Rand, ready func()) error {
	dir := filepath.Join(u.dir, "rename")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	path := func(name string, i int) string { return filepath.Join(dir, fmt.Sprintf("%s%d", name, i)) }
	for i := 0; !u.over(); i++ {
		f, err := os.OpenFile(path("f", i), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		steps := []error{os.Mkdir(path("d", i), 0o700), os.Symlink("there", path("s", i)),
			os.Link(path("f", i), path("l", i)), os.Rename(path("f", i), path("g", i)),
			os.Chmod(path("g", i), 0o640), unix.Setxattr(path("g", i), "user.a", []byte("1"),
				unix.XATTR_CREATE), unix.Removexattr(path("g", i), "user.a"),
			os.Truncate(path("l", i), int64(r.IntN(100))), f.Close(), os.Remove(path("l", i)),
			os.Remove(path("s", i)), os.Remove(path("d", i)), os.Remove(path("g", i))}
		for step, err := range steps {
			if err != nil {
				return fmt.Errorf("step %d of round %d: %w", step, i, err)
			}
		}
		ready()
	}
	left, err := os.ReadDir(dir)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d names are left, as %s", len(left), left[0].Name())
	}
	return err
}

// small: a small file has what was last synced, or its fsync has failed since.
func (u *users) small(r *rand.Rand, ready func()) error {
	name := filepath.Join(u.dir, fmt.Sprintf("small%d", r.Uint32()))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 4000)
	for number := uint64(1); !u.over(); number++ {
		if _, err := f.WriteAt(fill(buf, number), 0); err != nil {
			return err
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(600)) * time.Millisecond)
		}
		ok, err := u.synced(f)
		if err != nil {
			return err
		}
		ready()
		if !ok {
			continue
		}
		got, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if !bytes.Equal(got, buf) {
			was := uint64(0)
			if len(got) >= 8 {
				was = binary.BigEndian.Uint64(got)
			}
			again, err := os.ReadFile(name)
			return fmt.Errorf("round %d: it is not what was synced, but %d bytes of round %d; read once "+
				"more it is: %v, %v", number, len(got), was, bytes.Equal(again, buf), err)
		}
	}
	return nil
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
