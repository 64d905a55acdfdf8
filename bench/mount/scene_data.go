package mount

import (
	"context"
	"fmt"

	"github.com/sluice-storage/sluice/bench"
)

// The workloads with large files.
const (
	seqWrite   = "seq-write"
	seqRead    = "seq-read"
	randomRead = "random-read"
	jobsWrite  = "jobs-write"
	jobsRead   = "jobs-read"
)

func dataSteps(s *Sizes) []*step {
	file := func(kind string, e *env) Job {
		return Job{Kind: kind, Path: e.path("file"), Block: bench.MiB, Bytes: e.sizes.FileBytes, Seed: 1}
	}
	return []*step{
		{name: seqWrite, about: "write a file in 1 MiB, and sync it", metric: bench.Bandwidth,
			size: bench.MiB, makes: true, run: func(ctx context.Context, e *env) (outcome, error) {
				return e.jobs(ctx, file(jobWrite, e))
			}},
		{name: seqRead, about: "read it in 1 MiB, cold", metric: bench.Bandwidth, size: bench.MiB,
			cold: true, run: func(ctx context.Context, e *env) (outcome, error) {
				return e.jobs(ctx, file(jobRead, e))
			}},
		{name: randomRead, about: "read 4 KiB of it at random, with O_DIRECT, by 16 jobs",
			metric: bench.Rate, size: 4 * bench.KiB, depth: s.RandomJobs,
			run: func(ctx context.Context, e *env) (outcome, error) {
				var all []Job
				for i := range e.sizes.RandomJobs {
					j := file(jobRandom, e)
					j.Block, j.For, j.Seed = 4*bench.KiB, e.sizes.RandomFor, uint64(i)
					all = append(all, j)
				}
				return e.jobs(ctx, all...)
			}},
	}
}

func jobSteps(s *Sizes) []*step {
	files := func(ctx context.Context, e *env, kind string) (outcome, error) {
		var all []Job
		for i := range e.sizes.Jobs {
			all = append(all, Job{Kind: kind, Path: e.path(fmt.Sprintf("file%d", i)), Block: bench.MiB,
				Bytes: e.sizes.JobBytes, Seed: uint64(i)})
		}
		return e.jobs(ctx, all...)
	}
	return []*step{
		{name: jobsWrite, about: "four jobs: each writes a file in 1 MiB, and syncs it",
			metric: bench.Bandwidth, size: bench.MiB, depth: s.Jobs, makes: true,
			run: func(ctx context.Context, e *env) (outcome, error) { return files(ctx, e, jobWrite) }},
		{name: jobsRead, about: "four jobs: each reads a file in 1 MiB, cold",
			metric: bench.Bandwidth, size: bench.MiB, depth: s.Jobs, cold: true,
			run: func(ctx context.Context, e *env) (outcome, error) { return files(ctx, e, jobRead) }},
	}
}
