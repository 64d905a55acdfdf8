package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	benchmount "github.com/sluice-storage/sluice/bench/mount"
	"github.com/sluice-storage/sluice/bench/process"
)

// newBenchJob is the driver of bench mount: a process that makes system calls.
func newBenchJob() *cobra.Command {
	return &cobra.Command{
		Use:    benchmount.JobCommand,
		Short:  "A worker of bench mount",
		Long:   "Does the work that standard input asks for, in one thread.",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return benchmount.ServeJob(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// starters are the systems that were asked for.
func (f *mountBenchFlags) starters(self string) []benchmount.Starter {
	all := append([]benchmount.Starter{
		{Name: benchmount.Sluice, Start: func(ctx context.Context, dir string) (
			benchmount.System, error) {
			return startMounted(ctx, self, dir, 0, f.note)
		}},
		{Name: benchmount.Memory, Start: func(_ context.Context, dir string) (
			benchmount.System, error) {
			return startInMemory(f.cmd.Context(), dir) // it lives longer than its start
		}},
		benchmount.StartLocal(f.note),
	}, benchmount.Peers(f.reach)...)
	if len(f.systems) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(s benchmount.Starter) bool {
		return !slices.Contains(f.systems, s.Name)
	})
}

// startLong is sluice with a mount whose memory is bounded.
func (f *mountBenchFlags) startLong(self string, limit int64) benchmount.Starter {
	return benchmount.Starter{Name: "long", Start: func(ctx context.Context, dir string) (
		benchmount.System, error) {
		return startMounted(ctx, self, dir, limit, f.note)
	}}
}

// mountedSystem is a cluster and its mount, each a process of its own, so that the mount can be
// started anew alone.
type mountedSystem struct {
	self, dir string
	memory    int64 // of the mount; 0: as it likes
	note      func(string)
	up, mount *process.Daemon
	limit     *benchmount.Limit
	url       string
}

func startMounted(ctx context.Context, self, dir string, memory int64,
	note func(string)) (benchmount.System, error) {
	s := &mountedSystem{self: self, dir: dir, memory: memory, note: note}
	err := s.startUp(ctx)
	if err == nil {
		err = s.startMount(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *mountedSystem) Name() string { return benchmount.Sluice }

func (s *mountedSystem) Dir() string { return filepath.Join(s.dir, "mnt") }

func (s *mountedSystem) cluster() *cluster { return &cluster{dir: filepath.Join(s.dir, "cluster")} }

func (s *mountedSystem) Pids() (pids []int) {
	for _, d := range []*process.Daemon{s.up, s.mount} {
		if d != nil {
			pids = append(pids, d.Pid())
		}
	}
	return pids
}

// MountPid tells the mount from the servers.
func (s *mountedSystem) MountPid() int { return s.mount.Pid() }

func (s *mountedSystem) startUp(ctx context.Context) (err error) {
	c := s.cluster()
	s.up, err = process.Start(filepath.Join(s.dir, "up.log"), nil, s.self, "up", "--dir",
		c.dir, "--listen", "127.0.0.1:0", "--iods", "4", "--admin", adminOff)
	if err != nil {
		return err
	}
	return s.up.Await(ctx, "the cluster", func() bool {
		s.url = c.readUp().URL
		return s.url != ""
	})
}

func (s *mountedSystem) startMount(ctx context.Context) (err error) {
	var env []string
	if s.memory > 0 {
		// Go collects when this is reached, an eighth before the kernel ends the process.
		env = []string{fmt.Sprintf("GOMEMLIMIT=%d", s.memory-s.memory/8)}
	}
	s.mount, err = process.Start(filepath.Join(s.dir, "mount.log"), env, s.self, "mount",
		"--secret", s.cluster().secretFile(), s.url, s.Dir())
	if err != nil {
		return err
	}
	if s.memory > 0 {
		if s.limit, err = benchmount.SetLimit(s.mount.Pid(), s.memory); err != nil {
			s.note(fmt.Sprintf("the mount's memory is not bounded by the kernel: %v", err))
		}
	}
	return s.mount.Await(ctx, "the mount", func() bool {
		mounted, err := isMountpoint(s.Dir())
		return err == nil && mounted
	})
}

func (s *mountedSystem) stopMount() error {
	if s.limit != nil {
		s.note(fmt.Sprintf("the most that was charged to the mount: %d MiB of %d", s.limit.Peak()>>20,
			s.memory>>20))
	}
	err := errors.Join(s.mount.Stop(), s.limit.Close())
	s.mount, s.limit = nil, nil
	if _, e := freeMountpoint(s.Dir()); e != nil { // of one that had to be killed
		err = errors.Join(err, e)
	}
	return err
}

func (s *mountedSystem) Cold(ctx context.Context, servers bool) error {
	if err := s.stopMount(); err != nil {
		return err
	}
	if servers {
		if err := s.up.Stop(); err != nil {
			return err
		}
		if err := s.startUp(ctx); err != nil {
			return err
		}
	}
	return s.startMount(ctx)
}

func (s *mountedSystem) Close() error {
	err := s.stopMount()
	return errors.Join(err, s.up.Stop())
}

// memorySystem is the ceiling, served by a process of its own.
type memorySystem struct {
	dir     string
	peer    *benchPeer
	unmount func()
}

func startInMemory(ctx context.Context, dir string) (benchmount.System, error) {
	m := &memorySystem{dir: filepath.Join(dir, "mnt")}
	if err := os.Mkdir(m.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if m.peer, err = startPeer(ctx); err != nil {
		return nil, err
	}
	if m.unmount, err = m.peer.mountMemory(ctx, m.dir); err != nil {
		m.peer.stop()
		return nil, err
	}
	return m, nil
}

func (m *memorySystem) Name() string { return benchmount.Memory }

func (m *memorySystem) Dir() string { return m.dir }

func (m *memorySystem) Pids() []int { return []int{m.peer.cmd.Process.Pid} }

// Cold has nothing to forget but what the kernel knows: mounted anew it would have no files.
func (m *memorySystem) Cold(context.Context, bool) error { return nil }

func (m *memorySystem) Close() error {
	m.unmount()
	m.peer.stop()
	_, err := freeMountpoint(m.dir)
	return err
}
