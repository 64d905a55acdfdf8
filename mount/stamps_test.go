package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stampStep is an operation below a directory.
type stampStep struct {
	what string
	do   func(dir string) error
}

// stamped are the names whose times are looked at after each step: the directory itself, a file, a
// link to it, and two directories.
var stamped = []string{".", "f", "l", "d", "o", "o/f"}

// TestTimesAsLocally does the same things to a mount and to a local ext4, and compares after each
// which times of which inodes they have changed.
func TestTimesAsLocally(t *testing.T) {
	// (Where the kernel writes back by itself it has times of its own: see docs/posix.md.)
	for _, o := range []Options{{}, {Atime: AtimeStrict}, {Atime: AtimeNone}, {Cache: CacheStrict}} {
		t.Run(fmt.Sprint(o.Atime, o.Cache), func(t *testing.T) {
			local := localDir(t, o.Atime)
			dir := newCluster(t, 2).mount(o).Dir()
			for _, step := range stampSteps() {
				want, got := changed(t, local, step), changed(t, dir, step)
				if got != want {
					t.Errorf("%s: times changed: %s; locally: %s", step.what, got, want)
				}
			}
		})
	}
}

// localDir is a directory of a local file system whose times are those of Linux, mounted with the
// option that fits.
func localDir(t *testing.T, atime Atime) string {
	t.Helper()
	dir := t.TempDir()
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	if st.Type != unix.EXT4_SUPER_MAGIC && st.Type != unix.XFS_SUPER_MAGIC {
		t.Skipf("%s is neither ext4 nor xfs: there is nothing to compare with", dir)
	}
	if os.Geteuid() != 0 {
		t.Skip("a mount with an option of its own needs root")
	}
	flag := map[Atime]uintptr{AtimeRelative: unix.MS_RELATIME, AtimeStrict: unix.MS_STRICTATIME,
		AtimeNone: unix.MS_NOATIME}[atime]
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|flag, ""))
	return dir
}

// nextTick waits until the clock that the kernel takes times from, which moves on every few
// milliseconds, shows what lies after this call, and returns that.
func nextTick(t *testing.T) time.Time {
	t.Helper()
	for called := time.Now(); ; time.Sleep(time.Millisecond) {
		var ts unix.Timespec
		must(t, unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts))
		if at := time.Unix(ts.Unix()); at.After(called) {
			return at
		}
	}
}

// changed does a step and tells which times it has changed. Before it the clock has moved on. A
// time that was changed to what is not now is told itself, unless the name stands for another
// inode.
func changed(t *testing.T, dir string, step stampStep) string {
	t.Helper()
	before := stamps(t, dir)
	start := nextTick(t)
	if err := step.do(dir); err != nil {
		t.Fatalf("%s: %v", step.what, err)
	}
	end := time.Now()
	after := stamps(t, dir)
	var text []string
	for _, name := range stamped {
		was, there := before[name]
		is, still := after[name]
		if there != still {
			text = append(text, fmt.Sprintf("%s there: %v", name, still))
		}
		if !there || !still {
			continue
		}
		for i, kind := range [...]string{"atime", "mtime", "ctime", "btime"} {
			switch at := time.Unix(is.at[i].Sec, int64(is.at[i].Nsec)); {
			case is.at[i] == was.at[i]:
			case !at.Before(start) && !at.After(end):
				text = append(text, name+" "+kind)
			case is.ino == was.ino:
				text = append(text, fmt.Sprintf("%s %s to %d.%09d", name, kind, is.at[i].Sec, is.at[i].Nsec))
			}
		}
	}
	return strings.Join(text, ", ")
}

// inodeTimes are the times of an inode: of access, of change of data, of all, of birth.
type inodeTimes struct {
	ino uint64
	at  [4]unix.StatxTimestamp
}

// stamps are the times of what is there.
func stamps(t *testing.T, dir string) map[string]inodeTimes {
	t.Helper()
	all := map[string]inodeTimes{}
	for _, name := range stamped {
		var st unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, filepath.Join(dir, name), unix.AT_SYMLINK_NOFOLLOW,
			unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
		if err == unix.ENOENT {
			continue
		}
		must(t, err)
		if st.Mask&unix.STATX_BTIME == 0 {
			t.Fatalf("%s tells no time of birth", filepath.Join(dir, name))
		}
		all[name] = inodeTimes{st.Ino, [4]unix.StatxTimestamp{st.Atime, st.Mtime, st.Ctime, st.Btime}}
	}
	return all
}

