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

// What maps take, about: an object with its entry in the map of objects; a leaf with its entry.
const (
	objectMemory = 250
	leafMemory   = 100
)
