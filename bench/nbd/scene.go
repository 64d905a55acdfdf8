package nbd

import (
	"context"
	"strings"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/bench/process"
)

// Those who are measured in several scenes.
const (
	Sluice    = "sluice" // a file, in the mode that an export has if none is named
	Null      = "null"   // the ceiling
	Qemu      = "qemu-nbd"
	QemuOwn   = "qemu-nbd-direct" // past the kernel's cache
	Nbdkit    = "nbdkit"
	NbdServer = "nbd-server"
)

// The scenes.
const (
	SceneTmpfs   = "tmpfs"   // files in memory
	SceneDisk    = "disk"    // files on a disk
	SceneMemory  = "memory"  // exports in memory
	SceneVolume  = "volume"  // volumes over I/O servers of this host
	SceneStreams = "streams" // throttled members, with and without synchronized sends
)

// Kind tells what others are held against.
type Kind uint8

// The kinds.
const (
	Ours Kind = iota
	Peer
	Ceiling
)

// Where says on what the data of a scene lies.
type Where uint8

// The places.
const (
	OnDisk Where = iota
	InMemory
)

// Place is what a server has for itself.
type Place struct {
	Dir   string // for its socket, its log and whatever it needs
	File  string // its device, all of it allocated; "": it asked for none
	Bytes int64  // of the device
}

// Server is one that runs.
type Server struct {
	URI   string
	Pids  []int // of its processes; their children count with them
	Close func() error

	// States are running sums of where the time of requests goes, in seconds by state, and how many
	// requests were watched. nil: the server does not tell.
	States func(write bool) (sum map[string]float64, watched float64, err error)
}

// Starter starts a server. errs.Unsupported means that this build does not know such a thing.
type Starter struct {
	Name     string
	Kind     Kind
	File     bool     // it serves a file that the bench makes
	Programs []string // that must be installed
	Packages []string // that have them
	Start    func(ctx context.Context, at Place) (*Server, error)
}

// missing says why a server cannot start, or nothing.
func (s *Starter) missing() string {
	var absent []string
	for _, p := range s.Programs {
		if _, err := process.Find(p); err != nil {
			absent = append(absent, p)
		}
	}
	if absent == nil {
		return ""
	}
	return "there is no " + strings.Join(absent, ", no ") + " here; install the package " +
		strings.Join(s.Packages, ", ")
}

// Scene is servers that are measured together.
type Scene struct {
	Name, About string
	Place       Where
	Starters    []Starter
	Peers       bool     // what is promised against peers is promised here
	Usual       []string // the columns that are measured unless others are chosen
}

// columns are all workloads of the scene, the usual ones marked.
func (s *Scene) columns() []workload {
	all := matrix()
	for i := range all {
		for _, name := range s.Usual {
			all[i].usual = all[i].usual || all[i].name() == name
		}
	}
	return all
}

func (s *Scene) caseName(w *workload) string { return s.Name + "-" + w.name() }

func (s *Scene) caseOf(w *workload) bench.Case {
	c := bench.Case{Bench: "nbd", Name: s.caseName(w), Metric: w.metric(), Size: w.size,
		Depth: w.depth, First: w.usual, About: w.about() + ": " + s.About}
	return c
}

// List is all cases of scenes; First marks those that are measured unless others are chosen.
func List(scenes []*Scene) (all []bench.Case) {
	for _, s := range scenes {
		for _, w := range s.columns() {
			all = append(all, s.caseOf(&w))
		}
	}
	return all
}

// files are the columns of servers that serve files.
func files() []string {
	return []string{"read-1m-d1", "read-1m-d4", "read-4m-d4", "read-256k-d8", "read-64k-d16",
		"read-1m-d4-c2", "read-1m-d4-c4", "randread-4k-d1", "randread-4k-d16", "randread-4k-d32",
		"randread-4k-d16-c4", "write-1m-d1", "write-1m-d4", "write-4m-d4", "write-64k-d16",
		"write-1m-d4-c4", "randwrite-4k-d1", "randwrite-4k-d16", "randwrite-4k-d16-c4",
		"randwrite-4k-d16-flush"}
}

// QuickCases are patterns of the few that a quick run measures.
func QuickCases() []string {
	return []string{".*-read-1m-d4", ".*-write-1m-d4", ".*-randread-4k-d16",
		SceneStreams + "-read-1m-d1"}
}

// Scenes are all of them, with the servers of sluice that package main can start: by scene.
func Scenes(self string, ours map[string][]Starter) []*Scene {
	null := startNull(self)
	mix := func(name string, others ...Starter) []Starter {
		return append(append(append([]Starter{}, ours[name]...), others...), null)
	}
	all := []*Scene{
		{Name: SceneTmpfs, About: "a file in memory", Place: InMemory, Peers: true, Usual: files(),
			Starters: mix(SceneTmpfs, startQemu(false), startNbdkit(), startNbdServer())},
		{Name: SceneDisk, About: "a file on a disk", Peers: true, Usual: append(files(), besideName),
			Starters: mix(SceneDisk, startQemu(false), startQemu(true), startNbdkit(), startNbdServer())},
		{Name: SceneMemory, About: "an export in memory", Starters: mix(SceneMemory, startMemory()),
			Usual: []string{"read-1m-d4", "read-1m-d16", "read-1m-d4-c4", "randread-4k-d16",
				"write-1m-d4", "randwrite-4k-d16"}},
		{Name: SceneVolume, About: "volumes over I/O servers of this host, beside a local file",
			Starters: mix(SceneVolume), Usual: []string{"read-1m-d1", "read-1m-d4", "write-1m-d4",
				"randread-4k-d1", "randread-4k-d16", "randwrite-4k-d1", "randwrite-4k-d16",
				"randread-4k-d16-c4"}},
		{Name: SceneStreams, About: "direct reads of throttled members, chunks sent as they come or not",
			Place: InMemory, Starters: ours[SceneStreams],
			Usual: []string{"read-1m-d1", "read-1m-d4", "read-4m-d1"}},
	}
	return all
}
