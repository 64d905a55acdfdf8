package systest

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	crowdIdle  = 1000
	crowdBusy  = 200
	crowdDepth = 32 // requests of 256 KiB on each busy connection: together six times the bound

	// What they may take. A connection has 40 KiB of buffers (nbd.Config) and two goroutines; the
	// server bounds payloads to 256 MiB and keeps a quarter more at hand, and Go collects when a heap
	// has doubled.
	crowdIdleBytes = 96 << 10
	crowdBusyBytes = 2 * (256 + 64) << 20

	// crowdShare is the least that the slowest may have of what the fastest has. Scheduling on a busy
	// machine is coarse; a connection that is starved has next to nothing.
	crowdShare = 0.03
)

// TestBlockCrowd: a thousand idle connections and two hundred that ask for more than there is
// memory cost a bounded amount of it, and each has its share.
func TestBlockCrowd(t *testing.T) {
	k := exportKind{export: "file=$1", files: 1}
	d := k.serve(t)
	pid := d.cmd.Process.Pid
	base := residentBytes(t, pid)
	idle := connectMany(t, d, crowdIdle)
	withIdle := residentBytes(t, pid)
	t.Logf("%d idle connections: %d KiB each", crowdIdle, (withIdle-base)/crowdIdle>>10)
	if got := withIdle - base; got > crowdIdle*crowdIdleBytes {
		t.Errorf("%d idle connections take %d MiB, at most %d MiB are asked for", crowdIdle, got>>20,
			crowdIdle*crowdIdleBytes>>20)
	}
	busy := connectMany(t, d, crowdBusy)
	peak, counts := press(t, pid, busy)
	slices.Sort(counts)
	share := float64(counts[0]) / float64(counts[len(counts)-1])
	t.Logf("%d busy connections: %d MiB at most; requests of the slowest, the median, the fastest: "+
		"%d, %d, %d: a share of %.2f", crowdBusy, (peak-withIdle)>>20, counts[0],
		counts[len(counts)/2], counts[len(counts)-1], share)
	if got := peak - withIdle; got > crowdBusyBytes {
		t.Errorf("busy connections take %d MiB, at most %d are asked for", got>>20, crowdBusyBytes>>20)
	}
	if share < crowdShare {
		t.Errorf("the slowest has %.3f of what the fastest has", share)
	}
	p := make([]byte, 512)
	for i, c := range idle {
		if err := c.read(p, uint64(i)*512); err != nil {
			t.Fatalf("connection %d, which was idle: %v", i, err)
		}
	}
}

// connectMany opens many connections, a few at a time.
func connectMany(t *testing.T, d *device, n int) []*nbdClient {
	t.Helper()
	all := make([]*nbdClient, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			c, err := dialNBD("unix", d.sock, "disk")
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
				return
			}
			_ = c.conn.SetDeadline(time.Now().Add(programLimit))
			all[i] = c
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, c := range all {
			if c != nil {
				c.close()
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// press has connections read as much as they can, until the slowest has had enough to tell. It
// returns the most memory that the server had, and how many requests each got answered.
func press(t *testing.T, pid int, conns []*nbdClient) (peak int64, counts []int64) {
	t.Helper()
	const enough, size = 60, 256 << 10
	done := make([]atomic.Int64, len(conns))
	var late atomic.Int64 // connections that have had enough
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			if err := c.pipeline(size, crowdDepth, stop, func() {
				if done[i].Add(1) == enough {
					late.Add(1)
				}
			}); err != nil {
				t.Errorf("busy connection %d: %v", i, err)
				late.Add(int64(len(conns)))
			}
		})
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		peak = max(peak, residentBytes(t, pid))
		if late.Load() >= int64(len(conns)) || time.Now().After(end) {
			break
		}
	}
	for i := range done {
		counts = append(counts, done[i].Load())
	}
	close(stop)
	wg.Wait()
	return peak, counts
}

// pipeline keeps reads under way until stop, and takes all answers.
func (c *nbdClient) pipeline(size uint32, depth int, stop chan struct{}, each func()) error {
	send := func(i int) error {
		b := binary.BigEndian.AppendUint32(nil, nbdRequest)
		b = binary.BigEndian.AppendUint32(b, nbdCmdRead) // no flags
		b = binary.BigEndian.AppendUint64(b, uint64(i))
		b = binary.BigEndian.AppendUint64(b, uint64(i)*uint64(size)%deviceBytes)
		_, err := c.conn.Write(binary.BigEndian.AppendUint32(b, size))
		return err
	}
	sent, h := 0, make([]byte, 16)
	for ; sent < depth; sent++ {
		if err := send(sent); err != nil {
			return err
		}
	}
	for got := 0; got < sent; got++ {
		if _, err := io.ReadFull(c.conn, h); err != nil {
			return err
		}
		if errno := binary.BigEndian.Uint32(h[4:]); errno != 0 {
			return fmt.Errorf("nbd error %d", errno)
		}
		if _, err := io.CopyN(io.Discard, c.conn, int64(size)); err != nil {
			return err
		}
		each()
		if isClosed(stop) {
			continue
		}
		if err := send(sent); err != nil {
			return err
		}
		sent++
	}
	return nil
}

// residentBytes is the memory of a process that is its own; pages of files do not count.
func residentBytes(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			must(t, err)
			return n << 10
		}
	}
	t.Fatalf("process %d does not tell its memory", pid)
	return 0
}