// with opens a file for a step.
func with(name string, flags int, do func(f *os.File) error) func(string) error {
	return func(dir string) error {
		f, err := os.OpenFile(filepath.Join(dir, name), flags, 0o644)
		if err != nil {
			return err
		}
		if do != nil {
			err = do(f)
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return err
	}
}

// by is a step on paths below the directory.
func by(do func(paths ...string) error, names ...string) func(string) error {
	return func(dir string) error {
		paths := make([]string, len(names))
		for i, n := range names {
			paths[i] = filepath.Join(dir, n)
		}
		return do(paths...)
	}
}

// utimes sets times; of a link itself.
func utimes(name string, atime, mtime unix.Timespec) func(string) error {
	return by(func(p ...string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, p[0], []unix.Timespec{atime, mtime},
			unix.AT_SYMLINK_NOFOLLOW)
	}, name)
}

func readAll(name string, flags int) func(string) error {
	return with(name, os.O_RDONLY|flags, func(f *os.File) error {
		_, err := f.Read(make([]byte, 1<<16))
		return err
	})
}

func appendTo(name string) func(string) error {
	return with(name, os.O_WRONLY|os.O_APPEND, func(f *os.File) error {
		_, err := f.Write([]byte("more"))
		return err
	})
}

func list(name string) func(string) error {
	return by(func(p ...string) error {
		_, err := os.ReadDir(p[0])
		return err
	}, name)
}

func stampSteps() []stampStep {
	steps := makeSteps()
	steps = append(steps, readSteps()...)
	steps = append(steps, openSteps()...)
	steps = append(steps, nameSteps()...)
	return append(steps, setSteps()...)
}

func makeSteps() []stampStep {
	return []stampStep{
		{"create", with("f", os.O_CREATE|os.O_RDWR, nil)},
		{"write", appendTo("f")},
		{"mkdir", by(func(p ...string) error { return os.Mkdir(p[0], 0o755) }, "d")},
		{"mkdir once more", by(func(p ...string) error { return os.Mkdir(p[0], 0o755) }, "o")},
		{"symlink", by(func(p ...string) error { return os.Symlink("f", p[0]) }, "l")},
		{"write into it", with("f", os.O_WRONLY, func(f *os.File) error {
			_, err := f.WriteAt([]byte("x"), 1)
			return err
		})},
		{"write nothing", with("f", os.O_WRONLY, func(f *os.File) error {
			_, err := f.Write(nil)
			return err
		})},
		{"truncate", by(func(p ...string) error { return os.Truncate(p[0], 3) }, "f")},
		{"truncate to the same size", by(func(p ...string) error { return os.Truncate(p[0], 3) }, "f")},
		{"ftruncate to the same size", with("f", os.O_WRONLY, func(f *os.File) error {
			return f.Truncate(3)
		})},
		{"fsync", with("f", os.O_WRONLY, (*os.File).Sync)},
	}
}

