package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// makeFile writes a file of segments: 'd' is 64 KiB of noise, 'z' of zeroes, '.' a hole.
func makeFile(t interface{ Fatal(...any) }, name, shape string, tail int, seed byte) []byte {
	const step = 64 << 10
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := make([]byte, len(shape)*step+tail)
	for i, kind := range shape {
		part := want[i*step : (i+1)*step]
		switch kind {
		case 'd':
			copy(part, pattern(step))
			part[0] = seed
			_, err = f.WriteAt(part, int64(i*step))
		case 'z':
			_, err = f.WriteAt(part, int64(i*step))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(int64(len(want))); err != nil {
		t.Fatal(err)
	}
	return want
}

func drawShape(t *rapid.T, label string) string {
	return rapid.StringOfN(rapid.SampledFrom([]rune("dz.")), 0, 90, -1).Draw(t, label)
}

// TestCopiesBecomeTheirOriginals copies files of all shapes over others of all shapes, in all ways,
// and verifies them.
func TestCopiesBecomeTheirOriginals(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	rapid.Check(t, func(t *rapid.T) {
		want := makeFile(t, from, drawShape(t, "from"), rapid.IntRange(0, 5000).Draw(t, "tail"), 1)
		_ = os.Remove(to)
		if rapid.Bool().Draw(t, "there") {
			seed := byte(rapid.IntRange(1, 2).Draw(t, "seed"))
			makeFile(t, to, drawShape(t, "to"), rapid.IntRange(0, 5000).Draw(t, "tail"), seed)
		}
		opts := copyOptions{workers: 1, verify: true, resume: rapid.Bool().Draw(t, "resume"),
			atomic: rapid.Bool().Draw(t, "atomic"),
			sparse: rapid.SampledFrom([]string{"auto", "always", "never"}).Draw(t, "sparse")}
		c := newCopier(hostTree{}, opts, silent{})
		c.copy(context.Background(), hostTree{}, from, to)
		sum := c.finish(context.Background())
		if len(sum.Failed) > 0 || sum.Files != 1 || sum.Verified != 1 {
			t.Fatalf("%+v", sum)
		}
		if total := sum.Bytes + sum.KeptBytes + sum.HoleBytes; total != int64(len(want)) {
			t.Fatalf("%d bytes of %d are accounted for: %+v", total, len(want), sum)
		}
		got, err := os.ReadFile(to)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes became %d, %v", len(want), len(got), err)
		}
	})
}

// TestHolesStayHoles holds the space of a copy against that of its original.
func TestHolesStayHoles(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	makeFile(t, from, ".d"+strings.Repeat(".", 200)+"zd.", 0, 1)
	for sparse, want := range map[string]int64{"auto": 3, "always": 2, "never": 205} {
		_, sum, err := copyAll(t, hostTree{}, from, to, copyOptions{sparse: sparse})
		if err != nil || sum.Bytes != want<<16 {
			t.Fatalf("%s: %+v, %v", sparse, sum, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(to, &st); err != nil {
			t.Fatal(err)
		}
		if st.Blocks*512 != want<<16 {
			t.Errorf("%s: the copy takes %d units, not %d", sparse, st.Blocks*512>>16, want)
		}
	}
}

// damaging is a tree that changes a byte of what is written.
type damaging struct {
	hostTree
	at int64
}

type damagedFile struct {
	sink
	at int64
}

func (d damaging) create(ctx context.Context, name string, perm fs.FileMode, keep bool) (
	sink, error) {
	f, err := d.hostTree.create(ctx, name, perm, keep)
	return damagedFile{f, d.at}, err
}

func (d damagedFile) WriteAt(p []byte, off int64) (int, error) {
	p = bytes.Clone(p)
	if i := d.at - off; i >= 0 && i < int64(len(p)) {
		p[i]++
	}
	return d.sink.WriteAt(p, off)
}

func TestVerificationFindsOneWrongByte(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	write(t, from, pattern(9<<20))
	for _, at := range []int64{0, 4 << 20, 9<<20 - 1} {
		_, sum, err := copyAll(t, damaging{at: at}, from, filepath.Join(dir, "to"),
			copyOptions{verify: true, atomic: true})
		if err == nil || !strings.Contains(err.Error(), "differs from what was read") {
			t.Errorf("byte %d: %v", at, err)
		}
		if sum.Verified != 0 || sum.Files != 0 || len(sum.Unfinished) != 1 {
			t.Errorf("byte %d: %+v", at, sum)
		}
		if _, err := os.Stat(filepath.Join(dir, "to")); err == nil {
			t.Error("a copy that is wrong took the name")
		}
	}
	if _, _, err := copyAll(t, damaging{at: 5}, from, filepath.Join(dir, "to"),
		copyOptions{}); err != nil {
		t.Errorf("nobody asked, and it was verified: %v", err)
	}
}

// TestResumeWritesWhatIsMissing: pieces that are there are read and not written.
func TestResumeWritesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	want := pattern(5*copyBytes + 100)
	write(t, from, want)
	broken := bytes.Clone(want[:3*copyBytes+7])
	broken[copyBytes] ^= 1
	write(t, to, broken)
	_, sum, err := copyAll(t, hostTree{}, from, to, copyOptions{resume: true})
	if err != nil || sum.KeptBytes != 2*copyBytes || sum.Bytes != 3*copyBytes+100 ||
		sum.Resumed != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
		t.Fatal("the copy is another one")
	}
	info, err := os.Stat(from)
	if err == nil {
		err = os.Chtimes(to, info.ModTime(), info.ModTime())
	}
	if err != nil {
		t.Fatal(err)
	}
	_, sum, err = copyAll(t, hostTree{}, from, to, copyOptions{resume: true})
	if err != nil || sum.Skipped != 1 || sum.KeptBytes != 0 {
		t.Fatalf("a finished one: %+v, %v", sum, err)
	}
}

// growing grows while it is copied.
type growingFile struct {
	source
	name string
	done bool
}

type growingTree struct{ hostTree }

func (g growingTree) open(ctx context.Context, name string) (source, error) {
	f, err := g.hostTree.open(ctx, name)
	return &growingFile{source: f, name: name}, err
}

func (g *growingFile) ReadAt(p []byte, off int64) (int, error) {
	if !g.done {
		g.done = true
		f, err := os.OpenFile(g.name, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		if _, err := f.Write(pattern(100_000)); err != nil {
			return 0, err
		}
	}
	return g.source.ReadAt(p, off)
}

func TestWhatGrowsIsCopiedToItsEnd(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	write(t, from, pattern(10))
	_, sum, err := copyBetween(t, growingTree{}, hostTree{}, from, to, copyOptions{verify: true})
	if err != nil || sum.Bytes != 100_010 {
		t.Fatalf("%+v, %v", sum, err)
	}
	a, _ := os.ReadFile(from)
	if b, err := os.ReadFile(to); err != nil || !bytes.Equal(a, b) {
		t.Fatalf("%d bytes of %d, %v", len(b), len(a), err)
	}
}

func TestZeroRuns(t *testing.T) {
	zero, data := make([]byte, sparseRun), bytes.Repeat([]byte{1}, sparseRun)
	for _, c := range []struct {
		parts [][]byte
		n     int
		zero  bool
	}{
		{[][]byte{zero}, sparseRun, true},
		{[][]byte{zero[:5]}, 5, false},
		{[][]byte{zero, zero, data}, 2 * sparseRun, true},
		{[][]byte{data, data, zero}, 2 * sparseRun, false},
		{[][]byte{data, zero[:9]}, sparseRun + 9, false},
		{[][]byte{zero, zero[:9]}, sparseRun, true},
	} {
		if n, is := zeroRun(bytes.Join(c.parts, nil)); n != c.n || is != c.zero {
			t.Errorf("%d parts: %d, %v", len(c.parts), n, is)
		}
	}
}
