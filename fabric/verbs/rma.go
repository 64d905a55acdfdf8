//go:build cgo && linux && (amd64 || arm64)

package verbs

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
)

// grant is one right on one piece of memory for the peer of one endpoint.
//
// With windows: a memory window of type 2 is bound by a request on the endpoint's queue pair, which
// binds it to that queue pair too, and invalidated by another one. Without: the piece is registered
// with remote rights, and the registration ends with the grant; its key works on every connection
// of the device's domain.
//
// A key is the device's key (low 32 bits), which the peer uses, and the grant's number (high 32
// bits), which only this side uses: devices reuse their keys.
type grant struct {
	region *region
	ep     *endpoint
	mem    []byte
	rights fabric.Rights
	number uint32
	mw     *cMW
	mr     *cMR // a registration of its own
	rkey   atomic.Uint32
	shut   atomic.Bool // the device has invalidated the window
	asked  atomic.Bool // a call invalidates it

	// Guarded by grantTable.mu, as mw and mr are.
	gone  bool // not in the table any more
	users int  // calls that hold a pointer to it
	place int  // in endpoint.owned
}

func (g *grant) key() uint64 { return uint64(g.number)<<32 | uint64(g.rkey.Load()) }

func (g *grant) access() int {
	access := 0
	if g.rights&fabric.RemoteRead != 0 {
		access |= accessRemoteRead
	}
	if g.rights&fabric.RemoteWrite != 0 {
		access |= accessRemoteWrite
	}
	return access
}

// arm makes the memory accessible. A grant of no bytes needs nothing.
func (g *grant) arm() error {
	e, dev := g.ep, g.ep.dev
	if len(g.mem) == 0 {
		return nil
	}
	mr := g.region.mrs[dev.index]
	if !dev.info.windows || dev.info.soft {
		// Soft-RoCE checks a window's range against the registration below it only, so that one
		// is made to fit.
		access := accessLocal | accessBind
		if !dev.info.windows {
			access = accessLocal | g.access()
		}
		own, err := registerMemory(dev.pd, g.mem, uint64(addrOf(g.mem)), access)
		if err != nil {
			return memoryError("fabric.Grant", dev.name, err)
		}
		if !e.d.grants.giveMemory(g, own) {
			deregisterMemory(own)
			return e.Check("fabric.Grant")
		}
		mr = own
		if !dev.info.windows {
			g.rkey.Store(remoteKey(own))
			return nil
		}
	}
	mw, err := e.d.grants.giveWindow(g)
	if err != nil {
		return err
	}
	key := nextKey(windowKey(mw))
	g.rkey.Store(key)
	return e.control(&sendSlot{kind: slotControl}, func(id uint64) error {
		return postBind(e.qp, id, mw, key, mr, g.mem, g.access())
	})
}

// nextKey changes the 8 bits of a window's key that its owner chooses.
func nextKey(key uint32) uint32 { return key&^0xff | (key+1)&0xff }

// disarm returns when the peer cannot use the grant any more.
func (g *grant) disarm() {
	e := g.ep
	if len(g.mem) == 0 || !e.dev.info.windows {
		return
	}
	if g.asked.CompareAndSwap(false, true) {
		err := e.control(&sendSlot{kind: slotControl, grant: g}, func(id uint64) error {
			return postInvalidate(e.qp, id, g.rkey.Load())
		})
		if err != nil { // the endpoint is dead, and finish frees the window
			<-e.Done()
			return
		}
	}
	for tries, nudge := 0, patientTries; !g.shut.Load(); tries++ {
		select {
		case <-e.Done():
			return
		default:
		}
		e.sendCQ.drain()
		if tries < patientTries {
			runtime.Gosched()
			continue
		}
		if tries == nudge && e.dev.info.soft {
			nudge *= 2
			e.nudge()
		}
		time.Sleep(20 * time.Microsecond)
	}
}

// patientTries is how often disarm looks before it sleeps between two looks.
const patientTries = 100

// nudge posts a request that does nothing. Soft-RoCE holds an invalidation back until all that was
// posted before it is over: it looks whether that is so, and then notes that it waits. What ends in
// between is not told to it, and it waits until it is asked to send again, as this does: else that
// was the next probe, 5 to 10 s later. If it misses the end once more there is another nudge.
func (e *endpoint) nudge() {
	// A failure is the end of the endpoint, which who waits notices.
	_ = e.control(&sendSlot{kind: slotControl}, func(id uint64) error {
		return postNothing(e.qp, id)
	})
}

