package vmtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/sluice-storage/sluice/errs"
)

// plugFor attaches something that speaks like QEMU: it returns the other end of the port's socket.
func plugFor(t *testing.T, w *Wire) (*port, net.Conn) {
	t.Helper()
	p, far, err := w.attach(&Guest{name: "nobody"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.FileConn(far)
	far.Close()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() {
		conn.Close()
		p.detach()
	})
	return p, conn
}

// packet is an Ethernet frame with QEMU's header.
func packet(to, from byte, text string) []byte {
	b := make([]byte, packetHeader+packetMin, packetHeader+packetMin+len(text))
	b[packetHeader], b[packetHeader+6] = to, from
	b = append(b, text...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-packetHeader))
	return b
}

func transmit(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
}

// expect wants this packet and no other before it.
func expect(t *testing.T, conn net.Conn, want []byte) {
	t.Helper()
	got, err := readPacket(conn)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

func TestWireIsASwitch(t *testing.T) {
	w := new(Lab).NewWire(WireOptions{})
	_, a := plugFor(t, w)
	_, b := plugFor(t, w)
	_, c := plugFor(t, w)

	hello := packet(0xff, 1, "who is there")
	transmit(t, a, hello) // nobody knows ff: everybody but the sender gets it
	expect(t, b, hello)
	expect(t, c, hello)

	answer := packet(1, 2, "I am")
	transmit(t, b, answer) // the wire has learned where 1 is
	expect(t, a, answer)
	direct := packet(2, 1, "good")
	transmit(t, a, direct)
	expect(t, b, direct)

	last := packet(0xff, 2, "all")
	transmit(t, b, last)
	expect(t, c, last) // and neither of the two before
	expect(t, a, last)
}

func TestWireThatIsMuteLosesEverything(t *testing.T) {
	w := new(Lab).NewWire(WireOptions{})
	pa, a := plugFor(t, w)
	_, b := plugFor(t, w)
	w.Mute(true)
	transmit(t, a, packet(2, 1, "lost"))
	if to := w.route(pa, packet(2, 1, "lost")); to != nil {
		t.Fatalf("goes to %d ports", len(to))
	}
	// The end of what was sent before the wire speaks again is seen by a packet to oneself.
	time.Sleep(50 * time.Millisecond)
	w.Mute(false)
	found := packet(2, 1, "found")
	transmit(t, a, found)
	expect(t, b, found)
}

func TestWireDropsForAGuestThatDoesNotRead(t *testing.T) {
	w := new(Lab).NewWire(WireOptions{})
	pa, a := plugFor(t, w)
	_, _ = plugFor(t, w) // never reads
	_, c := plugFor(t, w)
	got := make(chan int)
	go func() { // counts what the one who reads gets
		r, n := bufio.NewReader(c), 0
		for {
			b, err := readPacket(r)
			if err != nil || b[len(b)-1] == '!' {
				got <- n
				return
			}
			n++
		}
	}()
	big := packet(0xff, 1, string(make([]byte, 60000)))
	const packets = 4 * portQueue // 240 MB: more than sockets and a queue hold
	for range packets {
		transmit(t, a, big)
	}
	// A wire that waits for its slowest guest would never come to the end of this.
	for len(pa.wire.ports[2].queue) > 0 {
		time.Sleep(time.Millisecond)
	}
	transmit(t, a, packet(0xff, 1, "!"))
	if n := <-got; n == 0 {
		t.Fatalf("%d of %d packets reached the one who reads", n, packets)
	}
}

func TestWireAddresses(t *testing.T) {
	lab := new(Lab)
	one, two := lab.NewWire(WireOptions{}), lab.NewWire(WireOptions{MTU: 1500})
	pa, _ := plugFor(t, one)
	pb, _ := plugFor(t, one)
	pc, _ := plugFor(t, two)
	for p, want := range map[*port]string{pa: "10.77.1.1", pb: "10.77.1.2", pc: "10.77.2.1"} {
		if p.addr.String() != want {
			t.Errorf("%v, want %s", p.addr, want)
		}
	}
	if bytes.Equal(pa.mac, pb.mac) || bytes.Equal(pa.mac, pc.mac) {
		t.Error("two ports have one hardware address")
	}
	if one.mtu != 4200 || two.mtu != 1500 {
		t.Errorf("MTUs %d and %d", one.mtu, two.mtu)
	}
	one.last = guestsPerWire
	if _, _, err := one.attach(&Guest{}, 0); !errors.Is(err, errs.NoSpace) {
		t.Errorf("one guest too many: %v", err)
	}
}

func TestWireEndsAtNonsense(t *testing.T) {
	w := new(Lab).NewWire(WireOptions{})
	_, a := plugFor(t, w)
	transmit(t, a, []byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3})
	p := w.ports[0]
	select {
	case <-p.gone:
	case <-time.After(time.Minute):
		t.Fatal("the port goes on")
	}
}

func FuzzPacket(f *testing.F) {
	f.Add(packet(1, 2, "text"))
	f.Add([]byte{0, 0, 0, 3, 1, 2, 3})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	w := new(Lab).NewWire(WireOptions{})
	from := &port{wire: w}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readPacket(bytes.NewReader(b))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, got) || len(got) < packetHeader+packetMin {
			t.Fatalf("%x was read as %x", b, got)
		}
		w.route(from, got)
	})
}

func TestSocketPairIsJoined(t *testing.T) {
	near, far, err := socketPair("test")
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1)
	if _, err := near.Read(buf); err != nil || buf[0] != 'x' {
		t.Fatalf("%q, %v", buf, err)
	}
	far.Close()
	if _, err := far.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
}
