package logstore

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/stripe"
	"github.com/sluice-storage/sluice/stripe/device"
)

// Problem is something that a check or a scrub has found.
type Problem struct {
	Device string
	Object stripe.ObjectID // the zero id: the index itself
	Off    int64           // of the object, or of the index
	What   string
}

func (p Problem) String() string {
	if p.Object == (stripe.ObjectID{}) {
		return fmt.Sprintf("%s: index: %s", p.Device, p.What)
	}
	return fmt.Sprintf("%s: object %v offset %d: %s", p.Device, p.Object, p.Off, p.What)
}

// Scrubbed tells what a check or a scrub has read.
type Scrubbed struct {
	Objects  uint64
	Bytes    uint64 // verified, to clusters of 64 KiB; holes are none
	Problems uint64
}

// ScrubOptions say how to read.
type ScrubOptions struct {
	// BytesPerSecond limits the rate; 0 is no limit.
	BytesPerSecond int64

	// Report is called for every problem. nil: they are only counted.
	Report func(Problem)

	// Progress is told how many bytes of how many are read, of one member. nil: nobody is told.
	Progress func(device string, done, total int64)
}

// Scrub reads and verifies everything that the store holds, while it works. It returns an error
// only when it could not go on; what it finds goes to Report.
func (s *Store) Scrub(ctx context.Context, o ScrubOptions) (Scrubbed, error) {
	var all Scrubbed
	for _, m := range s.members {
		one, err := m.scrub(ctx, o)
		all.Objects += one.Objects
		all.Bytes += one.Bytes
		all.Problems += one.Problems
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// scrubBytes is how much is read in one step.
const scrubBytes = 1 << 20

func (m *member) scrub(ctx context.Context, o ScrubOptions) (Scrubbed, error) {
	r := scrubRun{m: m, opt: o, buf: bounceBytes(scrubBytes / blockBytes),
		second: bounceBytes(scrubBytes / blockBytes), begin: time.Now()}
	defer freeBounce(r.buf)
	defer freeBounce(r.second)
	m.mu.Lock()
	objects := make([]*object, 0, len(m.objects))
	for _, o := range m.objects {
		objects = append(objects, o)
		r.total += o.clusters * clusterBytes
	}
	lost := m.table.lost
	ranges := [2]pageRange{m.clusterPagesLocked(), m.slotPagesLocked()}
	for _, x := range ranges {
		r.total += 2 * (x.end - x.first) * blockBytes
	}
	m.mu.Unlock()
	if lost > 0 {
		r.report(Problem{Device: m.dev.Name(), What: fmt.Sprintf("%d entries are lost: holes of "+
			"objects cannot be told from lost data; restore the store from a copy", lost)})
	}
	for _, x := range ranges {
		if err := r.index(ctx, x); err != nil {
			return r.done, err
		}
	}
	for _, o := range objects {
		if err := r.object(ctx, o); err != nil {
			return r.done, err
		}
	}
	r.tell()
	return r.done, nil
}

// scrubRun is one scrub of one member.
type scrubRun struct {
	m      *member
	opt    ScrubOptions
	buf    []byte
	second []byte
	begin  time.Time
	done   Scrubbed
	total  int64 // bytes to read, as of the beginning
}

// tell reports how far it is.
func (r *scrubRun) tell() {
	if r.opt.Progress != nil {
		r.opt.Progress(r.m.dev.Name(), int64(r.done.Bytes), max(r.total, int64(r.done.Bytes)))
	}
}

func (r *scrubRun) report(p Problem) {
	r.done.Problems++
	if r.opt.Report != nil {
		r.opt.Report(p)
	}
}

func (r *scrubRun) object(ctx context.Context, o *object) error {
	m := r.m
	r.done.Objects++
	m.mu.Lock()
	keys := o.leavesIn(0, stripe.MaxObjectBytes/clusterBytes)
	m.mu.Unlock()
	for _, key := range keys {
		r.tell()
		if err := r.pace(ctx); err != nil {
			return err
		}
		off := key << leafShift * clusterBytes
		err := m.readGuarded(o, [][]byte{r.buf}, off, scrubBytes)
		r.done.Bytes += m.bytesIn(o, key)
		if errs.KindOf(err) == errs.Closed {
			return err
		}
		if err == nil {
			continue
		}
		for at := off; at < off+scrubBytes; at += blockBytes {
			if err := m.readGuarded(o, [][]byte{r.buf[:blockBytes]}, at, blockBytes); err != nil {
				r.report(Problem{m.dev.Name(), o.id, at, err.Error()})
			}
		}
	}
	return nil
}

// bytesIn is how many bytes of a leaf are not holes, to a cluster.
func (m *member) bytesIn(o *object, key int64) (n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := o.leaves[key]; l != nil {
		for _, c := range l {
			if c != 0 {
				n += clusterBytes
			}
		}
	}
	return n
}

// readGuarded reads an object that is at hand, fenced or not.
func (m *member) readGuarded(o *object, bufs [][]byte, off, n int64) error {
	m.life.RLock()
	defer m.life.RUnlock()
	m.mu.Lock()
	closing, gone := m.closing, o.gone
	m.mu.Unlock()
	if closing {
		return errs.New(errs.Closed, "logstore.Scrub", m.dev.Name(), nil)
	}
	if gone {
		return nil
	}
	return m.read(o, bufs, off, n)
}

// pace waits until the next step is due.
func (r *scrubRun) pace(ctx context.Context) error {
	if r.opt.BytesPerSecond <= 0 {
		return ctx.Err()
	}
	due := r.begin.Add(time.Duration(float64(r.done.Bytes) / float64(r.opt.BytesPerSecond) *
		float64(time.Second)))
	t := time.NewTimer(time.Until(due))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Check looks at a store that nobody has open: members, index and log, the agreement between them,
// and every block. It changes nothing; the log is replayed in memory.
func Check(ctx context.Context, o Options, report func(Problem)) (Scrubbed, error) {
	return CheckWith(ctx, o, ScrubOptions{Report: report})
}

// CheckWith is Check at a limited rate, or with somebody who wants to know how far it is.
func CheckWith(ctx context.Context, o Options, how ScrubOptions) (Scrubbed, error) {
	o = o.withDefaults()
	if err := o.validate("logstore.Check"); err != nil {
		return Scrubbed{}, err
	}
	s := &Store{opt: o}
	if err := s.checkMembers("logstore.Check"); err != nil {
		return Scrubbed{}, err
	}
	var all Scrubbed
	for _, dev := range o.Devices {
		one, err := checkMember(ctx, dev, o, how)
		all.Objects += one.Objects
		all.Bytes += one.Bytes
		all.Problems += one.Problems
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func checkMember(ctx context.Context, dev device.Device, o Options,
	how ScrubOptions) (Scrubbed, error) {
	m, err := loadForLook(dev, o)
	if err != nil {
		return Scrubbed{}, err
	}
	defer m.pool.close()
	problems := uint64(0)
	report := func(p Problem) {
		problems++
		if how.Report != nil {
			how.Report(p)
		}
	}
	m.auditCopies(report)
	m.audit(report)
	done, err := m.scrub(ctx, how)
	done.Problems += problems
	return done, err
}

// auditCopies looks at what there is twice, but for the index: that is the scrub's.
func (m *member) auditCopies(report func(Problem)) {
	const remedy = "the other copy is whole, opening the store repairs it"
	if m.super.bad != nil {
		report(Problem{Device: m.dev.Name(), What: fmt.Sprintf("superblock %d: %v: %s",
			1-m.super.copy, m.super.bad, remedy)})
	}
	for i := range 2 {
		if err := m.loadSessions(i); err != nil {
			report(Problem{Device: m.dev.Name(), What: fmt.Sprintf("%v: %s", err, remedy)})
		}
	}
}

// loadForLook loads a member without writing: all of the log's blocks fit into memory.
func loadForLook(dev device.Device, o Options) (*member, error) {
	sup, err := readSuper(dev)
	if err != nil {
		return nil, err
	}
	opt := o.member()
	opt.pendingBlocks = int(sup.logBytes / blockBytes)
	m, err := loadMember(dev, opt)
	if err == nil {
		m.looking = true
	}
	return m, err
}

// audit holds the maps against the index and against each other.
func (m *member) audit(report func(Problem)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	owner := map[uint32]stripe.ObjectID{}
	bad := func(id stripe.ObjectID, off int64, format string, args ...any) {
		report(Problem{m.dev.Name(), id, off, fmt.Sprintf(format, args...)})
	}
	for id, o := range m.objects {
		e := m.table.slotEntry(o.slot)
		if e.kind() != typeObject || e.id() != id {
			bad(id, 0, "slot %d does not hold the object", o.slot)
		}
		var clusters int64
		var blocks blockCounts
		o.each(0, stripe.MaxObjectBytes/clusterBytes, func(index int64, c uint32) {
			clusters++
			e := m.table.clusterEntry(c)
			if e.kind() != typeCluster || e.id() != id || e.index() != index {
				bad(id, index*clusterBytes, "cluster %d says it holds %v at %d", c, e.id(), e.index())
			}
			if !m.alloc.inUse(c) {
				bad(id, index*clusterBytes, "cluster %d is in use and free", c)
			}
			if other, twice := owner[c]; twice {
				bad(id, index*clusterBytes, "cluster %d belongs to %v too", c, other)
			}
			owner[c] = id
			if e.mask()|e.held() == 0 {
				bad(id, index*clusterBytes, "cluster %d holds nothing", c)
			}
			blocks.add(e.counts())
			if end := (o.size + blockBytes - 1) / blockBytes; beyond(e.mask(), index, end) {
				bad(id, index*clusterBytes, "blocks behind the object's end at %d", o.size)
			}
		})
		if clusters != o.clusters {
			bad(id, 0, "%d clusters are counted, %d are there", o.clusters, clusters)
		}
		if blocks != o.blocks {
			bad(id, 0, "%+v blocks are counted, %+v are there", o.blocks, blocks)
		}
	}
}

// beyond tells whether a cluster has blocks from block end of the object on.
func beyond(mask uint16, index, end int64) bool {
	keep := min(max(end-index*clusterBlocks, 0), clusterBlocks)
	return uint32(mask)>>keep != 0
}