// control posts a request of the provider's own, when there is room for one.
func (e *endpoint) control(slot *sendSlot, post func(id uint64) error) error {
	limit := int32(controlDepth(e.Config.SendDepth))
	for e.ctlHeld.Add(1) > limit {
		e.ctlHeld.Add(-1)
		if e.Dead() {
			return e.Check("fabric.Grant")
		}
		e.sendCQ.drain()
		runtime.Gosched()
	}
	e.sendMu.Lock()
	defer e.sendMu.Unlock()
	if e.Dead() {
		return e.Check("fabric.Grant")
	}
	if err := post(e.sendID(e.numberLocked(slot))); err != nil {
		e.Die(errs.Disconnected, "the device takes no requests: "+err.Error())
		return e.Check("fabric.Grant")
	}
	return nil
}

// grantTable holds the grants of a domain.
type grantTable struct {
	mu   sync.Mutex
	next uint32
	all  map[uint32]*grant // by number
	free []*grant
}

func (t *grantTable) open() { t.all = map[uint32]*grant{} }

// add makes an empty grant. Its user releases it by done.
func (t *grantTable) add(r *region, e *endpoint) (*grant, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.swept {
		return nil, e.Check("fabric.Grant")
	}
	var g *grant
	if n := len(t.free); n > 0 {
		g, t.free = t.free[n-1], t.free[:n-1]
	} else {
		g = &grant{}
	}
	for t.next++; t.next == 0 || t.all[t.next] != nil; t.next++ {
	}
	g.region, g.ep, g.number, g.users, g.place = r, e, t.next, 1, len(e.owned)
	t.all[g.number] = g
	e.owned = append(e.owned, g)
	return g, nil
}

// done releases a grant, and frees it for reuse when it has ended and has no other user.
func (t *grantTable) done(g *grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.users--; g.users > 0 || !g.gone {
		return
	}
	g.region, g.ep, g.mem, g.mw, g.mr, g.gone = nil, nil, nil, nil, nil, false
	g.shut.Store(false)
	g.asked.Store(false)
	g.rkey.Store(0)
	t.free = append(t.free, g)
}

// find returns the grant of a key, if it is one of the region's. Its user releases it by done.
func (t *grantTable) find(key uint64, r *region) *grant {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.all[uint32(key>>32)]
	if g == nil || g.region != r || g.rkey.Load() != uint32(key) {
		return nil
	}
	g.users++
	return g
}

// of returns the grants of a region. Their user releases them by done.
func (t *grantTable) of(r *region) []*grant {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*grant
	for _, g := range t.all {
		if g.region == r {
			g.users++
			all = append(all, g)
		}
	}
	return all
}

// giveMemory gives a registration to the grant, unless its endpoint died meanwhile.
func (t *grantTable) giveMemory(g *grant, mr *cMR) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.gone {
		return false
	}
	g.mr = mr
	return true
}

// giveWindow gives an idle window to the grant.
func (t *grantTable) giveWindow(g *grant) (*cMW, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.gone {
		return nil, g.ep.Check("fabric.Grant")
	}
	dev := g.ep.dev
	if g.mw = dev.windows.take(); g.mw == nil {
		var err error
		if g.mw, err = newWindow(dev.pd); err != nil {
			return nil, memoryError("fabric.Grant", dev.name, err)
		}
	}
	return g.mw, nil
}

// end removes a disarmed grant from the table, once.
func (t *grantTable) end(g *grant) {
	t.mu.Lock()
	if g.gone {
		t.mu.Unlock()
		return
	}
	g.gone = true
	delete(t.all, g.number)
	owned := g.ep.owned
	last := len(owned) - 1
	owned[g.place] = owned[last]
	owned[g.place].place = g.place
	owned[last] = nil
	g.ep.owned = owned[:last]
	if g.mw != nil {
		g.ep.dev.windows.put(g.mw)
	}
	mr := g.mr
	t.mu.Unlock()
	if mr != nil {
		deregisterMemory(mr)
	}
}

// sweep ends the grants of an endpoint whose queue pair is about to be destroyed, and allows no
// more.
func (t *grantTable) sweep(e *endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.swept = true
	for _, g := range e.owned {
		g.gone = true
		delete(t.all, g.number)
		if g.mw != nil {
			freeWindow(g.mw)
		}
		if g.mr != nil {
			deregisterMemory(g.mr)
		}
	}
	e.owned = nil
}

// windowPool holds idle windows and reuses the one that was idle longest, so that keys repeat as
// late as possible: each window has 256 of them.
type windowPool struct {
	idle []*cMW
	head int
}

// windowsKept is how many are idle before one is used again.
const windowsKept = 16

func (p *windowPool) take() *cMW {
	if len(p.idle)-p.head <= windowsKept {
		return nil
	}
	mw := p.idle[p.head]
	p.head++
	return mw
}

func (p *windowPool) put(mw *cMW) {
	if p.head > 0 && len(p.idle) == cap(p.idle) {
		p.idle = p.idle[:copy(p.idle, p.idle[p.head:])]
		p.head = 0
	}
	p.idle = append(p.idle, mw)
}

func (p *windowPool) free() {
	for _, mw := range p.idle[p.head:] {
		freeWindow(mw)
	}
	p.idle = nil
}
