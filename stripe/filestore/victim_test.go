package filestore

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/wire"
)

// victimEnv names the folder in which a child process works until it is killed.
const victimEnv = "FILESTORE_VICTIM"

// runVictim turns the test binary into the victim: it works on the store for ever and tells on
// standard output what was acknowledged. One line says one thing: "file version kind".
func runVictim() {
	dir := os.Getenv(victimEnv)
	if dir == "" {
		return
	}
	s, err := Open(Options{Dir: dir, OpenFiles: 3})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	ctx := context.Background()
	fmt.Println("ready 0 0")
	var versions [8]uint64
	for file := range versions {
		in, err := s.Stat(ctx, victimObject(file))
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		versions[file] = in.TruncSeq
	}
	for {
		file := rand.IntN(len(versions))
		versions[file]++
		if err := victimStep(ctx, s, file, versions[file]); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
}

func victimObject(file int) stripe.ObjectID {
	return stripe.ObjectID{File: uint64(file + 1), Gen: 1}
}

func victimSize(version uint64) int64 { return int64(version*7919%50_000) + 1 }

// victimStep brings an object to a version: truncated to nothing under that sequence, then written.
// It says when the truncate and when the write is acknowledged.
func victimStep(ctx context.Context, s *Store, file int, version uint64) error {
	id, st := victimObject(file), wire.Stamp{TruncSeq: version}
	if err := s.Truncate(ctx, id, 0, st); err != nil {
		return err
	}
	fmt.Println("cut", file, version)
	p := fill(int(victimSize(version)), byte(version))
	d := stripe.Durability(rand.IntN(4) / 3)
	if err := s.WriteAt(ctx, id, [][]byte{p}, 0, st, d); err != nil {
		return err
	}
	fmt.Println("wrote", file, version)
	if version%50 == 0 {
		return s.SetMinGeneration(ctx, uint64(1000+file), uint32(version))
	}
	return nil
}

// TestKill kills a writing process at random moments. A kill leaves the page cache alone, so that
// volatile writes must be there as well. FILESTORE_KILLS sets the number of rounds.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	var cut, wrote [8]uint64
	for round := range envInt("FILESTORE_KILLS", 4) {
		victim(t, dir, time.Duration(20+rand.IntN(150))*time.Millisecond, &cut, &wrote)
		s := mustOpen(t, Options{Dir: dir})
		if s.lock.wasClean {
			t.Fatal("the killed process is taken for one that has ended well")
		}
		for file := range cut {
			checkVictim(t, s, file, cut[file], wrote[file])
			cut[file], wrote[file] = 0, 0
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// victim runs a child for a while, kills it, and notes what it had been told.
func victim(t *testing.T, dir string, life time.Duration, cut, wrote *[8]uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var kind string
		var file int
		var version uint64
		n, _ := fmt.Sscan(lines.Text(), &kind, &file, &version)
		switch {
		case kind == "error":
			t.Fatalf("the victim says: %s", lines.Text())
		case kind == "ready":
			time.AfterFunc(life, func() { cmd.Process.Kill() })
		case n == 3 && kind == "cut":
			cut[file] = version
		case n == 3 && kind == "wrote":
			wrote[file] = version
		}
	}
	_ = cmd.Wait() // it was killed
}

// checkVictim compares an object with the last acknowledged version: it is that one, or the
// next, whose truncate or write was under way.
func checkVictim(t *testing.T, s *Store, file int, cut, wrote uint64) {
	t.Helper()
	ctx := context.Background()
	id := victimObject(file)
	in, err := s.Stat(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if in.TruncSeq < cut || cut > 0 && in.TruncSeq > cut+1 {
		t.Errorf("file %d has sequence %d, acknowledged was %d", file, in.TruncSeq, cut)
	}
	full := victimSize(in.TruncSeq)
	if in.Size != full && (in.Size > full || in.TruncSeq == wrote && wrote > 0) {
		t.Errorf("file %d version %d has size %d of %d, acknowledged was %d", file, in.TruncSeq,
			in.Size, full, wrote)
	}
	got := make([]byte, in.Size)
	if err := s.ReadAt(ctx, id, [][]byte{got}, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, fill(len(got), byte(in.TruncSeq))) {
		t.Errorf("file %d version %d holds other bytes", file, in.TruncSeq)
	}
}
