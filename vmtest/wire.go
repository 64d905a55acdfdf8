package vmtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/sluice-storage/sluice/errs"
)

// A packet on QEMU's socket:
//
//	0          4
//	| size u32 | Ethernet frame, size bytes |     size is big-endian
const (
	packetHeader = 4
	packetMax    = 4096 + 65536 // what QEMU itself takes
	packetMin    = 14           // an Ethernet header
)

// portQueue is how many packets wait for a guest that does not read. A full queue drops, as a
// switch does: with the default MTU it holds 4 MiB, beyond what Soft-RoCE keeps in flight on a few
// dozen connections.
const portQueue = 1024

// guestsPerWire comes from the last byte of an address.
const guestsPerWire = 250

// WireOptions describe a network.
type WireOptions struct {
	// MTU is what the guests' devices get, in bytes. Default 4200, which leaves room for RDMA
	// packets of 4096 bytes with their headers.
	MTU int
}

func (o WireOptions) withDefaults() WireOptions {
	if o.MTU == 0 {
		o.MTU = 4200
	}
	return o
}

// Wire is an Ethernet that joins guests: a switch in this process with a socket to each guest. It
// can be cut and mended, and it can lose everything while it looks whole. It is safe for
// concurrent use and needs no Close: what it holds ends with the guests.
type Wire struct {
	number int // 1..250, the third byte of addresses
	mtu    int

	mu    sync.Mutex
	last  int // the last address that was given away
	ports []*port
	where map[[6]byte]*port // learned: who has which address
	cut   bool
	mute  bool
}

// NewWire makes a network of its own. The guests that are started with it get addresses
// 10.77.WIRE.1, .2 and so on; they exist in the guests only.
func (l *Lab) NewWire(o WireOptions) *Wire {
	o = o.withDefaults()
	number := (int(l.wires.Add(1))-1)%guestsPerWire + 1
	return &Wire{number: number, mtu: o.MTU, where: map[[6]byte]*port{}}
}

// Cut pulls the cable at every guest: their kernels see the carrier go. It lasts until Mend, also
// for guests that are started meanwhile.
func (w *Wire) Cut(ctx context.Context) error { return w.setLinks(ctx, false) }

// Mend undoes Cut.
func (w *Wire) Mend(ctx context.Context) error { return w.setLinks(ctx, true) }

// Mute makes the wire lose everything, or stop doing so. Nobody sees the carrier go: it is the
// failure of something in the middle.
func (w *Wire) Mute(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = on
}

func (w *Wire) setLinks(ctx context.Context, up bool) error {
	w.mu.Lock()
	w.cut = !up
	var plugged []*port
	for _, p := range w.ports {
		if p.plugged {
			plugged = append(plugged, p)
		}
	}
	w.mu.Unlock()
	var all error
	for _, p := range plugged {
		if err := p.setLink(ctx, up); err != nil && !p.guest.dead() {
			all = errors.Join(all, err)
		}
	}
	return all
}

// plug makes Cut and Mend known to the port, and brings it to the state that the wire is in.
func (p *port) plug(ctx context.Context) error {
	p.wire.mu.Lock()
	p.plugged = true
	cut := p.wire.cut
	p.wire.mu.Unlock()
	if !cut {
		return nil
	}
	return p.setLink(ctx, false)
}

// port is where a guest is plugged into a wire.
type port struct {
	wire    *Wire
	guest   *Guest
	id      string     // QEMU's name of the network device
	device  string     // the guest's name of it
	addr    netip.Addr // in the guest
	mac     net.HardwareAddr
	conn    net.Conn
	queue   chan []byte   // packets for the guest, with their header; nobody writes into them
	gone    chan struct{} // closed when the guest's end is
	work    sync.WaitGroup
	plugged bool // the guest is up; guarded by the wire's mu
}

// attach makes a port; far is QEMU's end of its socket, which the caller closes once QEMU has it.
func (w *Wire) attach(g *Guest, index int) (p *port, far *os.File, err error) {
	near, far, err := socketPair("wire")
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == guestsPerWire {
		near.Close()
		far.Close()
		return nil, nil, errs.Newf(errs.NoSpace, "vmtest.Start", g.name,
			"a wire takes %d guests, one after the other counted", guestsPerWire)
	}
	w.last++
	p = &port{
		wire: w, guest: g, id: fmt.Sprintf("wire%d", index), conn: near,
		device: fmt.Sprintf("eth%d", index),
		addr:   netip.AddrFrom4([4]byte{10, 77, byte(w.number), byte(w.last)}),
		mac:    net.HardwareAddr{0x52, 0x54, 0, 0x77, byte(w.number), byte(w.last)},
		queue:  make(chan []byte, portQueue), gone: make(chan struct{}),
	}
	w.ports = append(w.ports, p)
	p.work.Add(2)
	go p.receive()
	go p.transmit()
	return p, far, nil
}

// detach ends the port's goroutines and waits for them.
func (p *port) detach() {
	p.conn.Close()
	p.work.Wait()
	p.wire.remove(p)
}

func (w *Wire) remove(p *port) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.ports {
		if other == p {
			w.ports = append(w.ports[:i], w.ports[i+1:]...)
			break
		}
	}
	for mac, at := range w.where {
		if at == p {
			delete(w.where, mac)
		}
	}
}

func (p *port) setLink(ctx context.Context, up bool) error {
	return errs.Wrap("vmtest.Wire", p.guest.name, p.guest.qmp.setLink(ctx, p.id, up))
}

// receive takes packets from the guest and gives them on.
func (p *port) receive() {
	defer p.work.Done()
	defer close(p.gone)
	r := bufio.NewReaderSize(p.conn, 256<<10)
	for {
		packet, err := readPacket(r)
		if err != nil {
			return
		}
		for _, to := range p.wire.route(p, packet) {
			select {
			case to.queue <- packet:
			default: // its queue is full
			}
		}
	}
}

// readPacket returns one packet with its header, in memory of its own.
func readPacket(r io.Reader) ([]byte, error) {
	var h [packetHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(h[:])
	if size < packetMin || size > packetMax {
		return nil, errs.Newf(errs.Protocol, "vmtest.Wire", "", "a packet of %d bytes", size)
	}
	packet := make([]byte, packetHeader+size)
	copy(packet, h[:])
	_, err := io.ReadFull(r, packet[packetHeader:])
	return packet, err
}

// route learns where the packet came from and says where it goes: to the one port that is known to
// have the address, or to all others.
func (w *Wire) route(from *port, packet []byte) []*port {
	to, source := [6]byte(packet[packetHeader:]), [6]byte(packet[packetHeader+6:])
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mute || w.cut {
		return nil
	}
	w.where[source] = from
	if at := w.where[to]; at != nil {
		return []*port{at}
	}
	var all []*port
	for _, p := range w.ports {
		if p != from {
			all = append(all, p)
		}
	}
	return all
}

// transmit writes the queue to the guest.
func (p *port) transmit() {
	defer p.work.Done()
	for {
		select {
		case packet := <-p.queue:
			if _, err := p.conn.Write(packet); err != nil {
				return
			}
		case <-p.gone:
			return
		}
	}
}

// socketPair makes two joined sockets: one for this process, one to be inherited.
func socketPair(name string) (near net.Conn, far *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errs.Wrap("vmtest.socketPair", name, err)
	}
	mine, far := os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name)
	near, err = net.FileConn(mine) // a duplicate
	mine.Close()
	if err != nil {
		far.Close()
		return nil, nil, errs.Wrap("vmtest.socketPair", name, err)
	}
	return near, far, nil
}
