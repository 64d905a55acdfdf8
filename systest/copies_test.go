package systest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// oddTree makes a tree of all that copying programs must keep: hard links, holes, extended
// attributes, symbolic links, fifos, odd names, modes, owners and times.
func oddTree(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, "sub", "empty"), 0o755))
	for i := range 40 {
		path := filepath.Join(dir, "sub", fmt.Sprintf("file %d é\t", i))
		must(t, os.WriteFile(path, record(uint64(i), i, 8+i*977), 0o600+os.FileMode(i)))
	}
	big := filepath.Join(dir, "big")
	must(t, os.WriteFile(big, record(1, 1, 3<<20), 0o644))
	must(t, os.Link(big, filepath.Join(dir, "sub", "linked")))
	must(t, os.Link(big, filepath.Join(dir, "linked too")))
	must(t, unix.Setxattr(big, "user.note", []byte("of the big one"), 0))
	must(t, unix.Setxattr(filepath.Join(dir, "sub"), "user.note", bytes.Repeat([]byte("x"), 700), 0))
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	must(t, err)
	for _, at := range []int64{0, 5 << 20, 40 << 20} {
		_, err = sparse.WriteAt(record(uint64(at), 1, 96<<10), at)
		must(t, err)
	}
	must(t, sparse.Truncate(64<<20))
	must(t, sparse.Close())
	must(t, os.Symlink("sub/linked", filepath.Join(dir, "symlink")))
	must(t, os.Symlink("nowhere at all", filepath.Join(dir, "broken")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o640))
	must(t, os.Lchown(filepath.Join(dir, "symlink"), 12, 34))
	must(t, os.Chown(filepath.Join(dir, "sub", "empty"), 56, 78))
	must(t, os.Chmod(filepath.Join(dir, "sub", "empty"), 0o2775|os.ModeSetgid))
}

// sparseBlocks is what the sparse file of oddTree takes, in bytes; all of it is 64 MiB.
func sparseBlocks(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(dir, "sparse"), &st))
	return st.Blocks * 512
}

// sameNumbers wants the hard links of oddTree to be one file.
func sameNumbers(t *testing.T, dir string) {
	t.Helper()
	var first uint64
	for i, name := range []string{"big", "sub/linked", "linked too"} {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(dir, name), &st))
		if i == 0 {
			first = st.Ino
		}
		if st.Ino != first || st.Nlink != 3 {
			t.Errorf("%s: %s is inode %d with %d links, the first name's is %d", dir, name, st.Ino,
				st.Nlink, first)
		}
	}
}

// tarOddThings packs such a tree on the mount and on a local disk, unpacks each on the other one,
// and has tar compare: content, modes, owners, times, links, attributes.
func tarOddThings(t *testing.T, _ *cluster, dir string) {
	local := t.TempDir()
	flags := []string{"--xattrs", "--xattrs-include=user.*", "--sparse", "--numeric-owner"}
	tar := func(at string, args ...string) {
		t.Helper()
		run(t, at, "tar", append(slices.Clone(flags), args...)...)
	}
	for i, places := range [][2]string{{dir, local}, {local, dir}, {dir, dir}} {
		from := filepath.Join(places[0], fmt.Sprint("from", i))
		to := filepath.Join(places[1], fmt.Sprint("to", i))
		oddTree(t, from)
		must(t, os.Mkdir(to, 0o755))
		archive := filepath.Join(places[1], fmt.Sprintf("%d.tar", i))
		tar(from, "-cpf", archive, ".")
		tar(from, "-df", archive)
		tar(to, "-xpf", archive)
		tar(to, "-df", archive)
		run(t, "", "diff", "-r", "--no-dereference", "--exclude=fifo", from, to)
		sameNumbers(t, to)
		if n := sparseBlocks(t, to); n > 8<<20 {
			t.Errorf("a sparse file takes %d bytes in %s", n, to)
		}
		for _, path := range []string{from, to} {
			if places[0] != places[1] || path == to {
				must(t, os.RemoveAll(path))
			}
		}
	}
}

// rsyncTrees copies such a tree in and out, twice: the second time nothing is to be done. Then
// files are changed in place and appended to.
func rsyncTrees(t *testing.T, _ *cluster, dir string) {
	local := t.TempDir()
	src, back := filepath.Join(local, "src"), filepath.Join(local, "back")
	on := filepath.Join(dir, "on")
	oddTree(t, src)
	rsync := func(args ...string) string {
		t.Helper()
		return run(t, "", "rsync", append([]string{"-aHAXS", "--numeric-ids", "-i"}, args...)...)
	}
	rsync(src+"/", on+"/")
	rsync(on+"/", back+"/")
	for _, pair := range [][2]string{{src, on}, {on, back}, {src, back}} {
		if out := rsync("--checksum", "--delete", pair[0]+"/", pair[1]+"/"); out != "" {
			t.Errorf("the second copy of %s to %s does something:\n%s", pair[0], pair[1], out)
		}
		sameNumbers(t, pair[1])
	}
	if n := sparseBlocks(t, on); n > 8<<20 {
		t.Errorf("the sparse file takes %d bytes on the mount", n)
	}
	changeInPlace(t, filepath.Join(src, "big"))
	appendTo(t, filepath.Join(src, "sub", "file 5 é\t"), strings.Repeat("more ", 9000))
	run(t, "", "rsync", "-aHAX", "--inplace", "--no-whole-file", src+"/", on+"/")
	appendTo(t, filepath.Join(src, "big"), strings.Repeat("the end ", 50000))
	run(t, "", "rsync", "-aHAX", "--append-verify", src+"/", on+"/")
	must(t, os.Remove(filepath.Join(src, "linked too")))
	must(t, os.RemoveAll(filepath.Join(src, "sub", "empty")))
	rsync("--delete", "--delay-updates", src+"/", on+"/")
	if out := rsync("--checksum", "--delete", src+"/", on+"/"); out != "" {
		t.Errorf("after all changes there is something to do:\n%s", out)
	}
	run(t, "", "diff", "-r", "--no-dereference", "--exclude=fifo", src, on)
}

