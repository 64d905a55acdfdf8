package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// newLogger is for processes that stay: their standard error is a file in the cluster's log folder,
// or a terminal, where only trouble is shown.
func newLogger() *slog.Logger {
	level := slog.LevelInfo
	if isTerminal(os.Stderr) {
		level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// openLog opens a log file to be appended to, or makes it. Folders like /tmp are shared with other
// users, who could put something else there under the log's name; so it is refused if it is a link,
// or belongs neither to this user nor to the owner of the folder.
func openLog(path string) (*os.File, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK,
		0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, foreignLog(path, "is a symbolic link")
	}
	if err != nil {
		return nil, err
	}
	var file, folder unix.Stat_t
	if err := errors.Join(unix.Fstat(int(f.Fd()), &file), unix.Stat(dir, &folder)); err != nil {
		f.Close()
		return nil, err
	}
	switch me := uint32(os.Geteuid()); {
	case file.Mode&unix.S_IFMT != unix.S_IFREG:
		err = foreignLog(path, "is no file")
	case file.Nlink > 1:
		err = foreignLog(path, "has another name somewhere else")
	case file.Uid != me && file.Uid != folder.Uid:
		err = foreignLog(path, fmt.Sprint("belongs to user ", file.Uid))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func foreignLog(path, why string) error {
	return refuse("the log "+path+" "+why, "Remove it, or name another file with --log FILE")
}

// ownFolder is a folder for the logs of this user's processes that belong to no cluster's folder.
// Nobody else can put anything into it.
func ownFolder() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("sluice-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.IsDir() || st.Mode().Perm()&0o022 != 0 || int(sys.Uid) != os.Geteuid() {
		return "", refuse(dir+" is not a folder that only this user can write to",
			"Remove it, or say where the output goes with --log FILE")
	}
	return dir, nil
}
