package logstore

import "github.com/sluice-storage/sluice/stripe/device"

// defect is a set of planted defects. The mutation check plants one after the other and demands
// that the crash enumeration or a fault test finds it; nobody else plants any.
type defect uint32

const (
	skipLogSync      defect = 1 << iota // a durable batch is not made stable
	skipFlush                           // a checkpoint does not sync before it moves the tail
	applyBeforeLog                      // blocks are written in place before they are logged
	wrongSeed                           // checksums are not seeded
	switchBeforeData                    // the map is switched before the data is written
	believeTorn                         // a torn batch is replayed
	freeEarly                           // a cluster is free at once, not after a checkpoint
	releaseEarly                        // log space is released before the superblock says so
	loseTruncate                        // truncates are not logged
	forgetFence                         // fences are not logged
	ignoreChain                         // batches of an earlier life are replayed
	trustLoose                          // clusters written without a sync are believed
	pagesBeforeLog                      // pages are written before the records they know are stable
	forgetSessions                      // a checkpoint does not keep the sessions
	forgetMerged                        // further requests of a write are not logged
)

// applyEarly is what applyBeforeLog does.
func (m *member) applyEarly(o *object, j *job) {
	for i := range j.rec.blocks {
		x := &j.rec.blocks[i]
		m.mu.Lock()
		c, ok := o.cluster(x.block / clusterBlocks)
		m.mu.Unlock()
		if ok {
			_ = m.do(&device.Op{Kind: device.Write, Bufs: [][]byte{x.data.buf},
				Off: m.g.blockOff(c, int(x.block%clusterBlocks))})
		}
	}
}