func readSteps() []stampStep {
	return []stampStep{
		{"read what was just written", readAll("f", 0)},
		{"read again", readAll("f", 0)},
		{"write again", appendTo("f")},
		{"read without a trace", readAll("f", unix.O_NOATIME)},
		{"open with O_PATH", with("f", unix.O_PATH, func(f *os.File) error {
			_, err := f.Stat()
			return err
		})},
		{"read after a write", readAll("f", 0)},
		{"chmod", by(func(p ...string) error { return os.Chmod(p[0], 0o600) }, "f")},
		{"map", with("f", os.O_RDONLY, func(f *os.File) error {
			m, err := unix.Mmap(int(f.Fd()), 0, 3, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			if m[0] == 0 {
				return unix.EIO
			}
			return unix.Munmap(m)
		})},
		{"list", list("d")},
		{"list again", list("d")},
		{"list the top", list(".")},
		{"readlink", by(func(p ...string) error {
			_, err := os.Readlink(p[0])
			return err
		}, "l")},
		{"readlink again", by(func(p ...string) error {
			_, err := os.Readlink(p[0])
			return err
		}, "l")},
		{"a day ago", utimes("f", unix.Timespec{Sec: 2e9}, unix.Timespec{Nsec: unix.UTIME_OMIT})},
		{"a time ahead stays", readAll("f", 0)},
		{"two days ago", utimes("f", unix.Timespec{Sec: time.Now().Unix() - 2*86400},
			unix.Timespec{Sec: time.Now().Unix() - 3*86400})},
		{"read after two days", readAll("f", 0)},
	}
}

func openSteps() []stampStep {
	return []stampStep{
		{"open and close", with("f", os.O_RDWR, nil)},
		{"create what is there", with("f", os.O_CREATE|os.O_RDWR, nil)},
		{"empty it", with("f", os.O_WRONLY|os.O_TRUNC, nil)},
		{"empty what is empty", with("f", os.O_WRONLY|os.O_TRUNC, nil)},
		{"fill", appendTo("f")},
		{"empty it to read", with("f", os.O_RDONLY|os.O_TRUNC, func(f *os.File) error {
			if st, err := f.Stat(); err != nil || st.Size() != 0 {
				return fmt.Errorf("%v bytes: %w", st.Size(), err)
			}
			return nil
		})},
		{"fill again", appendTo("f")},
		{"setxattr", by(func(p ...string) error {
			return unix.Setxattr(p[0], "user.x", []byte("1"), 0)
		}, "f")},
		{"getxattr", by(func(p ...string) error {
			_, err := unix.Getxattr(p[0], "user.x", make([]byte, 9))
			return err
		}, "f")},
		{"removexattr", by(func(p ...string) error { return unix.Removexattr(p[0], "user.x") }, "f")},
		{"chown", by(func(p ...string) error { return os.Chown(p[0], 7, 7) }, "f")},
		{"chown to nobody else", by(func(p ...string) error { return os.Chown(p[0], -1, -1) }, "f")},
		{"lchown", by(func(p ...string) error { return os.Lchown(p[0], 7, 7) }, "l")},
	}
}

func nameSteps() []stampStep {
	rename := func(p ...string) error { return os.Rename(p[0], p[1]) }
	return []stampStep{
		{"link", by(func(p ...string) error { return os.Link(p[0], p[1]) }, "f", "d/f")},
		{"unlink", by(func(p ...string) error { return os.Remove(p[0]) }, "d/f")},
		{"rename", by(rename, "f", "g")},
		{"rename back", by(rename, "g", "f")},
		{"rename onto itself", by(rename, "f", "f")},
		{"move to another directory", by(rename, "f", "o/f")},
		{"make its like", with("f", os.O_CREATE|os.O_RDWR|os.O_EXCL, nil)},
		{"exchange", by(func(p ...string) error {
			return unix.Renameat2(unix.AT_FDCWD, p[0], unix.AT_FDCWD, p[1], unix.RENAME_EXCHANGE)
		}, "f", "o/f")},
		{"replace", by(rename, "o/f", "f")},
		{"mkdir below", by(func(p ...string) error { return os.Mkdir(p[0], 0o755) }, "d/s")},
		{"move a directory", by(rename, "d/s", "o/s")},
		{"rmdir", by(func(p ...string) error { return os.Remove(p[0]) }, "o/s")},
		{"mkfifo", by(func(p ...string) error { return unix.Mkfifo(p[0], 0o644) }, "d/p")},
		{"a file without a name", func(dir string) error {
			return with(".", unix.O_TMPFILE|os.O_RDWR, func(f *os.File) error {
				return linkFd(f, filepath.Join(dir, "d", "t"))
			})(dir)
		}},
	}
}

func setSteps() []stampStep {
	now, omit := unix.Timespec{Nsec: unix.UTIME_NOW}, unix.Timespec{Nsec: unix.UTIME_OMIT}
	at := func(sec, nsec int64) unix.Timespec { return unix.Timespec{Sec: sec, Nsec: nsec} }
	var all []stampStep
	for _, name := range []string{"f", "d", "l"} {
		for _, s := range []struct {
			what         string
			atime, mtime unix.Timespec
		}{
			{"now and now", now, now}, {"now and as it is", now, omit}, {"as it is and now", omit, now},
			{"both as they are", omit, omit}, {"set and as it is", at(1e9, 123_456_789), omit},
			{"as it is and set", omit, at(-5, 999_999_999)}, {"set and now", at(1, 1), now},
			{"a nanosecond", at(0, 1), at(0, 999_999_999)}, {"far", at(1<<33, 5), at(-1<<31+1, 7)},
		} {
			all = append(all, stampStep{"utimensat of " + name + ": " + s.what,
				utimes(name, s.atime, s.mtime)})
		}
	}
	return all
}

// linkFd gives a name to an open file, by way of /proc as who has no privileges must.
func linkFd(f *os.File, path string) error {
	return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, path,
		unix.AT_SYMLINK_FOLLOW)
}
