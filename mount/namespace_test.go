package mount

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnmountFromAnotherNameSpace: a program that has a copy of all mounts in a name space of its
// own, as containers have, does not keep a mount from ending.
func TestUnmountFromAnotherNameSpace(t *testing.T) {
	c := newCluster(t, 1)
	m := c.mount(Options{})
	must(t, os.WriteFile(filepath.Join(m.Dir(), "f"), []byte("x"), 0o644))
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Skip("no name spaces here: ", err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	must(t, m.Unmount())
}
