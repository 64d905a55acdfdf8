package systest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/internal/procid"
)

const (
	recordBytes = 24 << 10 // unaligned to pages and units on purpose: 24 KiB straddles stripe units
	fileRecords = 96
	blockBytes  = 4 << 10 // what a killed server writes whole or not at all: one page
	blocks      = 1024
	runBlocks   = 8
)

// TestKillAnyProcess kills one process after the other while writers run, and checks after every
// round that all that was fsynced or flushed is there. Rounds and seed can be set by
// SLUICE_KILL_ROUNDS and SLUICE_SEED.
func TestKillAnyProcess(t *testing.T) {
	t.Parallel()
	rounds := envInt("SLUICE_KILL_ROUNDS", 20)
	t.Run("shm", func(t *testing.T) { killLoop(t, rounds, "") })
	t.Run("tcp", func(t *testing.T) { killLoop(t, max(rounds/10, 1), "tcp") })
}

func killLoop(t *testing.T, rounds int, providers string) {
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d, %d rounds (SLUICE_SEED, SLUICE_KILL_ROUNDS)", seed, rounds)
	rng := rand.New(rand.NewPCG(seed, 7))

	opts := clusterOptions{iods: 4, mount: true, providers: providers}
	c := startCluster(t, opts)
	c.sluice(t, "volume", "create", "disk", strconv.Itoa(blocks*blockBytes))
	gate := newGateway(t, c)

	kills := map[string]int{}
	files := []*fileWriter{newFileWriter(c, "a", rng.Uint64()), newFileWriter(c, "b", rng.Uint64())}
	block := newBlockWriter(gate.sock, rng.Uint64())
	for round := range rounds {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, w := range files {
			wg.Go(func() { w.run(t, stop) })
		}
		wg.Go(func() { block.run(t, stop) })

		time.Sleep(time.Duration(100+rng.IntN(300)) * time.Millisecond)
		victim := killOne(t, c, gate, rng)
		kills[victim]++
		time.Sleep(time.Duration(100+rng.IntN(300)) * time.Millisecond)
		close(stop)
		wg.Wait()
		c.awaitReady(t, opts)
		for _, w := range files {
			w.verify(t, round, victim)
		}
		block.verify(t, round, victim)
		if t.Failed() {
			t.Fatalf("round %d, killed %s, seed %d", round, victim, seed)
		}
	}
	t.Logf("kills: %v; durable records: %d, %d; durable blocks written: %d", kills,
		files[0].synced.Load(), files[1].synced.Load(), block.flushed.Load())
	if files[0].synced.Load() == 0 || block.flushed.Load() == 0 {
		t.Fatal("the writers got nothing done")
	}
	statusTellsIt(t, c, kills)
}

// killOne kills a random process of the cluster, or the gateway, which is then started again.
func killOne(t *testing.T, c *cluster, gate *gateway, rng *rand.Rand) string {
	st, err := c.state()
	must(t, err)
	n := rng.IntN(len(st.Processes) + 1)
	if n == len(st.Processes) {
		gate.restart(t)
		return "nbd"
	}
	p := st.Processes[n]
	if p.PID > 0 {
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
	return p.Name
}

// killNamed kills a process of the cluster, if it runs.
func (c *cluster) killNamed(name string) bool {
	st, err := c.state()
	if err != nil {
		return false
	}
	for _, p := range st.Processes {
		if p.Name == name && p.PID > 0 {
			return syscall.Kill(p.PID, syscall.SIGKILL) == nil
		}
	}
	return false
}

// awaitSuccessor waits until a process that was killed has been started again.
func (c *cluster) awaitSuccessor(t *testing.T, name string, killed int) {
	t.Helper()
	c.await(t, name+" is started again", func() bool {
		st, err := c.state()
		must(t, err)
		for _, p := range st.Processes {
			if p.Name == name {
				return p.PID > 0 && p.PID != killed
			}
		}
		return false
	})
}

// killInTurn kills one process after the other, with pauses, and returns how many were killed.
func (c *cluster) killInTurn(stop chan struct{}, pause time.Duration, names ...string) (kills int) {
	for {
		select {
		case <-stop:
			return kills
		case <-time.After(pause):
		}
		if c.killNamed(names[kills%len(names)]) {
			kills++
		}
	}
}

// statusTellsIt checks that `sluice status` counts every kill of a supervised process.
func statusTellsIt(t *testing.T, c *cluster, kills map[string]int) {
	st, err := c.state()
	must(t, err)
	for _, p := range st.Processes {
		if p.Restarts < kills[p.Name] {
			t.Errorf("status: %s restarted %d times, was killed %d times", p.Name, p.Restarts,
				kills[p.Name])
		}
		if kills[p.Name] > 0 && (len(p.Exits) == 0 || p.Exits[len(p.Exits)-1].Signal == "") {
			t.Errorf("status: %s does not tell that a signal killed it: %+v", p.Name, p.Exits)
		}
	}
}

// gateway is a `sluice nbd` that can be killed and started again at the same socket.
type gateway struct {
	c    *cluster
	sock string
	pid  atomic.Int64
}

func newGateway(t *testing.T, c *cluster) *gateway {
	g := &gateway{c: c, sock: filepath.Join(t.TempDir(), "kill.sock")}
	g.pid.Store(int64(c.startNBD(t, g.sock, "name=disk,volume=disk").Process.Pid))
	return g
}

func (g *gateway) restart(t *testing.T) {
	pid := int(g.pid.Load())
	_ = syscall.Kill(pid, syscall.SIGKILL)
	awaitDeath(t, pid)
	_ = os.Remove(g.sock)
	g.pid.Store(int64(g.c.startNBD(t, g.sock, "name=disk,volume=disk").Process.Pid))
}

// awaitDeath waits for the end of a process that was killed, which on a busy host is not at once.
// Before it a volume that the process writes is not free.
func awaitDeath(t *testing.T, pid int) {
	own := procid.Own()
	name := fmt.Sprintf("[%s/%s/%d/1]", own.Boot, own.Space, pid)
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if dead, _ := procid.Dead(name); dead {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("process %d does not die", pid)
		}
	}
}

