package pebblekv

import (
	"io"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// nowhere is a log file that could not be created: it takes everything and keeps nothing. See
// guard.
type nowhere struct{}

func (nowhere) Close() error                           { return nil }
func (nowhere) Read([]byte) (int, error)               { return 0, io.EOF }
func (nowhere) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (nowhere) Write(p []byte) (int, error)            { return len(p), nil }
func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nowhere) Preallocate(_, _ int64) error           { return nil }
func (nowhere) Stat() (vfs.FileInfo, error)            { return noInfo{}, nil }
func (nowhere) Sync() error                            { return nil }
func (nowhere) SyncTo(int64) (bool, error)             { return true, nil }
func (nowhere) SyncData() error                        { return nil }
func (nowhere) Prefetch(_, _ int64) error              { return nil }
func (nowhere) Fd() uintptr                            { return vfs.InvalidFd }

// noInfo describes it: a file without contents.
type noInfo struct{}

func (noInfo) Name() string           { return "" }
func (noInfo) Size() int64            { return 0 }
func (noInfo) Mode() fs.FileMode      { return 0 }
func (noInfo) ModTime() time.Time     { return time.Time{} }
func (noInfo) IsDir() bool            { return false }
func (noInfo) Sys() any               { return nil }
func (noInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
