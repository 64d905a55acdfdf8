package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/client"
)

// The tests below run only where they are asked for: SLUICE_FIGURES is the number of rounds. The
// clients are processes of their own, in turns, against servers in this one.
const (
	figuresEnv = "SLUICE_FIGURES"
	speedEnv   = "SLUICE_FIGURES_GO" // this process is the Go client: PATH BYTES COUNT malloc|alloc
)

// TestMain makes of this binary a client for the figures, where it is started as one.
func TestMain(m *testing.M) {
	if what := os.Getenv(speedEnv); what != "" {
		if err := speed(strings.Fields(what)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// speed is bench/speed.c in Go.
func speed(args []string) error {
	ctx := context.Background()
	fs, err := client.Open(ctx, os.Getenv("SLUICE_URL"))
	if err != nil {
		return err
	}
	f, err := fs.Open(ctx, args[0])
	if err != nil {
		return err
	}
	n, _ := strconv.Atoi(args[1])
	count, _ := strconv.Atoi(args[2])
	buf := make([]byte, n)
	memory := fs.Alloc(n)
	if args[3] == "alloc" {
		buf = memory.Bytes()
	}
	var at int64
	var took []int64
	var begin time.Time
	for i := -count / 10; i < count; i++ {
		t := time.Now()
		if i == 0 {
			begin = t
		}
		if _, err := f.ReadAt(ctx, buf, at); err != nil {
			return err
		}
		if at += int64(n); at+int64(n) > f.Size() {
			at = 0
		}
		if i >= 0 {
			took = append(took, int64(time.Since(t)))
		}
	}
	all := time.Since(begin)
	slices.Sort(took)
	fmt.Println(took[count/2], int64(all)/int64(count))
	memory.Free()
	return fs.Close()
}

// numbers runs a client and returns what it prints: nanoseconds of the median call and of all.
func numbers(t *testing.T, cmd *exec.Cmd) (median, mean float64) {
	t.Helper()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	if _, err := fmt.Sscan(string(out), &median, &mean); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return median, mean
}

func middle(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// contender is a client for the figures, and what its rounds came to, beside the Go client's.
type contender struct {
	name    string
	command []string
	env     []string

	median, ratio, more []float64
}

// TestFigures compares calls of C and of Python with those of the Go client:
// docs/figures/parallel.md.
func TestFigures(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv(figuresEnv))
	if rounds == 0 {
		t.Skipf("set %s to a number of rounds", figuresEnv)
	}
	b := build(t)
	makeSpeedFile(t, b.url)
	program := b.compile(t, "bench/speed.c", "-O2")
	fmt.Println("| reads of | memory | by | a call | speed of Go's | more than Go |\n" +
		"|---|---|---|---|---|---|")
	for _, c := range []struct{ size, count, memory string }{
		{"8", "20000", "malloc"}, {"8", "20000", "alloc"},
		{"1048576", "2000", "malloc"}, {"1048576", "2000", "alloc"},
	} {
		args := []string{speedFile, c.size, c.count, c.memory}
		all := []*contender{
			{name: "Go", command: []string{os.Args[0]},
				env: []string{"SLUICE_URL=" + b.url, speedEnv + "=" + strings.Join(args, " ")}},
			{name: "C", command: append([]string{program}, args...), env: b.env()},
			{name: "Python", command: append([]string{interpreter(t), "../../python/bench/speed.py"},
				args...), env: append(b.env(), "PYTHONPATH=../../python",
				"SLUICE_LIBRARY="+filepath.Join(b.dir, "libsluice.so.1"))},
		}
		for range rounds {
			var first float64
			for i, by := range all {
				cmd := exec.Command(by.command[0], by.command[1:]...)
				cmd.Env = append(os.Environ(), by.env...)
				one, _ := numbers(t, cmd)
				if i == 0 {
					first = one
				}
				by.median = append(by.median, one)
				by.ratio, by.more = append(by.ratio, first/one), append(by.more, one-first)
			}
		}
		for _, by := range all {
			fmt.Printf("| %s | %s | %s | %.2f us | %.0f %% | %+.2f us |\n", c.size, c.memory, by.name,
				middle(by.median)/1e3, 100*middle(by.ratio), middle(by.more)/1e3)
		}
	}
}

// otherEnv is a folder with another libsluice.so.1, to compare queues with.
const otherEnv = "SLUICE_FIGURES_OTHER"

// TestQueueFigures tells what a request of a queue costs, by this library and by another one.
func TestQueueFigures(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv(figuresEnv))
	if rounds == 0 {
		t.Skipf("set %s to a number of rounds", figuresEnv)
	}
	b := build(t)
	makeSpeedFile(t, b.url)
	program := b.compile(t, "bench/depth.c", "-O2")
	libraries := []string{b.dir}
	if other := os.Getenv(otherEnv); other != "" {
		libraries = append(libraries, other)
	}
	fmt.Println("| reads of | under way | this: clock, processor | the other: clock, processor |\n" +
		"|---|---|---|---|")
	for _, c := range [][3]string{{"8", "20000", "1"}, {"8", "40000", "16"}, {"4096", "40000", "64"},
		{"1048576", "1000", "4"}} {
		took, used := make([][]float64, len(libraries)), make([][]float64, len(libraries))
		for range rounds {
			for i, dir := range libraries {
				p := exec.Command(program, speedFile, c[0], c[1], c[2])
				p.Env = append(os.Environ(), b.env()...)
				p.Env = append(p.Env, "LD_LIBRARY_PATH="+dir)
				clock, cpu := numbers(t, p)
				took[i], used[i] = append(took[i], clock), append(used[i], cpu)
			}
		}
		fmt.Printf("| %s | %s |", c[0], c[2])
		for i := range libraries {
			fmt.Printf(" %.2f us, %.2f us |", middle(took[i])/1e3, middle(used[i])/1e3)
		}
		fmt.Println()
	}
}

const speedFile = "/speed"

// makeSpeedFile writes 24 MiB, which the servers have in their caches then.
func makeSpeedFile(t *testing.T, url string) {
	t.Helper()
	ctx := context.Background()
	fs, err := client.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	f, err := fs.Create(ctx, speedFile)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 24<<20)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if _, err := f.WriteAt(ctx, data, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(ctx); err != nil {
		t.Fatal(err)
	}
}
