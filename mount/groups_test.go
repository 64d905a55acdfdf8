package mount

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/meta"
)

// earlier is a metadata service that has a file made by another member of the group just before
// somebody else makes it.
type earlier struct {
	meta.Service
	mode atomic.Uint32 // of that file, the next time; 0: not
}

func (s *earlier) Create(ctx context.Context, c meta.Caller, dir meta.Ino, name string,
	f meta.NewFile, flags meta.OpenFlags) (meta.Handle, error) {
	if mode := s.mode.Swap(0); mode != 0 {
		member := meta.Caller{Cred: meta.Cred{UID: 6, GID: 55}}
		_, err := s.Make(ctx, member, dir, name, meta.NewFile{Type: meta.Regular, Mode: mode})
		if err != nil {
			return meta.Handle{}, err
		}
	}
	return s.Service.Create(ctx, c, dir, name, f, flags)
}

// TestGroupsCount: a program may make files where only one of its supplementary groups may, and
// open one that somebody else of the group was faster to make.
func TestGroupsCount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be others")
	}
	c := newCluster(t, 1)
	svc := &earlier{Service: c.meta}
	fs, err := client.New(svc, c.data, client.Options{WaitMax: 5 * time.Second, TellLater: -1})
	must(t, err)
	dir, err := os.MkdirTemp("", "sluice-mount-")
	must(t, err)
	m, err := Mount(context.Background(), fs, dir, Options{AllowOther: true})
	must(t, err)
	defer func() {
		must(t, m.Unmount())
		must(t, fs.Close())
		must(t, os.Remove(dir))
	}()
	must(t, os.Chmod(dir, 0o777))
	team, own := filepath.Join(dir, "team"), filepath.Join(dir, "own")
	must(t, os.Mkdir(team, 0o700))
	must(t, os.Chown(team, 6, 55))
	must(t, os.Chmod(team, 0o770))
	must(t, os.Mkdir(own, 0o700))
	must(t, os.Chown(own, 7, 7))
	must(t, os.Chmod(own, 0o777))
	as := func(script string, groups ...uint32) error {
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: 7, Gid: 7, Groups: groups}}
		return cmd.Run()
	}
	svc.mode.Store(0o660)
	must(t, as("echo x >>"+own+"/raced", 55)) // its own directory, and another one's file
	svc.mode.Store(0o600)
	if as("echo x >>"+own+"/other", 55) == nil {
		t.Error("a file that somebody else was faster to make can be opened by whom it refuses")
	}
	svc.mode.Store(0o600)
	cmd := exec.Command("setpriv", "--reuid", "7", "--clear-groups", "--inh-caps", "+dac_override",
		"--ambient-caps", "+dac_override", "sh", "-c", "echo x >>"+own+"/third")
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("with CAP_DAC_OVERRIDE: %v: %s", err, out)
	}
	must(t, as("echo x >"+team+"/f && mkdir "+team+"/d", 55))
	if err := as("echo x >" + team + "/g"); errs.KindOf(err) == errs.OK {
		t.Error("somebody else has made a file in the directory of the group")
	}
}
