package logstore

import (
	"fmt"
)

// MemberInfo is what a member says of itself.
type MemberInfo struct {
	Device   string `json:"device"`
	StoreID  string `json:"store_id"`
	Format   int    `json:"format"`
	Member   int    `json:"member"`
	Members  int    `json:"members"`
	ServerID uint64 `json:"server_id"`
	Bytes    int64  `json:"bytes"`     // of the device
	Data     int64  `json:"data"`      // bytes for data
	LogBytes int64  `json:"log_bytes"` // of the log
	LogUsed  int64  `json:"log_used"`  // that a restart would read
	Clean    bool   `json:"clean"`     // closed in order
	Objects  int    `json:"objects"`
	Used     int64  `json:"used"` // bytes of clusters in use
	Fences   int    `json:"fences"`
	Sessions int    `json:"sessions"` // slots whose last request is remembered

	// Memory of a server that has the store open: of what is logged and not yet in place (at most),
	// of the index's pages that are in use now (bounded by Options.IndexBytes) and of the maps.
	PendingMemory int64 `json:"pending_memory"`
	IndexMemory   int64 `json:"index_memory"`
	MapMemory     int64 `json:"map_memory"`
}

// Inspect tells about the members of a store that nobody needs to have closed; of one that is open
// it sees what the disk has.
func Inspect(o Options) ([]MemberInfo, error) {
	o = o.withDefaults()
	var all []MemberInfo
	for _, dev := range o.Devices {
		m, err := loadForLook(dev, o)
		if err != nil {
			return all, err
		}
		info := m.describe(o)
		all = append(all, info)
		m.pool.close()
	}
	return all, nil
}

// describe tells about a member that was loaded for a look.
func (m *member) describe(o Options) MemberInfo {
	info := MemberInfo{
		Device: m.dev.Name(), StoreID: fmt.Sprintf("%x", m.storeID), Format: formatVersion,
		Member: int(m.super.index) + 1, Members: int(m.super.members), ServerID: m.super.serverID,
		Bytes: m.dev.Size(), Data: int64(m.g.clusters) * clusterBytes, LogBytes: m.g.logBytes,
		LogUsed: int64(m.log.head - m.super.tail), Clean: m.super.clean,
		Objects: len(m.objects), Fences: len(m.fences), Sessions: int(m.super.sessions),
	}
	clusters := int64(0)
	for _, o := range m.objects {
		clusters += o.clusters
		info.MapMemory += objectMemory + int64(len(o.leaves))*leafMemory
	}
	info.Used = clusters * clusterBytes
	pages := int64(m.alloc.high)/tableEntries + int64(m.slots.high)/tableEntries + 2
	info.IndexMemory = min(pages*blockBytes, o.IndexBytes)
	info.PendingMemory = int64(max(o.member().pendingBlocks, 2*m.g.batchBlocksMax)) * blockBytes
	return info
}

<<<<<<< Updated upstream
// What maps take, about: an object with its entry in the map of objects; a leaf with its entry.
const (
	objectMemory = 250
	leafMemory   = 100
)
=======
func (m *member) dumpLog(w io.Writer) error {
	r := newLogReader(m)
	defer r.close()
	end := m.log.head
	m.log.head, m.log.chain = m.super.tail, m.super.chain
	kinds := [...]string{"", "write", "truncate", "remove", "fence"}
	return m.walkLog(r, end, func(info *batchInfo, head, _ []byte) (bool, error) {
		fmt.Fprintf(w, "batch at %d: %d bytes, %d blocks, stable to %d\n", info.pos, info.bytes(),
			info.blocks, info.stable)
		return true, m.eachRecord(head, func(r *record) error {
			fmt.Fprintf(w, "  record %d: %s %v size %d truncseq %d epoch %d session %d.%d.%d\n",
				r.number, kinds[r.kind], r.id, r.size, r.st.TruncSeq, r.st.Epoch, r.st.Session,
				r.st.Slot, r.st.Seq)
			for _, x := range r.blocks {
				fmt.Fprintf(w, "    block %d in cluster %d, sum %08x\n", x.block, x.cluster, x.sum)
			}
			for _, x := range r.clusters {
				fmt.Fprintf(w, "    cluster %d is now %d, blocks %04x\n", x.index, x.cluster, x.mask)
			}
			return nil
		})
	})
}

func (m *member) dumpObjects(w io.Writer) {
	var ids []stripe.ObjectID
	for id := range m.objects {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool {
		a, b := ids[i], ids[j]
		if a.File != b.File {
			return a.File < b.File
		}
		return a.Gen < b.Gen || a.Gen == b.Gen && a.Stripe < b.Stripe
	})
	for _, id := range ids {
		o := m.objects[id]
		fmt.Fprintf(w, "object %v: size %d, truncseq %d, epoch %d, slot %d, %d clusters\n", id, o.size,
			o.truncSeq, o.epoch, o.slot, o.clusters)
		for _, key := range o.leavesIn(0, stripe.MaxObjectBytes/clusterBytes) {
			for i, c := range o.leaves[key] {
				if c != 0 {
					fmt.Fprintf(w, "  cluster %d at %d, blocks %04x\n", key<<leafShift+int64(i), c-1,
						m.table.clusterEntry(c-1).mask())
				}
			}
		}
	}
	for file, f := range m.fences {
		fmt.Fprintf(w, "fence: file %d, generations from %d on\n", file, f.gen)
	}
}
>>>>>>> Stashed changes