// fileWriter appends records to a file and fsyncs now and then. What was fsynced must be there.
type fileWriter struct {
	path    string
	rng     *rand.Rand
	synced  atomic.Int64 // records of all files together, for the report
	failed  atomic.Int64 // attempts
	durable int          // records of the present file that fsync covered
	gen     uint64       // which file: part of every record
}

func newFileWriter(c *cluster, name string, seed uint64) *fileWriter {
	return &fileWriter{path: filepath.Join(c.mnt, "kill-"+name), rng: rand.New(rand.NewPCG(seed, 1))}
}

func record(gen uint64, i int, size int) []byte {
	p := make([]byte, size)
	rng := rand.New(rand.NewPCG(gen, uint64(i)))
	for k := 0; k+8 <= len(p); k += 8 {
		binary.LittleEndian.PutUint64(p[k:], rng.Uint64())
	}
	return p
}

// run writes until stop. An error ends the attempt, not the test: the process behind the mount may
// just have been killed. What counts is that nothing acknowledged is lost.
func (w *fileWriter) run(t *testing.T, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if err := w.write(stop); err != nil {
			w.failed.Add(1)
			t.Logf("writer %s: %v", filepath.Base(w.path), err)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// write goes on with the present file, or starts the next one in its place by create and rename.
func (w *fileWriter) write(stop chan struct{}) error {
	if w.gen == 0 || w.durable >= fileRecords {
		if err := w.next(); err != nil {
			return err
		}
	}
	root, err := openMount(filepath.Dir(w.path))
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.OpenFile(filepath.Base(w.path), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := w.durable; i < fileRecords; {
		for range 1 + w.rng.IntN(4) {
			if i < fileRecords {
				if _, err := f.WriteAt(record(w.gen, i, recordBytes), int64(i)*recordBytes); err != nil {
					return err
				}
				i++
			}
		}
		if err := f.Sync(); err != nil {
			return err
		}
		w.synced.Add(int64(i - w.durable))
		w.durable = i
		select {
		case <-stop:
			return nil
		default:
		}
	}
	return nil
}

// next makes a fresh file durable under the same name: write, fsync, rename, fsync of the
// directory.
func (w *fileWriter) next() error {
	gen := w.gen + 1
	name := filepath.Base(w.path)
	root, err := openMount(filepath.Dir(w.path))
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.Create(name + ".new")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(record(gen, 0, recordBytes), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := root.Rename(name+".new", name); err != nil {
		return err
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return err
	}
	w.gen, w.durable = gen, 1
	return nil
}

// openMount opens a folder if the file system is there. While a mount that was killed is being made
// anew there is an ordinary folder for a moment, in which everything succeeds and proves nothing.
func openMount(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f, err := root.Open(".")
	if err == nil {
		var st unix.Statfs_t
		err = unix.Fstatfs(int(f.Fd()), &st)
		if err == nil && st.Type != unix.FUSE_SUPER_MAGIC {
			err = errNotMounted
		}
		_ = f.Close()
	}
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

var errNotMounted = errors.New("nothing is mounted")

// verify reads everything that an fsync has covered. A rename that failed half-way may have
// happened nevertheless: then the file is the next generation's with its first record.
func (w *fileWriter) verify(t *testing.T, round int, victim string) {
	if w.gen == 0 {
		return
	}
	data, err := readPatiently(w.path)
	if err != nil {
		t.Errorf("round %d (%s): %s is gone: %v", round, victim, w.path, err)
		return
	}
	if first := record(w.gen+1, 0, recordBytes); bytes.HasPrefix(data, first) {
		w.gen, w.durable = w.gen+1, 1
	}
	for i := range w.durable {
		want := record(w.gen, i, recordBytes)
		if len(data) < (i+1)*recordBytes || !bytes.Equal(data[i*recordBytes:(i+1)*recordBytes], want) {
			t.Errorf("round %d (%s): %s: fsynced record %d of generation %d is lost (file has %d bytes): %s",
				round, victim, w.path, i, w.gen, len(data), w.describe(data))
			return
		}
	}
}

// describe says what is in a file in place of what should be.
func (w *fileWriter) describe(data []byte) string {
	var text strings.Builder
	last, from := "", 0
	for i := 0; i*recordBytes < len(data); i++ {
		p := data[i*recordBytes : min(len(data), (i+1)*recordBytes)]
		what := "unknown bytes"
		if len(bytes.TrimLeft(p, "\x00")) == 0 {
			what = "zeroes"
		}
		for gen := w.gen + 2; gen > 0; gen-- {
			if bytes.Equal(p, record(gen, i, recordBytes)[:len(p)]) {
				what = fmt.Sprintf("generation %d", gen)
				break
			}
		}
		if what != last && last != "" {
			fmt.Fprintf(&text, "records %d to %d are %s; ", from, i-1, last)
			from = i
		}
		last = what
	}
	fmt.Fprintf(&text, "from %d on %s", from, last)
	return text.String()
}

// readPatiently retries while the mount is being made anew.
func readPatiently(path string) ([]byte, error) {
	deadline := time.Now().Add(time.Minute)
	for {
		root, err := openMount(filepath.Dir(path))
		var data []byte
		if err == nil {
			data, err = root.ReadFile(filepath.Base(path))
			_ = root.Close()
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				return data, err
			}
		}
		if time.Now().After(deadline) {
			return data, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// blockWriter overwrites blocks of a volume with rising versions. After a flush the block holds
// that version or a later issued one.
type blockWriter struct {
	sock    string
	rng     *rand.Rand
	flushed atomic.Int64
	failed  atomic.Int64 // attempts
	issued  [blocks]uint64
	durable [blocks]uint64
}

func newBlockWriter(sock string, seed uint64) *blockWriter {
	return &blockWriter{sock: sock, rng: rand.New(rand.NewPCG(seed, 2))}
}

func (w *blockWriter) run(t *testing.T, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if err := w.write(stop); err != nil {
			w.failed.Add(1)
			t.Logf("block writer: %v", err)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func (w *blockWriter) write(stop chan struct{}) error {
	c, err := dialNBD("unix", w.sock, "disk")
	if err != nil {
		return err
	}
	defer c.close()
	for {
		pending := map[int]uint64{}
		for range 1 + w.rng.IntN(6) {
			fua := w.rng.IntN(4) == 0
			first, n, err := w.writeRun(c, fua)
			if err != nil {
				return err
			}
			for b := first; b < first+n; b++ {
				pending[b] = w.issued[b]
				if fua {
					w.durable[b] = w.issued[b]
				}
			}
		}
		if err := c.flush(); err != nil {
			return err
		}
		for b, v := range pending {
			w.durable[b] = v
			w.flushed.Add(1)
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// writeRun writes a few adjacent blocks, each in its next version, in one request.
func (w *blockWriter) writeRun(c *nbdClient, fua bool) (first, n int, err error) {
	n = 1 + w.rng.IntN(runBlocks)
	first = w.rng.IntN(blocks - n)
	var p []byte
	for b := first; b < first+n; b++ {
		w.issued[b]++
		p = append(p, block(b, w.issued[b])...)
	}
	return first, n, c.write(p, uint64(first)*blockBytes, fua)
}

// block is block b in version v; version 0 is a hole.
func block(b int, v uint64) []byte {
	if v == 0 {
		return make([]byte, blockBytes)
	}
	p := record(v<<16|uint64(b), b, blockBytes)
	binary.LittleEndian.PutUint64(p, v)
	return p
}

func (w *blockWriter) verify(t *testing.T, round int, victim string) {
	var c *nbdClient
	var err error
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if c, err = dialNBD("unix", w.sock, "disk"); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Errorf("round %d (%s): the volume cannot be reached: %v", round, victim, err)
		return
	}
	defer c.close()
	p := make([]byte, blockBytes)
	for b := range blocks {
		if err := c.read(p, uint64(b)*blockBytes); err != nil {
			t.Errorf("round %d (%s): block %d: %v", round, victim, b, err)
			return
		}
		if err := w.check(b, p); err != nil {
			t.Errorf("round %d (%s): %v", round, victim, err)
			return
		}
	}
}

func (w *blockWriter) check(b int, p []byte) error {
	v := binary.LittleEndian.Uint64(p)
	if v < w.durable[b] || v > w.issued[b] {
		return fmt.Errorf("block %d holds version %d, durable was %d, issued %d", b, v, w.durable[b],
			w.issued[b])
	}
	if !bytes.Equal(p, block(b, v)) {
		return fmt.Errorf("block %d is torn at version %d", b, v)
	}
	w.durable[b] = max(w.durable[b], v)
	return nil
}

func envInt(name string, fallback int) int {
	if v, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return v
	}
	return fallback
}
