package mpiio

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hang is how long a program may take before it counts as one that stands still.
const hang = 20 * time.Minute

// mpi is one MPI of Debian: how it compiles, and how it starts programs.
type mpi struct {
	name string
	cc   string
	exec []string
	// env is what ranks need to leave the processor to each other: there are more than cores.
	env  []string
	hdf5 string
	pass func(key, value string) []string
}

var mpis = []mpi{
	{
		name: "mpich", cc: "mpicc.mpich", exec: []string{"mpiexec.mpich"}, hdf5: "mpich",
		env:  []string{"MPIR_CVAR_POLLS_BEFORE_YIELD=1"},
		pass: func(key, value string) []string { return []string{"-genv", key, value} },
	},
	{
		name: "ompi", cc: "mpicc.openmpi", hdf5: "openmpi",
		exec: []string{"mpiexec.openmpi", "--allow-run-as-root", "--oversubscribe",
			"--mca", "mpi_yield_when_idle", "1"},
		pass: func(key, value string) []string { return []string{"-x", key + "=" + value} },
	},
}

// rig is a cluster, the client library, and a folder for what is compiled.
type rig struct {
	dir, cluster string
	lib          string
	env          []string
}

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	out, err := tryRun(env, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func tryRun(env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// needMPI skips a test where one of the MPIs is missing.
func needMPI(t *testing.T) {
	t.Helper()
	for _, m := range mpis {
		if _, err := exec.LookPath(m.cc); err != nil {
			t.Skipf("no %s here", m.cc)
		}
	}
}

// start builds the client and starts a cluster of two servers, by sluice up with flags.
func start(t *testing.T, flags ...string) *rig {
	t.Helper()
	b := &rig{dir: t.TempDir()}
	bin := filepath.Join(b.dir, "sluice")
	b.lib = filepath.Join(b.dir, "libsluice.so")
	b.cluster = filepath.Join(b.dir, "cluster")
	run(t, nil, "go", "build", "-o", bin, "../cmd/sluice")
	run(t, []string{"CGO_ENABLED=1"}, "go", "build", "-buildmode=c-shared", "-o", b.lib,
		"../capi/libsluice")
	run(t, nil, bin, append([]string{"up", "-d", "--dir", b.cluster, "--iods", "2",
		"--listen", "127.0.0.1:0"}, flags...)...)
	t.Cleanup(func() { run(t, nil, bin, "down", "--dir", b.cluster) })
	var status struct {
		URL string `json:"url"`
	}
	text := run(t, nil, bin, "status", "--json", "--dir", b.cluster)
	if err := json.Unmarshal([]byte(text), &status); err != nil || status.URL == "" {
		t.Fatalf("sluice status: %v\n%s", err, text)
	}
	b.env = []string{"SLUICE_URL=" + status.URL,
		"SLUICE_SECRET_FILE=" + filepath.Join(b.cluster, "cluster.secret"), "SLUICE_LIBRARY=" + b.lib,
		"SLUICE_MPIIO_VERBOSE=1"}
	return b
}

// preload compiles the library for an MPI.
func (b *rig) preload(t *testing.T, m mpi) string {
	t.Helper()
	so := filepath.Join(b.dir, "libsluice-mpiio-"+m.name+".so")
	sources, err := filepath.Glob("src/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("src: %v, %v", sources, err)
	}
	args := []string{"-std=gnu11", "-shared", "-fPIC", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
		"-I../capi/libsluice", "-o", so}
	run(t, nil, m.cc, append(append(args, sources...), "-ldl", "-lpthread")...)
	return so
}

// compile makes a program of testdata.
func (b *rig) compile(t *testing.T, m mpi, source string, flags ...string) string {
	t.Helper()
	program := filepath.Join(b.dir, source+"-"+m.name)
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-Wno-unused-function",
		"-o", program, "testdata/" + source + ".c"}
	run(t, nil, m.cc, append(args, flags...)...)
	return program
}

// ranks starts a program with the library before its MPI.
func (b *rig) ranks(m mpi, n int, so string, program ...string) (string, error) {
	args := append([]string{}, m.exec[1:]...)
	args = append(args, "-n", strconv.Itoa(n))
	for _, e := range append([]string{"LD_PRELOAD=" + so}, append(b.env, m.env...)...) {
		key, value, _ := strings.Cut(e, "=")
		args = append(args, m.pass(key, value)...)
	}
	return tryRun(nil, m.exec[0], append(args, program...)...)
}

// seeds is how many runs of the model there are, from which one on.
func seeds(t *testing.T) (first, count int) {
	t.Helper()
	first, count = int(time.Now().UnixNano()%1000000), 10
	if n, err := strconv.Atoi(os.Getenv("MPIIO_SEEDS")); err == nil {
		count = n
	}
	if n, err := strconv.Atoi(os.Getenv("MPIIO_SEED")); err == nil {
		first = n
	}
	return first, count
}

// TestPrograms runs the model of random types and views, the calls that are not about data, and
// parallel HDF5, under both MPIs; and, unless time is short, a rank that is killed.
func TestPrograms(t *testing.T) {
	needMPI(t)
	b := start(t, "--mem", "--memory", "256M")
	for _, m := range mpis {
		so := b.preload(t, m)
		t.Run(m.name, func(t *testing.T) {
			t.Run("calls", func(t *testing.T) {
				program := b.compile(t, m, "calls")
				b.must(t, m, 4, so, program, "sluice:/calls-"+m.name, filepath.Join(b.dir, "local"))
			})
			t.Run("random", func(t *testing.T) { b.random(t, m, so) })
			t.Run("hdf5", func(t *testing.T) { b.hdf5(t, m, so) })
			if !testing.Short() {
				t.Run("killed", func(t *testing.T) { b.killed(t, m, so) })
			}
		})
	}
}

func (b *rig) must(t *testing.T, m mpi, n int, so string, program ...string) {
	t.Helper()
	out, err := b.ranks(m, n, so, program...)
	if err != nil || !strings.Contains(out, "ok: ") {
		t.Fatalf("%s, %d ranks: %v: %v\n%s", m.name, n, program, err, out)
	}
	t.Logf("%s", bytes.TrimSpace([]byte(out)))
}

// random runs seeds with one to five ranks, some with threads.
func (b *rig) random(t *testing.T, m mpi, so string) {
	program := b.compile(t, m, "model")
	first, count := seeds(t)
	t.Logf("MPIIO_SEED=%d MPIIO_SEEDS=%d", first, count)
	const step = 50
	for at := 0; at < count; at += step {
		n := strconv.Itoa(min(step, count-at))
		ranks, name := 4, fmt.Sprintf("sluice:/model-%s-%d", m.name, at)
		if at > 0 {
			ranks = 1 + at/step%5
		}
		args := []string{program, name, strconv.Itoa(first + at), n}
		if at/step%2 == 1 {
			args = append([]string{"env", "MODEL_THREADS=1"}, args...)
		}
		b.must(t, m, ranks, so, args...)
	}
}

// hdf5 compares what parallel HDF5 writes with what it writes to the local file system.
func (b *rig) hdf5(t *testing.T, m mpi, so string) {
	headers := "/usr/include/hdf5/" + m.hdf5
	if _, err := os.Stat(filepath.Join(headers, "hdf5.h")); err != nil {
		t.Skipf("no parallel HDF5 for %s here", m.name)
	}
	libs, err := filepath.Glob("/usr/lib/*/hdf5/" + m.hdf5)
	if err != nil || len(libs) == 0 {
		t.Fatalf("libraries of HDF5: %v, %v", libs, err)
	}
	program := b.compile(t, m, "hdf5", "-I"+headers, "-L"+libs[0], "-lhdf5")
	b.must(t, m, 4, so, program, "sluice:/hdf5-"+m.name, filepath.Join(b.dir, "hdf5-local"))
}

// killed kills a rank in the middle of collective writes. The MPI ends the others; the file has
// what was written, and can be used at once.
func (b *rig) killed(t *testing.T, m mpi, so string) {
	program, name := b.compile(t, m, "killed"), "sluice:/killed-"+m.name
	b.must(t, m, 4, so, program, name, "write")
	out, err := b.ranks(m, 4, so, program, name, "kill")
	if err == nil || strings.Contains(out, "ok: ") {
		t.Fatalf("a rank was killed, and nobody says so:\n%s", out)
	}
	b.must(t, m, 4, so, program, name, "check")
}
