package mount

import (
	"bytes"
	"context"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
)

// The workloads with a tree of source files, and with a repository.
const (
	treeCopy   = "cp-r"
	treeTar    = "tar"
	treeFind   = "find"
	treeAgain  = "find-again"
	treeRemove = "rm-r"
	gitClone   = "git-clone"
	gitStatus  = "git-status"
)

// countWriter counts what a program prints.
type countWriter struct{ bytes, lines int64 }

func (w *countWriter) Write(p []byte) (int, error) {
	w.bytes += int64(len(p))
	w.lines += int64(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

func treeSteps() []*step {
	return []*step{
		{name: treeCopy, about: "cp -r of a tree of source files", tool: "cp", metric: bench.Elapsed,
			makes: true, run: func(ctx context.Context, e *env) (outcome, error) {
				o, err := e.program(ctx, nil, "cp", "-r", e.data.tree.dir, e.path("tree"))
				o.files, o.bytes = e.data.tree.files, e.data.tree.bytes
				return o, err
			}},
		{name: treeTar, about: "tar of it back, cold", tool: "tar", metric: bench.Elapsed, cold: true,
			run: tarTree},
		{name: treeFind, about: "find in it, cold", tool: "find", metric: bench.Elapsed, cold: true,
			makes: true, run: findTree}, // what the next one finds known
		{name: treeAgain, about: "find in it once more", tool: "find", metric: bench.Elapsed,
			run: findTree},
		{name: treeRemove, about: "rm -r of it", tool: "rm", metric: bench.Elapsed,
			run: func(ctx context.Context, e *env) (outcome, error) {
				o, err := e.program(ctx, nil, "rm", "-r", e.path("tree"))
				o.files = e.data.tree.files
				return o, err
			}},
	}
}

// tarTree archives into a pipe: to /dev/null tar would not read the files.
func tarTree(ctx context.Context, e *env) (outcome, error) {
	var out countWriter
	o, err := e.program(ctx, &out, "tar", "-c", "-f", "-", "-C", e.dir, "tree")
	o.files, o.bytes = e.data.tree.files, e.data.tree.bytes
	if err == nil && out.bytes < e.data.tree.bytes {
		err = errs.Newf(errs.Corrupt, "tar", e.dir, "an archive of %d bytes of %d", out.bytes,
			e.data.tree.bytes)
	}
	return o, err
}

func findTree(ctx context.Context, e *env) (outcome, error) {
	var out countWriter
	o, err := e.program(ctx, &out, "find", e.path("tree"), "-type", "f")
	o.files = e.data.tree.files
	if err == nil && out.lines != o.files {
		err = errs.Newf(errs.Corrupt, "find", e.dir, "%d files, and %d were copied", out.lines, o.files)
	}
	return o, err
}

func gitSteps() []*step {
	return []*step{
		{name: gitClone, about: "git clone of a repository on the local disk, by git's protocol",
			tool: "git", metric: bench.Elapsed, makes: true,
			run: func(ctx context.Context, e *env) (outcome, error) {
				o, err := e.program(ctx, nil, "git", "-c", "gc.auto=0", "clone", "-q",
					"file://"+e.data.repo, e.path("clone"))
				o.files = int64(e.sizes.RepoFiles)
				return o, err
			}},
		{name: gitStatus, about: "git status of the clone, cold", tool: "git", metric: bench.Elapsed,
			cold: true, run: func(ctx context.Context, e *env) (outcome, error) {
				var out countWriter
				o, err := e.program(ctx, &out, "git", "-C", e.path("clone"), "status", "--porcelain")
				o.files = int64(e.sizes.RepoFiles)
				if err == nil && out.lines != 0 {
					err = errs.Newf(errs.Corrupt, "git", e.dir, "%d files have changed", out.lines)
				}
				return o, err
			}},
	}
}
