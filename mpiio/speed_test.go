package mpiio

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	speedRounds = flag.Int("speed", 0, "rounds of TestSpeed; 0: it is skipped")
	speedOnly   = flag.String("speed-only", "", "of TestSpeed's figures those that match")
	speedCell   = flag.Duration("speed-cell", time.Minute, "how long one run of TestSpeed may take")
)

// speedPasses is how often a run repeats its pattern: its figure is the median.
const speedPasses = "3"

// cell is one figure: what is done to which file.
type cell struct {
	pattern, op string
	target      string // library, mount, ext4
	hints       []string
}

func (c cell) String() string {
	return strings.TrimSpace(fmt.Sprintf("%-12s %-5s %-8s %s", c.pattern, c.op, c.target,
		strings.Join(c.hints, " ")))
}

// cells are those of one round, in the order of their runs: what the library has written is read by
// the library, and then through the mount, whose kernel has nothing of it at first.
func cells() (all []cell) {
	for _, p := range []string{"contiguous", "tiles", "tiles-all"} {
		all = append(all,
			cell{pattern: p, op: "write", target: "library"},
			cell{pattern: p, op: "read", target: "library"},
			cell{pattern: p, op: "cold", target: "mount"},
			cell{pattern: p, op: "read", target: "mount"},
			cell{pattern: p, op: "write", target: "mount"},
			cell{pattern: p, op: "write", target: "ext4"},
			cell{pattern: p, op: "read", target: "ext4"},
			cell{pattern: p, op: "cold", target: "ext4"})
	}
	for _, p := range []string{"easy", "hard"} {
		all = append(all, cell{pattern: p, op: "write", target: "library"})
	}
	for _, element := range []int{4, 16, 64, 128, 256, 1024, 4096} {
		p := "columns-" + strconv.Itoa(element)
		for _, op := range []string{"write", "read"} {
			for _, mode := range []string{"enable", "disable"} {
				all = append(all, cell{pattern: p, op: op, target: "library",
					hints: []string{"romio_cb_" + op + "=" + mode}})
			}
		}
	}
	only := regexp.MustCompile(*speedOnly)
	return slices.DeleteFunc(all, func(c cell) bool { return !only.MatchString(c.String()) })
}

// speeds are the figures so far, MiB/s; a run that did not end in time has none.
type speeds struct {
	rig     *rig
	m       mpi
	so      string
	program string
	mount   string
	got     map[string][]float64
}

// file is where a cell's file lies. The mount writes another one than the library, so that what it
// reads comes from another client.
func (s *speeds) file(c cell) string {
	name := "speed-" + s.m.name + "-" + c.pattern
	switch {
	case c.target == "library":
		return "sluice:/" + name
	case c.target == "ext4":
		return filepath.Join(s.rig.dir, name)
	case c.op == "write":
		return filepath.Join(s.mount, name+"-by-mount")
	}
	return filepath.Join(s.mount, name)
}

// measure runs a cell once; 0 where it did not end in time.
func (s *speeds) measure(t *testing.T, c cell) float64 {
	t.Helper()
	args := append([]string{}, s.m.exec[1:]...)
	args = append(args, "-n", "4")
	env := append([]string{}, s.m.env...)
	if c.target == "library" {
		env = append(append(env, "LD_PRELOAD="+s.so), s.rig.env...)
	}
	for _, e := range env {
		key, value, _ := strings.Cut(e, "=")
		args = append(args, s.m.pass(key, value)...)
	}
	args = append(append(args, s.program, s.file(c), c.pattern, c.op, speedPasses), c.hints...)
	ctx, cancel := context.WithTimeout(context.Background(), *speedCell)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.m.exec[0], args...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return 0
	}
	for _, line := range strings.Split(string(out), "\n") {
		var mibs float64
		if n, _ := fmt.Sscanf(line, "%f MiB/s", &mibs); n == 1 && err == nil {
			return mibs
		}
	}
	t.Fatalf("%s, %v: %v\n%s", s.m.name, c, err, out)
	return 0
}

// report is a line for each cell: the median, the least and the most, and what it is compared with.
func (s *speeds) report(rounds int) string {
	var b strings.Builder
	for _, c := range cells() {
		v := slices.Clone(s.got[c.String()])
		ratio := ""
		if c.target == "mount" {
			ours := s.got[cell{pattern: c.pattern, op: strings.Replace(c.op, "cold", "read", 1),
				target: "library"}.String()]
			ratio = "   library/mount " + medianRatio(ours, v)
		}
		if c.pattern == "hard" {
			ratio = "   hard/easy " + medianRatio(v, s.got[cell{pattern: "easy", op: c.op,
				target: c.target}.String()])
		}
		slices.Sort(v)
		late := 0
		for late < len(v) && v[late] == 0 {
			late++
		}
		fmt.Fprintf(&b, "%-6s %-44s %7.0f MiB/s (%.0f to %.0f)%s", s.m.name, c, v[rounds/2], v[0],
			v[rounds-1], ratio)
		if late > 0 {
			fmt.Fprintf(&b, "   %d of %d did not end in %v", late, rounds, *speedCell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// medianRatio is the median of the rounds' ratios, of those rounds that have both.
func medianRatio(a, b []float64) string {
	var r []float64
	for i := range a {
		if a[i] > 0 && b[i] > 0 {
			r = append(r, a[i]/b[i])
		}
	}
	if len(r) == 0 {
		return "unknown"
	}
	slices.Sort(r)
	return fmt.Sprintf("%.2f", r[len(r)/2])
}

// TestSpeed prints the figures of docs/figures/parallel.md: the library, the same MPI through our
// mount, and the same MPI on the local file system of the test's folder. All take turns.
func TestSpeed(t *testing.T) {
	if *speedRounds == 0 {
		t.Skip("figures: go test ./mpiio -run TestSpeed -speed 7 -timeout 0 -v")
	}
	needMPI(t)
	mount := t.TempDir()
	b := start(t, "--memory", "1G", "--mount", mount)
	var all []*speeds
	for _, m := range mpis {
		all = append(all, &speeds{rig: b, m: m, so: b.preload(t, m), mount: mount,
			program: b.compile(t, m, "speed"), got: map[string][]float64{}})
	}
	for range *speedRounds {
		for _, s := range all {
			for _, c := range cells() {
				mibs := s.measure(t, c)
				t.Logf("%s %v: %.0f", s.m.name, c, mibs)
				s.got[c.String()] = append(s.got[c.String()], mibs)
			}
		}
	}
	for _, s := range all {
		fmt.Print(s.report(*speedRounds))
	}
}
