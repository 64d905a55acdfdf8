package systest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOneFlippedBit inverts one bit of a file of a stopped cluster's folder, one file after the
// other, and starts it. Either it says what is damaged and does not start, or it starts, and then
// every byte that was synced is right or is an error: nothing is lost or wrong in silence. With
// SLUICE_SOAK every file has its turn several times, otherwise some have it once.
func TestOneFlippedBit(t *testing.T) {
	t.Parallel()
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d (SLUICE_SEED)", seed)
	rng := rand.New(rand.NewPCG(seed, 31))
	s := newStopped(t, rng)
	files := damageableFiles(t, s.whole)
	rounds := 6
	if os.Getenv("SLUICE_SOAK") != "" {
		rounds = 4 * len(files)
	}
	rng.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	told, unharmed, partly := 0, 0, 0
	for i := range rounds {
		f, ok := usedFlip(t, rng, files[i%len(files)])
		if !ok {
			continue
		}
		switch how := s.try(t, f); how {
		case refused:
			told++
		case harmless:
			unharmed++
		case damaged:
			partly++
		}
		if t.Failed() {
			t.Fatalf("%v, seed %d", f, seed)
		}
	}
	t.Logf("%d files, %d bits: %d times refused, %d times some files gave an error, %d times nothing "+
		"was hurt", len(files), rounds, told, partly, unharmed)
}

// What a damaged cluster did.
const (
	harmless = iota // everything is right
	damaged         // some files give errors
	refused         // it does not start, and says why
)

// stopped is a cluster's folder at rest, and what was synced in it.
type stopped struct {
	bin, whole, dir, mnt string

	contents map[string][]byte
}

func newStopped(t *testing.T, rng *rand.Rand) *stopped {
	bin, err := builtBinary()
	must(t, err)
	base := t.TempDir()
	s := &stopped{bin: bin, whole: filepath.Join(base, "whole"), dir: filepath.Join(base, "c"),
		mnt: filepath.Join(base, "mnt"), contents: map[string][]byte{}}
	must(t, os.Mkdir(s.mnt, 0o755))
	out, err := s.up()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i := range 40 {
		size := rng.IntN(20 << 10)
		if i%10 == 0 {
			size = 1<<20 + rng.IntN(2<<20)
		}
		name := fmt.Sprintf("d%d/f%02d", i%3, i)
		s.contents[name] = record(rng.Uint64()|1, i, size)
		path := filepath.Join(s.mnt, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, s.contents[name], 0o644))
	}
	run(t, "", "sync", "-f", s.mnt)
	s.down(t)
	must(t, os.Rename(s.dir, s.whole))
	return s
}

func (s *stopped) up() (string, error) {
	out, err := exec.Command(s.bin, "up", "-d", "--dir", s.dir, "--iods", "2", "--mount", s.mnt,
		"--listen", "127.0.0.1:0").CombinedOutput()
	return string(out), err
}

func (s *stopped) down(t *testing.T) {
	t.Helper()
	run(t, "", s.bin, "down", "--dir", s.dir)
	if mounted(s.mnt) {
		t.Fatalf("%s is still mounted", s.mnt)
	}
}

// try damages a copy of the folder, starts it and looks at everything.
func (s *stopped) try(t *testing.T, f flip) int {
	t.Helper()
	must(t, os.RemoveAll(s.dir))
	run(t, "", "cp", "-a", "--sparse=always", s.whole, s.dir)
	rel, err := filepath.Rel(s.whole, f.path)
	must(t, err)
	flip{filepath.Join(s.dir, rel), f.at, f.bit}.do(t)
	out, err := s.up()
	if err != nil {
		if strings.TrimSpace(out) == "" || strings.Contains(out, "panic") {
			t.Errorf("%v: it does not start, and says: %q", f, out)
		}
		_ = exec.Command(s.bin, "down", "--dir", s.dir).Run()
		t.Logf("%s, byte %d: refused: %s", rel, f.at, firstLine(out))
		return refused
	}
	defer s.down(t)
	return s.look(t, rel)
}

// look compares every file. One that is not there is a loss in silence.
func (s *stopped) look(t *testing.T, rel string) int {
	t.Helper()
	failures := 0
	for name, want := range s.contents {
		got, err := os.ReadFile(filepath.Join(s.mnt, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			t.Errorf("%s is flipped, and %s is gone", rel, name)
		case err != nil:
			failures++
		case !bytes.Equal(got, want):
			t.Errorf("%s is flipped, and %s is wrong (%d bytes of %d)", rel, name, len(got), len(want))
		}
	}
	// A new file has nothing of an old one.
	fresh := filepath.Join(s.mnt, "fresh")
	if err := os.WriteFile(fresh, nil, 0o600); err == nil && os.Truncate(fresh, 1<<20) == nil {
		got, err := os.ReadFile(fresh)
		if err == nil && len(bytes.TrimLeft(got, "\x00")) != 0 {
			t.Errorf("%s is flipped, and a new file shows old bytes", rel)
		}
	}
	if failures > 0 {
		t.Logf("%s: %d files give an error", rel, failures)
		return damaged
	}
	return harmless
}

func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "time=") {
			return line
		}
	}
	return strings.TrimSpace(s)
}

// usedFlip chooses a bit in a part of a file that holds something: much of a store is empty.
func usedFlip(t testing.TB, rng *rand.Rand, path string) (flip, bool) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	page := make([]byte, 4096)
	for range 2000 {
		f, ok := randomFlip(t, rng, path, 0)
		if !ok {
			return f, false
		}
		n, _ := file.ReadAt(page, f.at&^4095)
		if len(bytes.TrimLeft(page[:n], "\x00")) > 0 {
			return f, true
		}
	}
	return flip{}, false
}
