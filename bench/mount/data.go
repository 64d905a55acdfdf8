package mount

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// data is what all systems are given.
type data struct {
	tree *tree
	repo string // a bare repository; "": no workload needs it
}

// tree is a tree of source files on the local disk.
type tree struct {
	dir, about   string
	files, bytes int64
}

func makeData(ctx context.Context, o *Options, steps []*step) (d *data, err error) {
	d = &data{tree: &tree{about: "no workload needs it"}}
	needs := func(scene string) bool {
		return slices.ContainsFunc(steps, func(s *step) bool { return s.scene == scene })
	}
	if needs("tree") {
		if d.tree, err = findTreeDir(ctx, o); err != nil {
			return nil, err
		}
	}
	if needs("git") {
		d.repo = filepath.Join(o.Dir, "repository.git")
		err = makeRepo(ctx, d.repo, o.Sizes.RepoFiles, o.Sizes.RepoCommits)
	}
	return d, err
}

// findTreeDir takes the tree that was asked for, Go's own source, or one of the same shape.
func findTreeDir(ctx context.Context, o *Options) (*tree, error) {
	t := &tree{dir: o.Sizes.TreeDir, about: o.Sizes.TreeDir}
	if t.dir == "" && o.Sizes.TreeFiles == 0 {
		t.dir = goSource(ctx)
		t.about = "Go's own source"
	}
	if t.dir == "" {
		t.dir, t.about = filepath.Join(o.Dir, "tree"), "made, with the shape of Go's source"
		files := o.Sizes.TreeFiles
		if files == 0 {
			files = goFiles
		}
		if err := makeTree(t.dir, files); err != nil {
			return nil, err
		}
	}
	err := filepath.WalkDir(t.dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			t.files++
			t.bytes += info.Size()
		}
		return err
	})
	t.about += fmt.Sprintf(", %d files, %.0f MB", t.files, float64(t.bytes)/1e6)
	return t, err
}

// goSource is where Go's own source is, if it is installed.
func goSource(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	root := os.Getenv("GOROOT")
	if out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output(); root == "" && err == nil {
		root = strings.TrimSpace(string(out))
	}
	if root == "" {
		return ""
	}
	dir := filepath.Join(root, "src")
	if info, err := os.Stat(filepath.Join(dir, "runtime")); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// warm reads it, so that copying it does not wait for the disk that it comes from.
func (t *tree) warm() error {
	return filepath.WalkDir(t.dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(io.Discard, f)
		return err
	})
}

// The shape of Go's source: how many files, how many of them in a folder, and the sizes below which
// 0, 5, 10, ... 95, 99, 99.9 and 100 percent of them are.
const (
	goFiles     = 11478
	folderFiles = 9
)

func goSizes() (percent, bytes []float64) {
	return []float64{0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 99,
			99.9, 100},
		[]float64{1, 197, 288, 364, 466, 607, 771, 930, 1087, 1370, 1766, 2251, 2881, 3668, 4854, 6527,
			8778, 12121, 18294, 35244, 127287, 723819, 2996154}
}

// sizeAt is the size below which so many percent of the files are.
func sizeAt(p float64) int {
	percent, bytes := goSizes()
	i := min(max(sort.SearchFloat64s(percent, p), 1), len(percent)-1)
	part := (p - percent[i-1]) / (percent[i] - percent[i-1])
	return int(bytes[i-1] + part*(bytes[i]-bytes[i-1]))
}

// makeTree makes the same tree each time.
func makeTree(dir string, files int) error {
	rng := rand.New(rand.NewPCG(11478, 157))
	where := dir
	for i := range files {
		if i%folderFiles == 0 {
			n := i / folderFiles
			where = filepath.Join(dir, fmt.Sprintf("d%02d", n%40), fmt.Sprintf("p%03d", n))
			if err := os.MkdirAll(where, 0o755); err != nil {
				return err
			}
		}
		name := filepath.Join(where, fmt.Sprintf("file%d.go", i))
		if err := os.WriteFile(name, words(rng, sizeAt(rng.Float64()*100)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// words is text that compresses about as well as source does.
func words(rng *rand.Rand, n int) []byte {
	const letters = "etaoinshrdlucmfwypvbgkjqxz"
	text := make([]byte, 0, n+16)
	for len(text) < n {
		for range 2 + rng.IntN(9) {
			text = append(text, letters[min(rng.IntN(26), rng.IntN(26))])
		}
		text = append(text, " \n\t("[max(0, rng.IntN(8)-4)])
	}
	return text[:n]
}

// makeRepo makes a bare repository, the same each time: some files, then commits that change a few.
func makeRepo(ctx context.Context, dir string, files, commits int) error {
	if out, err := exec.CommandContext(ctx, "git", "init", "-q", "--bare", "-b", "main",
		dir).CombinedOutput(); err != nil {
		return errs.Newf(errs.IO, "git init", dir, "%v: %s", err, out)
	}
	cmd := exec.CommandContext(ctx, "git", "-C", dir, "fast-import", "--quiet")
	var problems strings.Builder
	cmd.Stderr = &problems
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w := bufio.NewWriter(in)
	history(w, files, commits)
	flushErr := w.Flush()
	_ = in.Close()
	if err := cmd.Wait(); err != nil || flushErr != nil {
		return errs.Newf(errs.IO, "git fast-import", dir, "%v: %s", err, problems.String())
	}
	return nil
}

// history is what git fast-import reads. What fails to be written, the writer remembers.
func history(w io.Writer, files, commits int) {
	const changed = 10 // files of a commit
	rng := rand.New(rand.NewPCG(2500, 150))
	put := func(i int) {
		text := words(rng, sizeAt(rng.Float64()*99))
		fmt.Fprintf(w, "M 100644 inline d%02d/p%03d/file%d.go\ndata %d\n%s\n", i/9%40, i/9, i, len(text),
			text)
	}
	for c := range commits {
		fmt.Fprintf(w, "commit refs/heads/main\ncommitter bench <bench@localhost> %d +0000\ndata 2\nc\n",
			1_600_000_000+c*60)
		if c == 0 {
			for i := range files {
				put(i)
			}
			continue
		}
		for range changed {
			put(rng.IntN(files))
		}
	}
}
