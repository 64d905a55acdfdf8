package systest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const nbdCmdTrim = 4

// sharing is a volume that several gateways write to at the same time, one in each of the ways that
// data takes at the I/O servers, and what the volume must hold.
type sharing struct {
	c     *cluster
	ways  []string
	all   []*nbdClient
	model []byte
}

// sector is the unit in which a disk's users write beside each other.
const sector = 512

func shareVolume(t *testing.T) *sharing {
	t.Helper()
	const size = 16 << 20
	s := &sharing{c: startCluster(t, clusterOptions{iods: 2}), model: make([]byte, size),
		ways: []string{"cached", "direct", "cached-writes", "stream"}}
	s.c.sluice(t, "volume", "create", "--unit", "256K", "disk", fmt.Sprint(size))
	for _, way := range s.ways {
		sock := filepath.Join(t.TempDir(), "s")
		s.c.startNBD(t, sock, "name=disk,volume=disk,shared,mode="+way)
		client, err := dialNBD("unix", sock, "disk")
		must(t, err)
		t.Cleanup(client.close)
		s.all = append(s.all, client)
	}
	return s
}

// change has one gateway change a random range, and notes that in the model.
func (s *sharing) change(t *testing.T, rng *rand.Rand) (from, end int) {
	t.Helper()
	lengths := []int{sector, 3 * sector, 4096, 60 << 10, 256 << 10, 1 << 20}
	n := lengths[rng.IntN(len(lengths))]
	from = rng.IntN((len(s.model)-n)/sector) * sector
	end = from + n
	by := s.all[rng.IntN(len(s.all))]
	switch kind := rng.IntN(8); kind {
	case 0, 1:
		must(t, by.do([]uint16{nbdCmdTrim, nbdCmdZeroes}[kind], 0, uint64(from), uint32(n), nil, nil))
		clear(s.model[from:end])
	default:
		data := record(rng.Uint64(), 0, n)
		must(t, by.write(data, uint64(from), kind == 2))
		copy(s.model[from:end], data)
	}
	return from, end
}

// check reads a range, with what lies around it, through every gateway.
func (s *sharing) check(t *testing.T, from, end int, when string) {
	t.Helper()
	from, end = max(from-4096, 0), min(end+4096, len(s.model))
	got := make([]byte, end-from)
	for i, client := range s.all {
		must(t, client.read(got, uint64(from)))
		if !bytes.Equal(got, s.model[from:end]) {
			t.Errorf("%s: through the gateway in mode %s [%d, %d) is not what was written last",
				when, s.ways[i], from, end)
		}
	}
}

// TestSharedGateways: gateways that share a volume keep nothing of it. What one of them was told is
// written, trimmed or zeroed all of them read from then on, whatever way the data takes, and
// also when I/O servers have died since. That is what a cluster file system is built on.
func TestSharedGateways(t *testing.T) {
	t.Parallel()
	s := shareVolume(t)
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	rounds := envInt("SLUICE_SHARED_ROUNDS", 150)
	t.Logf("seed %d, %d rounds (SLUICE_SEED, SLUICE_SHARED_ROUNDS)", seed, rounds)
	rng := rand.New(rand.NewPCG(seed, 53))
	s.check(t, 0, len(s.model), "at the start")
	for round := range rounds {
		from, end := s.change(t, rng)
		if round%50 == 25 {
			s.c.kill(t, fmt.Sprint("iod", 1+rng.IntN(2)))
		}
		s.check(t, from, end, fmt.Sprintf("round %d, seed %d", round, seed))
		if t.Failed() {
			return
		}
	}
	s.check(t, 0, len(s.model), "at the end")
}

// beat is what one writer does to its sector, as the nodes of a cluster do to tell that they live:
// it writes a number, and the next one when that is answered.
type beat struct {
	told    atomic.Uint64 // the last that was answered
	started atomic.Uint64 // the last that was sent
}

func (b *beat) run(client *nbdClient, slot int, stop *atomic.Bool) error {
	p := make([]byte, sector)
	for n := uint64(1); !stop.Load(); n++ {
		for i := 0; i < sector; i += 8 {
			binary.LittleEndian.PutUint64(p[i:], n)
		}
		b.started.Store(n)
		if err := client.write(p, uint64(slot*sector), false); err != nil {
			return err
		}
		b.told.Store(n)
	}
	return nil
}

// look reads all sectors at once: each holds a number as a whole, at least the last that was
// answered before, at most the last that was sent.
func look(client *nbdClient, beats []beat) error {
	p := make([]byte, len(beats)*sector)
	least := make([]uint64, len(beats))
	for i := range beats {
		least[i] = beats[i].told.Load()
	}
	if err := client.read(p, 0); err != nil {
		return err
	}
	for i := range beats {
		own := p[i*sector:][:sector]
		n := binary.LittleEndian.Uint64(own)
		most := beats[i].started.Load()
		if n < least[i] || n > most || !bytes.Equal(own[8:], own[:sector-8]) {
			return fmt.Errorf("sector %d holds %d, between %d and %d were written", i, n, least[i], most)
		}
	}
	return nil
}

// TestSharedSectors: writers of different gateways write to sectors beside each other, in the same
// block of the I/O server. None loses what another one writes, nobody reads half of a
// write, and all see what was answered, also while the I/O server is killed.
func TestSharedSectors(t *testing.T) {
	t.Parallel()
	s := shareVolume(t)
	beats := make([]beat, len(s.all))
	var stop atomic.Bool
	var wg sync.WaitGroup
	fails := make(chan error, 2*len(beats))
	for i := range beats {
		wg.Go(func() {
			err := beats[i].run(s.all[i], i, &stop)
			stop.Store(true)
			fails <- err
		})
	}
	readers := make([]*nbdClient, len(s.all))
	for i := range readers {
		client, err := dialNBD("unix", s.all[i].conn.RemoteAddr().String(), "disk")
		must(t, err)
		defer client.close()
		readers[i] = client
		wg.Go(func() {
			for !stop.Load() {
				if err := look(client, beats); err != nil {
					fails <- fmt.Errorf("mode %s: %w", s.ways[i], err)
					stop.Store(true)
					return
				}
			}
			fails <- nil
		})
	}
	for kills := 0; kills < 2 && !stop.Load(); kills++ {
		for first := beats[0].told.Load(); beats[0].told.Load() < first+30 && !stop.Load(); {
			time.Sleep(5 * time.Millisecond)
		}
		s.c.kill(t, "iod1")
		s.c.kill(t, "iod2")
	}
	for first := beats[0].told.Load(); beats[0].told.Load() < first+30 && !stop.Load(); {
		time.Sleep(5 * time.Millisecond)
	}
	stop.Store(true)
	wg.Wait()
	close(fails)
	for err := range fails {
		must(t, err)
	}
	must(t, look(readers[0], beats))
	t.Logf("%d writes to the first sector", beats[0].told.Load())
}
