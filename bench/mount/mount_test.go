package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/bench"
)

// TestMain makes the test binary a worker when it is called as one, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == JobCommand {
		if err := ServeJob(os.Stdin, os.Stdout); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

func tiny() Sizes {
	return Sizes{FileBytes: 3<<20 + 5, JobBytes: 1 << 20, Jobs: 2, RandomJobs: 3,
		RandomFor: 20 * time.Millisecond, TreeFiles: 40, Files: 30, Names: 10, RepoFiles: 12,
		RepoCommits: 3}
}

// TestLocal runs every workload on the local disk: the programs, the workers and the rows are real.
func TestLocal(t *testing.T) {
	var notes []string
	note := func(text string) { notes = append(notes, text) }
	opts := Options{Dir: t.TempDir(), Self: self(t), Rounds: 2, Sizes: tiny(), Note: note}
	rows, err := Run(t.Context(), opts, []Starter{StartLocal(note)})
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(notes, "\n"))
	}
	for _, s := range steps(&opts.Sizes) {
		r := bench.Rows(rows).Find(s.name, Local, "")
		if r == nil || r.Value <= 0 || r.Low > r.Value || r.High < r.Value || r.Metric != s.metric {
			t.Errorf("%s: %+v", s.name, r)
		}
	}
	for _, want := range []struct{ name, metric, unit string }{
		{seqRead, bench.ReaderCPU, bench.PerGiB}, {treeCopy, bench.SystemCPU, bench.PerThousand},
		{treeCopy, bench.ReaderCPU, bench.PerThousand}, {fileCreate, bench.Memory, "MiB"}} {
		if r := bench.Rows(rows).Find(want.name, Local, want.metric); r == nil || r.Unit != want.unit {
			t.Errorf("%v: %+v", want, r)
		}
	}
	left, err := os.ReadDir(filepath.Join(opts.Dir, Local, "mnt"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func self(t *testing.T) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// broken is a local disk that breaks when it shall be cold.
type broken struct {
	*local
	closed int
}

func (b *broken) Name() string { return Gluster }

func (b *broken) Cold(context.Context, bool) error { return errors.New("it broke") }

func (b *broken) Close() error { b.closed++; return nil }

// TestBrokenPeer sees that a system on which something fails is ended and left out, that the others
// go on, and that only sluice's own failure is one of the bench.
func TestBrokenPeer(t *testing.T) {
	var notes []string
	b := &broken{}
	peer := Starter{Name: Gluster, Peer: true, Start: func(ctx context.Context, dir string) (System,
		error) {
		sys, err := StartLocal(func(string) {}).Start(ctx, dir)
		if err == nil {
			b.local = sys.(*local)
		}
		return b, err
	}}
	opts := Options{Dir: t.TempDir(), Self: self(t), Rounds: 2, Sizes: tiny(),
		Choose: func(name string) bool { return name == seqWrite || name == seqRead },
		Note:   func(text string) { notes = append(notes, text) }}
	rows, err := Run(t.Context(), opts, []Starter{StartLocal(func(string) {}), peer})
	if err != nil {
		t.Fatal(err)
	}
	find := bench.Rows(rows).Find
	if find(seqRead, Local, "") == nil || find(seqWrite, Gluster, "") == nil ||
		find(seqRead, Gluster, "") != nil || b.closed != 1 {
		t.Errorf("closed %d times, rows %+v", b.closed, rows)
	}
	if !slices.ContainsFunc(notes, func(s string) bool { return strings.Contains(s, "it broke") }) {
		t.Errorf("nobody was told: %q", notes)
	}
	peer.Peer, opts.Dir = false, t.TempDir()
	if rows, err = Run(t.Context(), opts, []Starter{StartLocal(func(string) {}), peer}); err == nil ||
		bench.Rows(rows).Find(seqRead, Local, "") == nil {
		t.Errorf("%v, rows %+v", err, rows)
	}
}

// TestMissing says what to install.
func TestMissing(t *testing.T) {
	s := Starter{Name: "x", Programs: []string{"no-such-program"}, Packages: []string{"a", "b"}}
	if why := s.missing(); !strings.Contains(why, "no-such-program") ||
		!strings.Contains(why, "install the packages a, b") {
		t.Error(why)
	}
	s.Programs = []string{"sh"}
	if why := s.missing(); why != "" {
		t.Error(why)
	}
}

// TestChosen keeps what has to go before what was asked for, and nothing else.
func TestChosen(t *testing.T) {
	kept, err := chosen(Options{Sizes: tiny(),
		Choose: func(name string) bool { return name == treeAgain || name == fileCreate }})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range kept {
		text := s.name
		for flag, set := range map[string]bool{"<": s.first, ">": s.last} {
			if set {
				text += flag
			}
		}
		if s.hidden {
			text = "(" + text + ")"
		}
		got = append(got, strings.ReplaceAll(text, "><", "<>"))
	}
	want := []string{"(cp-r<)", "(find)", "find-again>", "create-4k<>"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	none := Options{Sizes: tiny(), Choose: func(string) bool { return false }}
	if _, err := chosen(none); err == nil {
		t.Error("nothing was chosen, and nobody said so")
	}
}
