package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-storage/sluice/capability"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/logstore"
	"github.com/sluice-storage/sluice/stripe/memstore"
)

// storePaths are the members of an I/O server's store: a folder of the cluster's, or a folder below
// each of the places that the cluster was made with; a block device is a member itself.
func (c *cluster) storePaths(id int) []string { return c.pathsOf(c.stores(), id) }

func (c *cluster) pathsOf(stores map[int][]string, id int) []string {
	if paths := stores[id]; len(paths) > 0 {
		return paths
	}
	if len(c.cfg.Stores) == 0 {
		return []string{c.iodDir(id)}
	}
	var paths []string
	for _, place := range c.cfg.Stores {
		if !isBlockDevice(place) {
			place = filepath.Join(place, fmt.Sprintf("iod%d", id))
		}
		paths = append(paths, place)
	}
	return paths
}

// stores are the stores of this host's servers by their numbers, as whoever runs them has noted;
// nil: nobody has, and they are where the cluster was made to have them.
func (c *cluster) stores() map[int][]string {
	text, err := os.ReadFile(c.storesFile())
	var stores map[int][]string
	if err != nil || json.Unmarshal(text, &stores) != nil {
		return nil
	}
	return stores
}

// servers are the numbers of this host's I/O servers.
func (c *cluster) servers() []int { return c.numbers(c.stores()) }

func (c *cluster) numbers(stores map[int][]string) []int {
	if stores != nil {
		return slices.Sorted(maps.Keys(stores))
	}
	var all []int
	for id := 1; id <= c.cfg.Iods; id++ {
		all = append(all, id)
	}
	return all
}

// checkStores refuses places that cannot hold the stores of that many servers.
func checkStores(places []string, iods int) error {
	for _, place := range places {
		if isBlockDevice(place) && iods > 1 {
			return refuse(fmt.Sprintf("--store %s: one device for %d I/O servers", place, iods),
				"Add --iods 1, or give folders")
		}
	}
	return nil
}

// openStore opens the engine of an I/O server. Folders become a store if they are empty; a block
// device was made into one by sluice store init. life is 0 unless the store is gone with the
// process.
func (c *cluster) openStore(p *iodParts) (s stripe.Engine, storeID uint64, life uint32, err error) {
	if c.cfg.Mem {
		s, err := openMemoryStore(0)
		// The store is empty after each start. Its id stays the same, so that the server is welcome
		// back; its life tells that what it had is lost.
		return s, c.clusterID() ^ uint64(p.id), 1 + rand.Uint32N(capability.Lost-1), err
	}
	each := int64(p.plan.members)
	disk, err := logstore.OpenPaths(logstore.PathOptions{
		Paths: p.paths, Make: true, ServerID: uint64(p.id), LogBytes: c.logBytes(),
		PendingBytes: p.plan.pending / each, IndexBytes: p.plan.index / each,
		ReserveBytes: p.reserve, Bytes: p.bytes, Logger: p.log,
	})
	if err != nil {
		return nil, 0, 0, openAdvice(err, p.paths)
	}
	name := disk.ID()
	return disk, binary.BigEndian.Uint64(name[:8]), 0, nil
}

// openAdvice says what to do when a server's store does not open.
func openAdvice(err error, paths []string) error {
	switch errs.KindOf(err) {
	case errs.Version, errs.NotEmpty, errs.Exists:
		return hint(err, "Choose another folder: sluice up --dir, or --store")
	case errs.Corrupt, errs.Invalid:
		return hint(err, "See what is there: sluice store info %[1]s   and: sluice store check %[1]s",
			storeArgs(paths))
	}
	return storeAdvice(err)
}

// logBytes is the size of the log of a store that is made. Servers of one cluster on one host share
// its disks: together they have as much as one store has by default.
func (c *cluster) logBytes() int64 {
	const all, least = 128 << 20, 16 << 20
	return max(all/int64(max(len(c.servers()), 1)), least)
}

// sharers counts the servers whose store is on the same disk as this one's, so that its room is not
// counted several times.
func (c *cluster) sharers(id int) int {
	if c.cfg.Mem {
		return 1
	}
	n := 0
	var own, other unix.Stat_t
	stores := c.stores()
	for _, i := range c.numbers(stores) {
		mine, theirs := c.pathsOf(stores, id)[0], c.pathsOf(stores, i)[0]
		if unix.Stat(mine, &own) == nil && unix.Stat(theirs, &other) == nil && own.Dev == other.Dev {
			n++
		}
	}
	return n
}

// openMemoryStore makes a store in memory; 0 bytes means its default.
func openMemoryStore(bytes int64) (stripe.Engine, error) {
	return memstore.New(memstore.Options{MaxBytes: bytes})
}

// absolutePaths makes paths mean the same in every process.
func absolutePaths(paths []string) ([]string, error) {
	var list []string
	for _, p := range paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(abs); err != nil {
			return nil, refuse("--store "+p+": "+err.Error(), "Make the folder, or name a block device")
		}
		list = append(list, abs)
	}
	return list, nil
}
