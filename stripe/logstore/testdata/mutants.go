package logstore

import "github.com/sluice-storage/sluice/stripe/device"

// applyEarly is what the mutant applyBeforeLog does.
func (m *member) applyEarly(o *object, j *job) {
	for i := range j.rec.blocks {
		x := &j.rec.blocks[i]
		m.mu.Lock()
		c, ok := o.cluster(x.block / clusterBlocks)
		m.mu.Unlock()
		if ok {
			_ = m.do([]*device.Op{{Kind: device.Write, Bufs: [][]byte{x.data.buf},
				Off: m.g.blockOff(c, int(x.block%clusterBlocks))}})
		}
	}
}
