package systest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestKillUnderSQLite runs transactions of SQLite, with a rollback journal and with a write-ahead
// log, and kills in each round the programs that do them, and in some at the same moment the mount,
// the metadata service or an I/O server. After each the database is whole, and has every
// transaction that was acknowledged and no part of another one.
func TestKillUnderSQLite(t *testing.T) {
	t.Parallel()
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	rounds := max(envInt("SLUICE_KILL_ROUNDS", 20)/5, 5)
	t.Logf("seed %d, %d rounds (SLUICE_SEED, SLUICE_KILL_ROUNDS)", seed, rounds)
	rng := rand.New(rand.NewPCG(seed, 51))
	c := startCluster(t, clusterOptions{iods: 3, mount: true})
	// In a folder: while the mount is made anew there is none, and nobody makes another database.
	must(t, os.Mkdir(filepath.Join(c.mnt, "db"), 0o755))
	var books []*book
	for _, mode := range []string{"delete", "truncate", "wal"} {
		books = append(books, newBook(t, filepath.Join(c.mnt, "db", mode+".db"), mode))
	}
	victims := []string{"", "mount", "", "meta", "iod1"}
	for round := range rounds {
		victim := victims[round%len(victims)]
		var wg sync.WaitGroup
		for _, b := range books {
			b.fresh.Store(0)
			wg.Go(func() { b.write(t) })
		}
		for _, b := range books {
			c.await(t, b.mode+": transactions", func() bool { return b.fresh.Load() >= 3 || t.Failed() })
		}
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		pid := 0
		if victim != "" {
			pid = c.pidOf(t, victim)
			must(t, syscall.Kill(pid, syscall.SIGKILL))
			time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
		}
		for _, b := range books {
			b.kill()
		}
		wg.Wait()
		if pid != 0 {
			c.awaitSuccessor(t, victim, pid)
		}
		if victim == "mount" { // who served the old one may be there for a moment
			c.await(t, "the mount is served anew", func() bool {
				return serverOf(c.pidOf(t, "mount")) != 0 && mounted(c.mnt)
			})
		}
		c.awaitReady(t, c.opts)
		for _, b := range books {
			b.verify(t, fmt.Sprintf("round %d, victim %q", round, victim))
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, b := range books {
		t.Logf("%s: %d transactions", b.mode, b.known)
	}
}

// book is a database and what is known of it: transactions are numbered, and each adds an entry of
// several pages and changes the sum of all.
type book struct {
	path, mode string
	known      int // transactions that were acknowledged
	fresh      atomic.Int64
	pid        atomic.Int64
}

const bookEntry = 9000 // bytes: several pages of the database

func newBook(t *testing.T, path, mode string) *book {
	t.Helper()
	runIn(t, "", fmt.Sprintf("PRAGMA journal_mode=%s;\n", mode)+
		"CREATE TABLE entry(n INTEGER PRIMARY KEY, v BLOB); CREATE TABLE total(n INTEGER);\n"+
		"INSERT INTO total VALUES(0);\n", "sqlite3", "-bail", path)
	return &book{path: path, mode: mode}
}

// write runs a program that does transactions until it is killed, and counts those that it says to
// be done. Each line of its output is one: stdbuf has it printed at once.
func (b *book) write(t *testing.T) {
	cmd := exec.Command("stdbuf", "-oL", "sqlite3", "-bail", b.path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	var said bytes.Buffer
	cmd.Stderr = &said
	must(t, cmd.Start())
	b.pid.Store(int64(cmd.Process.Pid))
	go func() {
		defer in.Close()
		_, _ = fmt.Fprintf(in, ".timeout 20000\nPRAGMA journal_mode=%s; PRAGMA synchronous=FULL;\n",
			b.mode)
		for n := b.known + 1; ; n++ {
			if _, err := io.WriteString(in, transaction(n)); err != nil {
				return
			}
		}
	}()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if n, ok := strings.CutPrefix(lines.Text(), "done "); ok {
			number, err := strconv.Atoi(n)
			must(t, err)
			b.known = number
			b.fresh.Add(1)
		}
	}
	_ = cmd.Wait()
	if said.Len() > 0 {
		t.Logf("%s: %s", b.mode, tail(said.String()))
	}
}

func transaction(n int) string {
	return fmt.Sprintf("BEGIN IMMEDIATE; INSERT INTO entry VALUES(%d, randomblob(%d)); "+
		"UPDATE total SET n = n + %d; COMMIT; SELECT 'done %d';\n", n, bookEntry, n, n)
}

func (b *book) kill() { _ = syscall.Kill(int(b.pid.Load()), syscall.SIGKILL) }

// verify reads the database, as the next user does: that brings it in order first. One transaction
// may have been done and not been acknowledged.
func (b *book) verify(t *testing.T, after string) {
	t.Helper()
	out := runIn(t, "", ".timeout 20000\nPRAGMA integrity_check; "+
		"SELECT count(*), ifnull(max(n),0), ifnull(sum(n),0), (SELECT n FROM total), "+
		"ifnull(min(length(v)),9000) FROM entry;", "sqlite3", "-bail", "-separator", " ", b.path)
	var ok string
	var count, last, sum, total, shortest int
	_, err := fmt.Sscan(out, &ok, &count, &last, &sum, &total, &shortest)
	if err != nil || ok != "ok" {
		t.Errorf("%s: %s is not whole: %v\n%s", after, b.mode, err, tail(out))
		return
	}
	if last < b.known || last > b.known+1 {
		t.Errorf("%s: %s: %d transactions were acknowledged, the last one there is %d", after, b.mode,
			b.known, last)
	}
	if count != last || sum != total || sum != last*(last+1)/2 || shortest != bookEntry {
		t.Errorf("%s: %s: %d entries up to %d, sum %d, total %d, shortest %d", after, b.mode, count,
			last, sum, total, shortest)
	}
	b.known = last
}
