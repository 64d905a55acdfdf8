package mount

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// work has a worker do a job in this process.
func work(t *testing.T, j Job) Done {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := ServeJob(io.MultiReader(bytes.NewReader(text), strings.NewReader("\n\n")),
		&out); err != nil {
		t.Fatal(err)
	}
	var d Done
	for dec := json.NewDecoder(&out); dec.More(); {
		if err := dec.Decode(&d); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestJobsData(t *testing.T) {
	dir := t.TempDir()
	const size = 2<<20 + 4096
	file := Job{Path: filepath.Join(dir, "file"), Block: 1 << 20, Bytes: size, Seed: 3}
	run := func(kind string, more func(*Job)) Done {
		t.Helper()
		j := file
		j.Kind = kind
		if more != nil {
			more(&j)
		}
		return work(t, j)
	}
	if d := run(jobWrite, nil); d.Error != "" || d.Bytes != size || d.Ops != 3 {
		t.Fatalf("%+v", d)
	}
	if d := run(jobRead, nil); d.Error != "" || d.Bytes != size {
		t.Fatalf("%+v", d)
	}
	d := run(jobRandom, func(j *Job) { j.Block, j.For = 4096, 10*time.Millisecond })
	if d.Error != "" || d.Ops == 0 || d.Bytes != d.Ops*4096 {
		t.Fatalf("%+v", d)
	}
	to := func(j *Job) { j.To, j.From, j.Bytes = filepath.Join(dir, "copy"), 1<<20, 1<<20+4096 }
	if d := run(jobCopy, to); d.Error != "" || d.Bytes != 1<<20+4096 {
		t.Fatalf("%+v", d)
	}
	there := func(j *Job) { to(j); j.Path = j.To }
	if d := run(jobCheck, there); d.Error != "" {
		t.Fatalf("%+v", d)
	}
	f, err := os.OpenFile(filepath.Join(dir, "copy"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{1}, 1<<20+8192); err != nil {
		t.Fatal(err)
	}
	if d := run(jobCheck, there); !contains(d.Error, "other data") {
		t.Fatalf("a wrong byte was not found: %+v", d)
	}
	if d := run(jobRead, func(j *Job) { j.Bytes += 4096 }); d.Error == "" {
		t.Fatalf("more than there is was read: %+v", d)
	}
}

func TestJobsNames(t *testing.T) {
	j := Job{Path: t.TempDir(), Files: 7, From: 2, Block: 100}
	do := func(kind string, ops int64) {
		t.Helper()
		j.Kind = kind
		if d := work(t, j); d.Error != "" || d.Ops != ops {
			t.Fatalf("%s: %+v, want %d", kind, d, ops)
		}
	}
	do(jobCreate, 7)
	if info, err := os.Stat(filepath.Join(j.Path, "f0000008")); err != nil || info.Size() != 100 {
		t.Fatalf("%v, %v", info, err)
	}
	do(jobStat, 7)
	do(jobList, 7)
	j.Times = 3
	do(jobOpen, 21)
	j.Times = 0
	do(jobUnlink, 7)
	do(jobList, 0)
	j.Kind = jobStat
	if d := work(t, j); !contains(d.Error, "f0000002") {
		t.Errorf("%+v", d)
	}
	if d := work(t, Job{Kind: "dance"}); d.Error == "" {
		t.Error("a job that nobody knows was done")
	}
}

// TestHangingProgram sees that a program which does not end is ended with its context.
func TestHangingProgram(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	e := &env{home: t.TempDir()}
	if _, err := e.program(ctx, nil, "sleep", "1000"); err == nil {
		t.Error("it ended well")
	}
	if _, err := e.program(t.Context(), nil, "sh", "-c", "echo oh >&2; exit 1"); err == nil ||
		!contains(err.Error(), "oh") {
		t.Errorf("%v", err)
	}
}

func TestTree(t *testing.T) {
	if sizeAt(0) != 1 || sizeAt(50) != 1766 || sizeAt(100) != 2996154 ||
		sizeAt(52.5) != (1766+2251)/2 {
		t.Errorf("%d, %d, %d, %d", sizeAt(0), sizeAt(50), sizeAt(100), sizeAt(52.5))
	}
	dirs := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	for _, dir := range dirs {
		if err := makeTree(dir, 60); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("diff", "-r", dirs[0], dirs[1]).CombinedOutput(); err != nil {
		t.Errorf("the tree is not the same each time: %s", out)
	}
	tr, err := findTreeDir(t.Context(), &Options{Sizes: Sizes{TreeDir: dirs[0]}})
	if err != nil || tr.files != 60 || tr.bytes == 0 || tr.warm() != nil {
		t.Errorf("%+v, %v", tr, err)
	}
}

func TestRepo(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	heads := map[string]bool{}
	for range 2 {
		dir := filepath.Join(t.TempDir(), "r.git")
		if err := makeRepo(t.Context(), dir, 20, 4); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("git", "-C", dir, "rev-parse", "main").Output()
		if err != nil {
			t.Fatal(err)
		}
		heads[string(out)] = true
		out, err = exec.Command("git", "-C", dir, "rev-list", "--count", "main").Output()
		if err != nil || string(out) != "4\n" {
			t.Errorf("%s commits, %v", out, err)
		}
	}
	if len(heads) != 1 {
		t.Errorf("the repository is not the same each time: %v", heads)
	}
}
