package mount

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/wait"
	"github.com/sluice-storage/sluice/meta"
)

// slowOpens is a metadata service that keeps some openings until their callers give up. Every other
// one has been done by then; the rest are done afterwards.
type slowOpens struct {
	meta.Service
	most atomic.Int64 // how many are kept
	kept atomic.Int64
	left atomic.Int64 // openings that are not over
}

func (s *slowOpens) open(ctx context.Context, do func(context.Context) (meta.Handle, error)) (
	meta.Handle, error) {
	s.left.Add(1) // before it counts as kept: the test waits for all of these
	n := s.kept.Add(1)
	if n > s.most.Load() {
		defer s.left.Add(-1)
		return do(ctx)
	}
	far := context.WithoutCancel(ctx)
	if n%2 == 0 {
		_, _ = do(far)
		<-ctx.Done()
		s.left.Add(-1)
	} else {
		<-ctx.Done()
		go func() {
			defer s.left.Add(-1)
			time.Sleep(time.Duration(n*10) * time.Millisecond)
			_, _ = do(far)
		}()
	}
	return meta.Handle{}, errs.Wrap("slow", "", ctx.Err())
}

func (s *slowOpens) Open(ctx context.Context, c meta.Caller, ino meta.Ino, flags meta.OpenFlags) (
	meta.Handle, error) {
	return s.open(ctx, func(ctx context.Context) (meta.Handle, error) {
		return s.Service.Open(ctx, c, ino, flags)
	})
}

func (s *slowOpens) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {
	return s.open(ctx, func(ctx context.Context) (meta.Handle, error) {
		return s.Service.Create(ctx, c, dir, name, f, flags)
	})
}

// TestInterruptedOpensLeaveNoHandle: programs that are interrupted or killed while they open or
// create files, in whatever state that is, leave nothing open at the metadata service.
func TestInterruptedOpensLeaveNoHandle(t *testing.T) {
	c := newCluster(t, 2)
	svc := &slowOpens{Service: c.meta}
	fs, err := client.New(svc, c.data, client.Options{WaitMax: time.Minute,
		Cache: -1}) // so that every opening asks
	must(t, err)
	dir := t.TempDir()
	m, err := Mount(context.Background(), fs, dir, Options{})
	must(t, err)
	// A small file would be opened without asking anybody.
	must(t, os.WriteFile(filepath.Join(dir, "f"), make([]byte, 1<<20), 0o644))
	svc.kept.Store(0)
	const rounds = 3
	svc.most.Store(4 * rounds)
	var all []*exec.Cmd
	for i := range rounds {
		for _, script := range []string{"trap 'exit 3' INT; : <f", ": <f",
			"trap 'exit 3' INT; : >new", ": >new"} {
			// Each has its own folder, which the kernel locks while a file is made in it. It goes there
			// by itself: this process, which serves the mount, cannot do so while it starts another.
			own := filepath.Join(dir, fmt.Sprint(i, len(all)))
			cmd := exec.Command("sh", "-c", "cd '"+own+"'; "+script)
			must(t, os.Mkdir(own, 0o755))
			must(t, os.Link(filepath.Join(dir, "f"), filepath.Join(own, "f")))
			must(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			all = append(all, cmd)
		}
	}
	await := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	await("not all programs wait", func() bool { return svc.kept.Load() >= 4*rounds })
	for _, cmd := range all {
		must(t, cmd.Process.Signal(syscall.SIGINT))
	}
	for _, cmd := range all {
		_ = cmd.Wait()
	}
	await("openings do not end", func() bool { return svc.left.Load() == 0 })
	await("there are handles that nobody has", func() bool {
		st, err := c.meta.Status()
		must(t, err)
		return st.Handles == 0
	})
	must(t, c.meta.Verify(context.Background(), func(problem string) { t.Error(problem) }))
	must(t, m.Unmount())
	must(t, fs.Close())
}

// TestRequestsAreWatchedWhenTheyWait: a request that nobody waits for starts nothing, and one that
// does ends with its process.
func TestRequestsAreWatchedWhenTheyWait(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	must(t, cmd.Start())
	b, cancel := &bridge{}, make(chan struct{})
	h := &fuse.InHeader{Caller: fuse.Caller{Pid: uint32(cmd.Process.Pid)}}
	ctx := b.request(cancel, h)
	defer ctx.end()
	free := make(chan struct{}, 1)
	free <- struct{}{}
	if _, ok := wait.For(ctx, free); !ok || ctx.timer != nil {
		t.Error("what is free was waited for")
	}
	close(cancel) // some signal, which is not one to stop
	go func() {
		time.Sleep(50 * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, ok := wait.For(ctx, free); ok || errs.KindOf(ctx.Err()) != errs.Canceled {
		t.Errorf("it has ended with %v", ctx.Err())
	}
	derived, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	if derived.Err() == nil {
		t.Error("what belongs to it goes on")
	}
}

// TestSignalsDoNotEndChanges: fsync, and what changes names or attributes, goes on whatever signals
// its program catches; a read ends with some of them, and a wait for a lock with more.
func TestSignalsDoNotEndChanges(t *testing.T) {
	for _, row := range []struct {
		name   string
		after  time.Duration
		signal syscall.Signal
		ends   bool
	}{
		{"fsync, interrupted", stopNever, syscall.SIGINT, false},
		{"fsync, timer", stopNever, syscall.SIGALRM, false},
		{"fsync, killed", stopNever, syscall.SIGKILL, true},
		{"read, interrupted", stopAfter, syscall.SIGINT, true},
		{"read, timer", stopAfter, syscall.SIGALRM, false},
		{"read, read your configuration again", stopAfter, syscall.SIGHUP, false},
		{"lock, timer", 0, syscall.SIGALRM, true},
		{"lock, of the program's own", 0, syscall.SIGUSR2, true},
		{"read, of the program's own", stopAfter, syscall.SIGUSR2, false},
		{"lock, something else", 0, syscall.SIGURG, false},
	} {
		killed, stop := wished(1<<(row.signal-1), row.after)
		if (killed || stop) != row.ends {
			t.Errorf("%s: killed %v, stopped %v", row.name, killed, stop)
		}
	}
}
