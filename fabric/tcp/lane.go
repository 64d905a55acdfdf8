package tcp

import (
	"sync"
	"time"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
	"github.com/sluice-storage/sluice/internal/ring"
)

// Several sockets per endpoint (Options.Sockets). The first socket carries everything whose order
// matters: messages, small transfers, requests to read, acknowledgements. Further ones, the lanes,
// carry large Writes and the answers to large Reads, so that more than one core can work for a
// single connection. A Write that goes by a lane leaves a note on the first socket, at the place
// in the order that is its own. The receiver begins to place it when it has handled all that came
// before the note, and handles no message, and no Write of the first socket, before all lanes are
// through with what was noted before. Lanes overtake each other; so a Write that overlaps one that
// is still under way on a lane, by the same key, goes by the first socket.
//
// The dialler opens the lanes, after the hellos, each with a hello of its own that shows the key
// which the listener gave out with its hello. A listener's endpoint works without its lanes until
// they come.

const (
	maxLanes  = provider.ReadDepth - 1 // their number is a tag in frames
	laneBytes = 64 << 10               // the smallest transfer that goes by a lane
	pendMax   = maxQueueDepth          // a peer cannot have more requests outstanding
)

// lane is one further socket of an endpoint.
type lane struct {
	e      *endpoint
	index  int // from 1
	rx     stream
	tx     batch
	sealed vec
	wake   chan struct{} // one token: there is something to write, or the endpoint is dead

	// Guarded by endpoint.mu.
	writes  ring.Ring[*work]
	answers ring.Ring[header]
}

// laneState is what an endpoint knows of its lanes. Guarded by endpoint.mu.
type laneState struct {
	count   int // how many there will be
	all     []*lane
	next    int
	ended   bool           // one of them
	wg      sync.WaitGroup // their goroutines
	news    sync.Cond      // a note came, a lane is through with a Write, or the end
	noted   [maxLanes + 1]uint64
	placed  [maxLanes + 1]uint64
	pending []noted
}

// noted is a Write of the peer's that comes by a lane.
type noted struct {
	lane     int
	wantsAck bool
	over     bool
	refused  bool
}

// addLane gives an endpoint a further socket.
func (e *endpoint) addLane(index int, k *sock) error {
	l := &lane{
		e: e, index: index, wake: make(chan struct{}, 1),
		writes:  ring.New[*work](e.Config.SendDepth),
		answers: ring.New[header](provider.ReadDepth),
	}
	l.rx.open(k, e, func() {})
	l.tx.open(k, &l.sealed)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Dead() {
		return e.Check("tcp.lane")
	}
	for _, other := range e.lanes.all {
		if other.index == index {
			return protocolErr("a lane that is there already")
		}
	}
	if index < 1 || index > e.lanes.count {
		return protocolErr("a lane that was not agreed on")
	}
	e.lanes.all = append(e.lanes.all, l)
	e.lanes.wg.Add(2)
	go l.run()
	go l.write()
	return nil
}

// stopLocked ends what blocks in lanes.
func (s *laneState) stopLocked() {
	for _, l := range s.all {
		_ = l.rx.conn.SetDeadline(time.Unix(1, 0))
		l.kick()
	}
	s.news.Broadcast()
}

func (l *lane) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pickLocked is the lane for a Write or an answer, or nil: it goes by the first socket.
func (s *laneState) pickLocked(length int) *lane {
	if length < laneBytes || len(s.all) == 0 {
		return nil
	}
	s.next++
	return s.all[s.next%len(s.all)]
}

// sideTrackLocked gives a Write that has its number to a lane, if there is one for it, and leaves
// the note.
func (e *endpoint) sideTrackLocked(w *work, ack uint32) bool {
	w.Own.lane = 0
	if w.Op != fabric.OpWrite || w.File.Len > 0 || w.Length < laneBytes || e.overlapsLocked(w) {
		return false
	}
	l := e.lanes.pickLocked(w.Length)
	if l == nil {
		return false
	}
	w.Own.lane = l.index
	e.lastNeed = w.Number
	e.tx.add(&header{
		kind: frameNote, tag: uint16(l.index), flags: e.frameFlagsLocked(w), ack: ack,
	})
	l.writes.Push(w)
	l.kick()
	return true
}

// overlapsLocked tells whether a Write by the same key to some of the same memory is on a lane.
func (e *endpoint) overlapsLocked(w *work) bool {
	for i := e.reqs.Started.Len() - 1; i >= 0; i-- {
		o := *e.reqs.Started.At(i)
		if o.Number <= e.acked {
			return false
		}
		if o != w && o.Own.lane != 0 && o.Remote.Key == w.Remote.Key &&
			o.Remote.Addr < w.Remote.Addr+w.Remote.Len &&
			w.Remote.Addr < o.Remote.Addr+o.Remote.Len {
			return true
		}
	}
	return false
}

// answerByLaneLocked lets a lane answer a Read.
func (e *endpoint) answerByLaneLocked(h *header) bool {
	l := e.lanes.pickLocked(int(h.length))
	if l == nil || l.answers.Full() {
		return false
	}
	l.answers.Push(*h)
	l.kick()
	return true
}

