package logstore

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// Item is one thing that a dump shows. What a kind does not have stays zero.
type Item struct {
	Kind   string `json:"kind"` // superblock, batch, record, request, block, move, object, ...
	Device string `json:"device,omitempty"`
	Object string `json:"object,omitempty"` // file.generation.stripe
	Text   string `json:"text"`             // the same for people

	Position uint64 `json:"position,omitempty"` // batch: in the log
	Bytes    int64  `json:"bytes,omitempty"`    // batch: in the log; object: its size
	Number   uint64 `json:"number,omitempty"`   // record
	What     string `json:"what,omitempty"`     // record: write, truncate, remove or fence
	TruncSeq uint64 `json:"truncseq,omitempty"` // record, object
	Epoch    uint32 `json:"epoch,omitempty"`    // record, object
	Index    int64  `json:"index,omitempty"`    // block, move, cluster: place in the object
	Cluster  uint32 `json:"cluster,omitempty"`  // block, move, cluster: place on the device
	Blocks   int64  `json:"blocks,omitempty"`   // batch: how many; move, cluster: a bit for each
	Sum      uint32 `json:"sum,omitempty"`      // block
}

// errEnough ends a walk whose caller has seen enough.
var errEnough = errors.New("enough")

// Walk calls fn for what is on a member until it returns false, for people who look for a fault:
// the superblock, the log's batches and records, then the objects with their clusters, and fences.
// It changes nothing.
func Walk(dev device.Device, o Options, fn func(Item) bool) error {
	o = o.withDefaults()
	m, err := loadForLook(dev, o)
	if err != nil {
		return err
	}
	defer m.pool.close()
	emit := func(it Item) error {
		if !fn(it) {
			return errEnough
		}
		return nil
	}
	err = m.walkSuper(emit)
	if err == nil {
		err = m.walkRecords(emit)
	}
	if err == nil {
		err = m.walkObjects(emit)
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// Dump writes everything that Walk finds, a line each.
func Dump(w io.Writer, dev device.Device, o Options) error {
	var failed error
	err := Walk(dev, o, func(it Item) bool {
		_, failed = fmt.Fprintln(w, it.Text)
		return failed == nil
	})
	return errors.Join(err, failed)
}

func (m *member) walkSuper(emit func(Item) error) error {
	s := &m.super
	return emit(Item{Kind: "superblock", Device: m.dev.Name(), Number: s.seq, Position: s.tail,
		Bytes: s.logBytes, Text: fmt.Sprintf("member %d of %d of store %x on %s\n"+
			"superblock %d: clean %v, log %d bytes from position %d, record %d\n"+
			"data %d clusters at %d, tables at %d and %d, %d slots", s.index+1, s.members, s.storeID,
			m.dev.Name(), s.seq, s.clean, s.logBytes, s.tail, s.record, s.clusters, m.g.dataAt,
			m.g.tableAt[0], m.g.tableAt[1], s.slots)})
}

func (m *member) walkRecords(emit func(Item) error) error {
	r := newLogReader(m)
	defer r.close()
	end := m.log.head
	m.log.head, m.log.chain = m.super.tail, m.super.chain
	return m.walkLog(r, end, func(info *batchInfo, head, _ []byte) (bool, error) {
		err := emit(Item{Kind: "batch", Position: info.pos, Bytes: info.bytes(),
			Blocks: int64(info.blocks), Text: fmt.Sprintf("batch at %d: %d bytes, %d blocks, "+
				"stable to %d", info.pos, info.bytes(), info.blocks, info.stable)})
		if err != nil {
			return false, err
		}
		return true, m.eachRecord(head, func(r *record) error { return walkRecord(r, emit) })
	})
}

func walkRecord(r *record, emit func(Item) error) error {
	kinds := [...]string{"", "write", "truncate", "remove", "fence", "reserve"}
	id := r.id.String()
	err := emit(Item{Kind: "record", Object: id, Number: r.number, What: kinds[r.kind],
		Bytes: r.size, TruncSeq: r.st.TruncSeq, Epoch: r.st.Epoch,
		Text: fmt.Sprintf("  record %d: %s %v size %d truncseq %d epoch %d life %x session %d.%d.%d",
			r.number, kinds[r.kind], r.id, r.size, r.st.TruncSeq, r.st.Epoch, r.st.Life,
			r.st.Session, r.st.Slot, r.st.Seq)})
	for i := 0; i < len(r.requests) && err == nil; i++ {
		x := &r.requests[i]
		err = emit(Item{Kind: "request", Object: id, Number: r.number,
			Text: fmt.Sprintf("    also session %d.%d.%d", x.Session, x.Slot, x.Seq)})
	}
	for i := 0; i < len(r.blocks) && err == nil; i++ {
		x := &r.blocks[i]
		err = emit(Item{Kind: "block", Object: id, Index: x.block, Cluster: x.cluster, Sum: x.sum,
			Text: fmt.Sprintf("    block %d in cluster %d, sum %08x", x.block, x.cluster, x.sum)})
	}
	for i := 0; i < len(r.clusters) && err == nil; i++ {
		x := &r.clusters[i]
		err = emit(Item{Kind: "move", Object: id, Index: x.index, Cluster: x.cluster,
			Blocks: int64(x.mask), Text: fmt.Sprintf("    cluster %d is now %d, blocks %04x",
				x.index, x.cluster, x.mask)})
	}
	return err
}

func (m *member) walkObjects(emit func(Item) error) error {
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
		if err := m.walkObject(m.objects[id], emit); err != nil {
			return err
		}
	}
	for file, f := range m.fences {
		err := emit(Item{Kind: "fence", Object: fmt.Sprintf("%d.%d", file, f.gen),
			Epoch: f.epoch, Text: fmt.Sprintf("fence: file %d, generations from %d on, writers from %d on",
				file, f.gen, f.epoch)})
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *member) walkObject(o *object, emit func(Item) error) error {
	id := o.id.String()
	err := emit(Item{Kind: "object", Object: id, Bytes: o.size, TruncSeq: o.truncSeq, Epoch: o.epoch,
		Text: fmt.Sprintf("object %v: size %d, truncseq %d, epoch %d, lives %x and %x, slot %d, %d "+
			"clusters", id, o.size, o.truncSeq, o.epoch, o.lives.Last, o.lives.Before, o.slot, o.clusters)})
	if err != nil {
		return err
	}
	for _, key := range o.leavesIn(0, stripe.MaxObjectBytes/clusterBytes) {
		for i, c := range o.leaves[key] {
			if c == 0 {
				continue
			}
			index, e := key<<leafShift+int64(i), m.table.clusterEntry(c-1)
			err := emit(Item{Kind: "cluster", Object: id, Index: index, Cluster: c - 1,
				Blocks: int64(e.mask()), Text: fmt.Sprintf("  cluster %d at %d, blocks %04x, reserved %04x",
					index, c-1, e.mask(), e.held()&^e.mask())})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
