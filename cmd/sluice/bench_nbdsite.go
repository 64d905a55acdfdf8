package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	benchnbd "github.com/sluice-storage/sluice/bench/nbd"
	"github.com/sluice-storage/sluice/bench/process"
	"github.com/sluice-storage/sluice/errs"
)

// newBenchAide is a child of bench nbd.
func newBenchAide() *cobra.Command {
	return &cobra.Command{
		Use:    benchnbd.AideCommand,
		Short:  "The null server, the throttled members and the loop of bench nbd",
		Long:   "Answers reads out of one buffer, serves slow members, or moves memory for some time.",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 && args[0] == aideMembers {
				return serveMembers(cmd.Context(), args[1], args[2])
			}
			return benchnbd.ServeAide(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
}

// nbdSite starts servers of sluice for bench nbd.
type nbdSite struct {
	self string
	note func(string)

	up      *process.Daemon // the cluster of the volumes, while one of them is served
	url     string
	dir     string
	volumes int
}

// starters are those of each scene. A way to export something is one line here; those that this
// build does not know are left out.
func (s *nbdSite) starters() map[string][]benchnbd.Starter {
	const file = "file=%s"
	return map[string][]benchnbd.Starter{
		benchnbd.SceneTmpfs: {s.file(benchnbd.Sluice, file), s.file("cached", file+",mode=cached")},
		benchnbd.SceneDisk: {s.file(benchnbd.Sluice, file), s.file("cached", file+",mode=cached"),
			s.file("direct", file+",mode=direct"), s.file("cached-writes", file+",mode=cached-writes")},
		benchnbd.SceneMemory: {{Name: benchnbd.Sluice,
			Start: func(ctx context.Context, at benchnbd.Place) (*benchnbd.Server, error) {
				return s.serve(ctx, at, fmt.Sprintf("mem=%d", at.Bytes))
			}}},
		benchnbd.SceneStreams: {s.streams(benchnbd.Multiple), s.streams("single"),
			s.streams(benchnbd.Plain)},
		benchnbd.SceneVolume: {s.volume(4), s.volume(2), s.volume(1), s.cached()},
	}
}

// file serves the file that the bench has made.
func (s *nbdSite) file(name, form string) benchnbd.Starter {
	return benchnbd.Starter{Name: name, File: true,
		Start: func(ctx context.Context, at benchnbd.Place) (*benchnbd.Server, error) {
			return s.serve(ctx, at, fmt.Sprintf(form, at.File))
		}}
}

// cached is what volumes are held against.
func (s *nbdSite) cached() benchnbd.Starter {
	return benchnbd.Starter{Name: benchnbd.Cached, File: true,
		Start: func(ctx context.Context, at benchnbd.Place) (*benchnbd.Server, error) {
			srv, err := s.serve(ctx, at, "file="+at.File+",mode=cached")
			if errs.KindOf(err) == errs.Unsupported {
				s.note("files have no modes here: cached is a file in the kernel's cache")
				return s.serve(ctx, at, "file="+at.File)
			}
			return srv, err
		}}
}

// serve starts `sluice nbd` for one export.
func (s *nbdSite) serve(ctx context.Context, at benchnbd.Place, what string, extra ...string) (
	*benchnbd.Server, error) {
	export := "name=" + benchnbd.ExportName + "," + what
	if _, err := parseExport(export); err != nil {
		return nil, errs.New(errs.Unsupported, "bench nbd", what, err)
	}
	admin := filepath.Join(at.Dir, "admin")
	args := append([]string{"nbd", "--listen", "unix:" + benchnbd.Socket(at), "--export", export,
		"--admin", "127.0.0.1:0", "--admin-file", admin}, extra...)
	srv, err := benchnbd.StartOn(ctx, at, s.self, args...)
	if err != nil {
		return nil, err
	}
	srv.States = func(write bool) (map[string]float64, float64, error) {
		return readStates(ctx, admin, write)
	}
	return srv, nil
}

// readStates asks a server's metrics where the time of requests goes.
func readStates(ctx context.Context, adminFile string, write bool) (sums map[string]float64,
	watched float64, err error) {
	addr, err := os.ReadFile(adminFile)
	if err != nil {
		return nil, 0, err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(limited, http.MethodGet,
		"http://"+strings.TrimSpace(string(addr))+"/metrics", nil)
	if err != nil {
		return nil, 0, err
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, 0, err
	}
	defer r.Body.Close()
	what := "read"
	if write {
		what = "write"
	}
	found := map[string]float64{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		part, ok := strings.CutPrefix(name, "sluice_nbd_export_"+what+"_")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			found[strings.TrimSuffix(part, "_total")] = n
		}
	}
	sums = map[string]float64{}
	for _, s := range benchnbd.States() {
		sums[s] = found[s+"_seconds"]
	}
	return sums, found["sampled"], nil
}

// volume is one over so many servers of a cluster of four, which all of them share. Its processor
// time is that of the gateway and of the whole cluster: of the others nobody asks anything
// meanwhile.
func (s *nbdSite) volume(servers int) benchnbd.Starter {
	name := benchnbd.Volume(servers)
	return benchnbd.Starter{Name: name,
		Start: func(ctx context.Context, at benchnbd.Place) (*benchnbd.Server, error) {
			if err := s.startCluster(ctx, filepath.Dir(at.Dir)); err != nil {
				return nil, err
			}
			s.volumes++
			c := &cluster{dir: s.dir}
			srv, err := s.serveVolume(ctx, at, servers, []string{"--url", s.url, "--secret", c.secretFile()})
			if err != nil {
				return nil, errors.Join(err, s.release())
			}
			end := srv.Close
			srv.Pids = append(srv.Pids, s.up.Pid())
			srv.Close = func() error { return errors.Join(end(), s.release()) }
			return srv, nil
		}}
}

func (s *nbdSite) serveVolume(ctx context.Context, at benchnbd.Place, servers int,
	reach []string) (*benchnbd.Server, error) {
	name := benchnbd.Volume(servers)
	args := append([]string{"volume", "create", "--width", fmt.Sprint(servers), name,
		fmt.Sprint(at.Bytes)}, reach...)
	if out, err := exec.CommandContext(ctx, s.self, args...).CombinedOutput(); err != nil {
		return nil, errs.Newf(errs.IO, "bench nbd", name, "%v: %s", err, out)
	}
	return s.serve(ctx, at, "volume="+name, reach...)
}

// startCluster starts the cluster unless it runs.
func (s *nbdSite) startCluster(ctx context.Context, dir string) (err error) {
	if s.up != nil {
		return nil
	}
	s.dir = filepath.Join(dir, "cluster")
	c := &cluster{dir: s.dir}
	s.up, err = process.Start(filepath.Join(dir, "up.log"), nil, s.self, "up", "--dir", s.dir,
		"--listen", "127.0.0.1:0", "--iods", "4", "--admin", adminOff)
	if err != nil {
		return err
	}
	return s.up.Await(ctx, "the cluster", func() bool {
		s.url = c.readUp().URL
		return s.url != ""
	})
}

// release ends the cluster with its last volume.
func (s *nbdSite) release() error {
	if s.volumes--; s.volumes > 0 {
		return nil
	}
	up := s.up
	s.up = nil
	return up.Stop()
}