// write is the lane's writer.
func (l *lane) write() {
	defer l.e.lanes.wg.Done()
	for range l.wake {
		for {
			alive, any := l.gather()
			if !alive {
				return
			}
			if !any {
				break
			}
			err := l.tx.write(l.tx.callBlocking)
			l.tx.release()
			if err != nil {
				l.e.laneEnded()
				return
			}
		}
	}
}

// gather makes the next batch: an answer, and a Write.
func (l *lane) gather() (alive, any bool) {
	e := l.e
	e.mu.Lock()
	defer e.mu.Unlock()
	l.tx.reset()
	if e.Dead() {
		return false, false
	}
	if l.answers.Len() > 0 {
		h := l.answers.Pop()
		e.answerInto(&l.tx, &h, 0)
	}
	if l.writes.Len() > 0 {
		w := l.writes.Pop()
		l.tx.add(&header{kind: frameWrite, length: uint32(w.Length),
			key: w.Remote.Key, addr: w.Remote.Addr})
		for _, b := range w.Bufs {
			l.tx.out.add(b)
		}
	}
	return true, l.tx.frames > 0
}

// run is the lane's reader.
func (l *lane) run() {
	defer l.e.lanes.wg.Done()
	for {
		h, err := l.rx.header(l.e.Config.Hello.MaxMessage)
		if err == nil {
			err = l.handle(&h)
		}
		switch {
		case err == nil:
			continue
		case errs.KindOf(err) == errs.Protocol:
			l.e.Die(errs.Protocol, err.Error())
		default:
			l.e.laneEnded()
		}
		return
	}
}

// laneEnded ends the endpoint, which needs all of its sockets. The reason may be a bye on the first
// one that is still on its way, but not for ever.
func (e *endpoint) laneEnded() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.Dead() {
		e.lanes.ended = true
		e.lanes.news.Broadcast()
		_ = e.sock.conn.SetReadDeadline(time.Now().Add(e.d.opts.Linger))
	}
}

func (l *lane) handle(h *header) error {
	switch h.kind {
	case frameReadData:
		more, err := l.e.handleReadData(&l.rx, h)
		if more {
			l.e.mu.Lock()
			l.e.pumpLocked()
		}
		return err
	case frameReadRefused:
		_, err := l.e.handleReadRefused(h)
		return err
	case frameWrite:
		return l.handleWrite(h)
	}
	return protocolErr("a frame that does not belong on a lane")
}

// handleWrite places a Write when its turn has come.
func (l *lane) handleWrite(h *header) error {
	e := l.e
	e.mu.Lock()
	for !e.Dead() && e.lanes.noted[l.index] == e.lanes.placed[l.index] {
		e.lanes.news.Wait()
	}
	dead := e.Dead()
	e.mu.Unlock()
	if dead {
		return errs.New(errs.Disconnected, "tcp", "", nil) // die knows better
	}
	refused := false
	var err error
	if g, mem := e.acquire(h, fabric.RemoteWrite); g != nil {
		err = l.rx.placeOne(mem)
		g.Release()
	} else {
		refused = true
		err = l.rx.skip(int(h.length))
	}
	if err == nil {
		err = e.placedByLane(l.index, refused)
	}
	return err
}

// handleNote takes notice of a Write that comes by a lane.
func (e *endpoint) handleNote(h *header) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.lanes
	if h.tag == 0 || int(h.tag) > s.count || len(s.pending) == pendMax {
		return protocolErr("a note of a lane that is not there, or too many of them")
	}
	s.pending = append(s.pending, noted{
		lane: int(h.tag), wantsAck: h.flags&frameWantsAck != 0,
	})
	s.noted[h.tag]++
	s.news.Broadcast()
	return nil
}

// placedByLane counts the Writes that are over, in the order of their notes.
func (e *endpoint) placedByLane(index int, refused bool) error {
	e.mu.Lock()
	s := &e.lanes
	s.placed[index]++
	for i := range s.pending {
		if p := &s.pending[i]; p.lane == index && !p.over {
			p.over, p.refused = true, refused
			break
		}
	}
	speak, over := false, 0
	for ; over < len(s.pending) && s.pending[over].over; over++ {
		p := &s.pending[over]
		number := e.rxCount.Add(1)
		if p.refused {
			e.refusals = append(e.refusals, number)
		}
		e.ackDue = e.ackDue || p.wantsAck
		speak = speak || p.refused || p.wantsAck
	}
	s.pending = append(s.pending[:0], s.pending[over:]...)
	tooMany := len(e.refusals) > refusalMax
	s.news.Broadcast()
	if tooMany || !speak {
		e.mu.Unlock()
	} else {
		e.pumpLocked()
	}
	if tooMany {
		return protocolErr("more requests outstanding than any queue holds")
	}
	return nil
}

// awaitLanes waits until everything that was noted is over.
func (e *endpoint) awaitLanes() error {
	if e.lanes.count == 0 {
		return nil
	}
	e.speak()
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.Dead() && !e.lanes.ended && len(e.lanes.pending) > 0 {
		e.lanes.news.Wait()
	}
	if len(e.lanes.pending) > 0 {
		return errs.Newf(errs.Disconnected, "tcp", "", "a lane ended")
	}
	return nil
}