// changeInPlace changes some bytes in the middle of a file.
func changeInPlace(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("changed in place"), 1<<20+123)
	must(t, err)
	must(t, f.Close())
}

// goModule builds a small module whose sources, cache and temporary files all lie on the
// mount: thousands of small files, renames into place, locks, mapped files, programs that run.
func goModule(t *testing.T, _ *cluster, dir string) {
	src := filepath.Join(dir, "m")
	must(t, os.MkdirAll(filepath.Join(src, "sum"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "tmp"), 0o755))
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.21\n",
		"main.go": "package main\n\nimport \"example.org/m/sum\"\n\n" +
			"func main() { println(sum.Of(40, 2)) }\n",
		"sum/sum.go": "package sum\n\nfunc Of(a, b int) int { return a + b }\n",
	} {
		must(t, os.WriteFile(filepath.Join(src, name), []byte(text), 0o644))
	}
	env := []string{"env", "GOCACHE=" + filepath.Join(dir, "cache"),
		"GOTMPDIR=" + filepath.Join(dir, "tmp"), "GOFLAGS=-trimpath", "CGO_ENABLED=0",
		"GOTOOLCHAIN=local"}
	build := func(args ...string) string {
		t.Helper()
		line := append(slices.Clone(env), append([]string{"go", "build", "-o", "../m.bin"}, args...)...)
		return run(t, src, line[0], line[1:]...)
	}
	build(".")
	if out := run(t, dir, "sh", "-c", "./m.bin 2>&1"); out != "42\n" {
		t.Fatalf("what was built says %q", out)
	}
	// A second build finds everything in the cache; a changed file is compiled again.
	if out := run(t, src, "sh", append([]string{"-c", `"$@" 2>&1`, "sh"}, append(slices.Clone(env),
		"go", "build", "-x", "-o", "../m.bin", ".")...)...); strings.Contains(out, "/compile ") {
		t.Errorf("the second build compiles again:\n%s", tail(out))
	}
	must(t, os.WriteFile(filepath.Join(src, "sum", "sum.go"),
		[]byte("package sum\n\nfunc Of(a, b int) int { return a * b }\n"), 0o644))
	build(".")
	if out := run(t, dir, "sh", "-c", "./m.bin 2>&1"); out != "80\n" {
		t.Fatalf("what was built from the changed source says %q", out)
	}
}

// TestGitOnTwoMounts: two people share a repository through two mounts. One commits and pushes, the
// other one pulls, at every step of which both see the same; in the end all is whole.
func TestGitOnTwoMounts(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{iods: 2, mount: true})
	mounts := [2]string{c.mnt, c.startMount(t)}
	git := func(dir string, args ...string) string {
		t.Helper()
		base := []string{"-c", "user.name=t", "-c", "user.email=t@example.org", "-c",
			"init.defaultBranch=main", "-c", "safe.directory=*", "-c", "pull.rebase=true"}
		return run(t, dir, "git", append(base, args...)...)
	}
	git(mounts[0], "init", "-q", "--bare", "shared.git")
	var work [2]string
	for i, mnt := range mounts {
		work[i] = filepath.Join(mnt, fmt.Sprint("work", i))
		git(mnt, "clone", "-q", filepath.Join(mnt, "shared.git"), work[i])
	}
	for round := range 8 {
		one, two := round%2, 1-round%2
		must(t, os.WriteFile(filepath.Join(work[one], fmt.Sprint("file", round%3)),
			record(uint64(round), 1, 8+round*3000), 0o644))
		git(work[one], "add", "-A")
		git(work[one], "commit", "-q", "-m", fmt.Sprint("round ", round))
		git(work[one], "push", "-q", "origin", "HEAD:main")
		git(work[two], "pull", "-q", "origin", "main")
		if a, b := git(work[0], "rev-parse", "HEAD"), git(work[1], "rev-parse", "HEAD"); a != b {
			t.Fatalf("round %d: %s and %s", round, a, b)
		}
		for i := range work { // each by its own mount, and by the other one
			for _, mnt := range mounts {
				at := filepath.Join(mnt, fmt.Sprint("work", i))
				if s := git(at, "status", "--porcelain"); s != "" {
					t.Fatalf("round %d: %s is not clean: %s", round, at, s)
				}
			}
		}
		if round == 4 {
			git(filepath.Join(mounts[two], "shared.git"), "gc", "-q", "--prune=now")
		}
	}
	for _, mnt := range mounts {
		git(filepath.Join(mnt, "shared.git"), "fsck", "--full", "--strict")
	}
	run(t, "", "diff", "-r", "--exclude=.git", work[0], work[1])
}
