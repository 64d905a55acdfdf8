package mount

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-storage/sluice/bench/process"
)

// The systems.
const (
	Sluice  = "sluice"
	Memory  = "memory" // the ceiling: a FUSE file system that serves memory
	Local   = "local"  // the disk that all of them use
	Gluster = "glusterfs"
	Moose   = "moosefs"
)

// Names are those of all systems, in the order in which they are shown.
func Names() []string { return []string{Sluice, Memory, Local, Gluster, Moose} }

// System is a mounted file system that runs. One goroutine uses it.
type System interface {
	Name() string
	Dir() string // where it is mounted

	// Cold forgets what the client knows, by mounting it anew; with servers, what the servers know
	// too. The kernel's caches are the bench's business.
	Cold(ctx context.Context, servers bool) error

	Pids() []int  // of its processes; their children count with them
	Close() error // ends all processes and takes the mount away, even of a system that hangs
}

// Starter starts a system.
type Starter struct {
	Name     string
	Peer     bool     // others are held against it; it may be missing
	Programs []string // that must be installed
	Packages []string // that have them
	Root     bool     // only root can start it

	// Start begins in an empty folder of its own.
	Start func(ctx context.Context, dir string) (System, error)
}

// Peers start the file systems that sluice is compared with. reach is an address of this host at
// which their servers listen; MooseFS refuses 127.0.0.1: without another address it is left out.
func Peers(reach string) []Starter {
	return []Starter{
		{Name: Gluster, Peer: true, Root: true, Programs: []string{"glusterfsd", "glusterfs"},
			Packages: []string{"glusterfs-server", "glusterfs-client"}, Start: startGluster},
		{Name: Moose, Peer: true, Root: true,
			Programs: []string{"mfsmaster", "mfschunkserver", "mfsmount", "mfssetgoal"},
			Packages: []string{"moosefs-master", "moosefs-chunkserver", "moosefs-client"},
			Start: func(ctx context.Context, dir string) (System, error) {
				return startMoose(ctx, dir, reach)
			}},
	}
}

// missing says why a system cannot start, or nothing.
func (s *Starter) missing() string {
	var absent []string
	for _, p := range s.Programs {
		if _, err := process.Find(p); err != nil {
			absent = append(absent, p)
		}
	}
	switch {
	case absent != nil:
		return "there is no " + strings.Join(absent, ", no ") + " here; install the packages " +
			strings.Join(s.Packages, ", ")
	case s.Root && os.Geteuid() != 0:
		return "only root can start it"
	}
	return ""
}

func subFolder(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.Mkdir(path, 0o755)
}
