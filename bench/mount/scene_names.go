package mount

import (
	"context"
	"fmt"

	"github.com/sluice-storage/sluice/bench"
)

// The workloads with small and empty files.
const (
	fileCreate  = "create-4k"
	fileStat    = "stat-4k"
	fileUnlink  = "unlink-4k"
	namesCreate = "names-create"
	namesStat   = "names-stat"
	namesRemove = "names-remove"
)

func fileSteps() []*step {
	one := func(kind string) func(ctx context.Context, e *env) (outcome, error) {
		return func(ctx context.Context, e *env) (outcome, error) {
			j := Job{Kind: kind, Path: e.dir, Files: int64(e.sizes.Files)}
			if kind == jobCreate {
				j.Block = 4 * bench.KiB
			}
			o, err := e.jobs(ctx, j)
			o.files, o.bytes = o.ops, 0
			return o, err
		}
	}
	return []*step{
		{name: fileCreate, about: "create, write and close files of 4 KiB, by one process",
			metric: bench.Rate, size: 4 * bench.KiB, makes: true, run: one(jobCreate)},
		{name: fileStat, about: "stat of each of them, cold", metric: bench.Rate, cold: true,
			run: one(jobStat)},
		{name: fileUnlink, about: "unlink of each of them", metric: bench.Rate, run: one(jobUnlink)},
	}
}

// nameSteps are as mdtest has them: several processes, each with a folder of its own.
func nameSteps(s *Sizes) []*step {
	many := func(kind string) func(ctx context.Context, e *env) (outcome, error) {
		return func(ctx context.Context, e *env) (outcome, error) {
			var all []Job
			for i := range e.sizes.Jobs {
				dir := e.path(fmt.Sprintf("process%d", i))
				if kind == jobCreate {
					if _, err := e.program(ctx, nil, "mkdir", dir); err != nil {
						return outcome{}, err
					}
				}
				all = append(all, Job{Kind: kind, Path: dir, Files: int64(e.sizes.Names)})
			}
			o, err := e.jobs(ctx, all...)
			o.files = o.ops
			return o, err
		}
	}
	return []*step{
		{name: namesCreate, about: "four processes: each creates empty files in a folder of its own",
			metric: bench.Rate, depth: s.Jobs, makes: true, run: many(jobCreate)},
		{name: namesStat, about: "four processes: each asks for the attributes of its files",
			metric: bench.Rate, depth: s.Jobs, run: many(jobStat)},
		{name: namesRemove, about: "four processes: each removes its files", metric: bench.Rate,
			depth: s.Jobs, run: many(jobUnlink)},
	}
}
