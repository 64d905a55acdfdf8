package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	benchmeta "github.com/sluice-storage/sluice/bench/meta"
	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/internal/supervise"
	"github.com/sluice-storage/sluice/kv/pebblekv"
)

// metaSite is a cluster that a bench has started, and a client of it.
type metaSite struct {
	dir  string // the cluster's folder
	up   *exec.Cmd
	conn *connection
	ask  *metaConnection
	url  string
	pids map[string]int // by the process' name
}

// startMetaSite starts a cluster with its data on disk, in dir, and a client that reaches it by the
// providers of by.
func startMetaSite(ctx context.Context, dir string, by *providersFlag) (*metaSite, error) {
	s := &metaSite{dir: dir}
	args := append([]string{"up", "--dir", dir, "--listen", "127.0.0.1:0", "--iods", "2"},
		by.args()...)
	var err error
	if s.up, s.url, err = startBenchUp(ctx, dir, args); err != nil {
		return nil, err
	}
	if err := s.connect(ctx, by); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *metaSite) connect(ctx context.Context, by *providersFlag) (err error) {
	c, err := openCluster(s.dir)
	if err != nil {
		return err
	}
	own := by.within(c)
	if s.ask, err = dialMeta(ctx, s.url, own); err != nil {
		return err
	}
	if s.conn, err = dialBy(ctx, s.url, own, client.Options{}); err != nil {
		return err
	}
	st, err := supervise.ReadState(c.stateFile())
	s.pids = map[string]int{}
	for _, p := range st.Processes {
		s.pids[p.Name] = p.PID
	}
	return err
}

// stop ends what was started.
func (s *metaSite) stop() error {
	if s.conn != nil {
		s.conn.close()
		s.conn = nil
	}
	if s.ask != nil {
		s.ask.close()
		s.ask = nil
	}
	if s.up != nil {
		stopChild(s.up)
		s.up = nil
	}
	return nil
}

// site is what bench meta sees of it.
func (s *metaSite) site() (*benchmeta.Site, error) {
	idle, err := s.memory()
	return &benchmeta.Site{FS: s.conn.fs, CPU: s.cpu, Requests: s.requests, Memory: s.memory,
		Idle: idle, Compact: s.compact, Crowd: s.crowd}, err
}

// cpu adds up the processor time of the service, and of the I/O servers.
func (s *metaSite) cpu() (service, servers time.Duration, err error) {
	for name, pid := range s.pids {
		used, err := cpuOf(pid)
		if err != nil {
			return 0, 0, err
		}
		if name == "meta" {
			service += used
		} else {
			servers += used
		}
	}
	return service, servers, nil
}

// ticks is in how many parts of a second /proc counts, on every architecture that Go knows.
const ticks = 100

// cpuOf is the processor time of a process, threads that have ended included.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The name of the program is in brackets and may contain anything; utime and stime are the 12th
	// and 13th field behind it.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, errs.Newf(errs.Unsupported, "bench meta", "", "/proc/%d/stat is %q", pid, text)
	}
	var sum int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// memory is the resident memory of the service.
func (s *metaSite) memory() (int64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.pids["meta"]), "statm"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, errs.Newf(errs.Unsupported, "bench meta", "", "statm is %q", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// requests counts what clients have asked: not what I/O servers tell the service by themselves.
func (s *metaSite) requests(ctx context.Context) (names, data uint64, err error) {
	st, err := askMeta(ctx, s.ask.net, strings.TrimPrefix(s.url, scheme+"//"))
	if err != nil {
		return 0, 0, err
	}
	for _, o := range st.Ops {
		switch strings.ToLower(o.Op) {
		case "join", "time", "servers": // servers' heartbeats, and this bench's own questions
		default:
			names += o.Calls
		}
	}
	servers, err := s.ask.meta.Servers(ctx)
	if err != nil {
		return 0, 0, err
	}
	list := adminServers(servers)
	askServers(ctx, s.ask.net, list, servers)
	for _, one := range list {
		for _, c := range one.Counts {
			op, ok := strings.CutPrefix(c.Name, "requests_")
			if ok && op != "running" && op != "status" && op != "list" { // status is this question
				data += c.Value
			}
		}
	}
	return names, data, nil
}

// compact ends the cluster, compacts its metadata and adds up its tables.
func (s *metaSite) compact(ctx context.Context) (bytes int64, err error) {
	if err := s.stop(); err != nil {
		return 0, err
	}
	dir := (&cluster{dir: s.dir}).metaDir()
	sizes := boundMeta().kv
	sizes.Dir = dir
	db, err := pebblekv.Open(sizes)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(db.Compact(ctx), db.Close()); err != nil {
		return 0, err
	}
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".sst" {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}
