package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLogsOfDetachedProcesses are never written to where another user wants them.
func TestLogsOfDetachedProcesses(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	victim := filepath.Join(tmp, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	link, hard := filepath.Join(tmp, "link.log"), filepath.Join(tmp, "hard.log")
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(victim, hard); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(tmp, "foreign.log")
	if err := os.WriteFile(foreign, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	bad := []string{link, hard, tmp}
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		bad = append(bad, foreign)
	}
	for _, path := range bad {
		if f, err := openLog(path); err == nil {
			f.Close()
			t.Errorf("%s was opened", path)
		}
	}
	dir, err := ownFolder()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f, err := openLog(filepath.Join(dir, "mount.log"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("line\n"); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if text, err := os.ReadFile(filepath.Join(dir, "mount.log")); string(text) != "line\nline\n" {
		t.Errorf("%q, %v", text, err)
	}
	// Somebody else was there first.
	for _, plant := range []func() error{
		func() error { return os.Chmod(dir, 0o777) },
		func() error { return os.Rename(dir, dir+".moved") },
	} {
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(dir); err != nil {
			if err := os.Symlink(dir+".moved", dir); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := ownFolder(); err == nil {
			t.Errorf("%s is taken for the user's own", got)
		}
	}
}

// TestDetachedMountWritesThroughNoLink starts the program as a user would.
func TestDetachedMountWritesThroughNoLink(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	victim := filepath.Join(tmp, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(tmp, "sluice-mount.log")); err != nil {
		t.Fatal(err)
	}
	cmd := newMount()
	// Nobody listens there, so that the process in the background ends at once: with a word in its
	// log.
	cmd.SetArgs([]string{"-d", "sluice://127.0.0.1:1", filepath.Join(tmp, "mnt")})
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{os.Args[0], "-test.run=^$"} // what the process in the background is
	if err := cmd.Execute(); err == nil {
		t.Fatal("mounted nothing")
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Fatalf("the file behind the link has %q, %v", text, err)
	}
}
