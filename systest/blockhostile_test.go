package systest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// rawNBD is a connection on which a test says whatever it likes.
type rawNBD struct {
	t  *testing.T
	nc net.Conn
}

// dialRaw connects and takes the greeting.
func dialRaw(t *testing.T, sock string) *rawNBD {
	t.Helper()
	nc, err := net.Dial("unix", sock)
	must(t, err)
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(readyLimit))
	c := &rawNBD{t, nc}
	if hello := c.take(18); !bytes.HasPrefix(hello, []byte("NBDMAGICIHAVEOPT")) {
		t.Fatalf("greeting %q", hello)
	}
	return c
}

func (c *rawNBD) say(parts ...any) {
	c.t.Helper()
	if _, err := c.nc.Write(bigEndian(parts...)); err != nil {
		c.t.Fatal(err)
	}
}

// bigEndian puts numbers, in the order of the network, and bytes one after the other.
func bigEndian(parts ...any) (b []byte) {
	for _, p := range parts {
		if s, ok := p.(string); ok {
			p = []byte(s)
		}
		var err error
		if b, err = binary.Append(b, binary.BigEndian, p); err != nil {
			panic(err)
		}
	}
	return b
}

func (c *rawNBD) take(n int) []byte {
	c.t.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(c.nc, p); err != nil {
		c.t.Fatalf("%d bytes: %v", n, err)
	}
	return p
}

// closed checks that the server ends the connection, and says nothing more.
func (c *rawNBD) closed() {
	c.t.Helper()
	if n, err := c.nc.Read(make([]byte, 1)); n != 0 || err == nil || os.IsTimeout(err) {
		c.t.Errorf("the connection goes on: %d bytes, %v", n, err)
	}
}

// option sends one and returns the type of its last reply.
func (c *rawNBD) option(opt uint32, data []byte) uint32 {
	c.t.Helper()
	c.say(uint64(nbdIHaveOpt), opt, uint32(len(data)), data)
	for {
		h := c.take(20)
		kind := binary.BigEndian.Uint32(h[12:])
		c.take(int(binary.BigEndian.Uint32(h[16:])))
		if kind == 1 || kind&(1<<31) != 0 {
			return kind
		}
	}
}

// goTo chooses an export.
func (c *rawNBD) goTo(name string) *rawNBD {
	c.t.Helper()
	c.say(uint32(3))
	if kind := c.option(7, bigEndian(uint32(len(name)), name, uint16(0))); kind != 1 {
		c.t.Fatalf("GO: %#x", kind)
	}
	return c
}

// request sends one with a simple reply and returns the error.
func (c *rawNBD) request(flags, cmd uint16, off uint64, length uint32, payload []byte) uint32 {
	c.t.Helper()
	c.say(uint32(nbdRequest), flags, cmd, uint64(7), off, length, payload)
	h := c.take(16)
	if binary.BigEndian.Uint32(h) != nbdSimple || binary.BigEndian.Uint64(h[8:]) != 7 {
		c.t.Fatalf("reply %x", h)
	}
	errno := binary.BigEndian.Uint32(h[4:])
	if cmd == nbdCmdRead && errno == 0 {
		c.take(int(length))
	}
	return errno
}

// TestHostileBlockClients says malformed things to a running server, one client after the other and
// many at once. Each gets what the protocol names, keeps its connection where that says so, and
// nobody else notices.
func TestHostileBlockClients(t *testing.T) {
	t.Parallel()
	k := exportKind{export: "file=$1", files: 1}
	d := k.serve(t, "--export", "name=ro,mem=1M,ro")
	stop, done := make(chan struct{}), make(chan struct{})
	r := newRecorder(d.sock, 2, 1)
	go func() { defer close(done); r.run(t, stop) }()
	t.Run("options", func(t *testing.T) { badOptions(t, d) })
	t.Run("requests", func(t *testing.T) { badRequests(t, d) })
	t.Run("noise", func(t *testing.T) { noise(t, d, envInt("SLUICE_HOSTILE", 400)) })
	close(stop)
	<-done
	must(t, r.verify(true))
	if r.lost.Load() != 0 || r.covered.Load() == 0 {
		t.Errorf("a well-behaved client lost %d connections and made %d blocks durable", r.lost.Load(),
			r.covered.Load())
	}
	if strings.Contains(d.log.String(), "panic") {
		t.Errorf("the server panicked:\n%s", tail(d.log.String()))
	}
	d.ended(t)
}

func badOptions(t *testing.T, d *device) {
	const failed, unsupported, invalid, unknown, tooBig = 1 << 31, 1, 3, 6, 9
	greeted := func() *rawNBD { c := dialRaw(t, d.sock); c.say(uint32(3)); return c }
	c := greeted()
	for _, o := range []struct {
		about string
		opt   uint32
		data  []byte
		want  []uint32
	}{
		{"an unknown option", 4711, make([]byte, 5000), []uint32{unsupported}},
		{"a list with data", 3, []byte("x"), []uint32{invalid}},
		{"GO without data", 7, nil, []uint32{invalid}},
		{"GO with a name beyond its data", 7, bigEndian(uint32(1000), "disk", uint16(0)),
			[]uint32{invalid}},
		{"GO with more infos than data", 7, bigEndian(uint32(4), "disk", uint16(9)), []uint32{invalid}},
		{"GO with data behind it", 7, bigEndian(uint32(4), "disk", uint16(0), "more"), []uint32{invalid}},
		{"INFO of what is not there", 6, bigEndian(uint32(4), "none", uint16(0)), []uint32{unknown}},
		{"a name of 5000 bytes", 6, bigEndian(uint32(5000), strings.Repeat("x", 5000), uint16(0)),
			[]uint32{invalid, tooBig, unknown}},
		{"contexts without structured replies", 10, bigEndian(uint32(4), "disk", uint32(1), uint32(15),
			"base:allocation"), []uint32{invalid}},
		{"structured replies with data", 8, []byte{1}, []uint32{invalid}},
	} {
		got, ok := c.option(o.opt, o.data), false
		for _, w := range o.want {
			ok = ok || got == failed|w
		}
		if !ok {
			t.Errorf("%s: %#x, want one of %v", o.about, got, o.want)
		}
	}
	if kind := c.option(7, bigEndian(uint32(4), "disk", uint16(0))); kind != 1 {
		t.Errorf("GO after all of that: %#x", kind)
	}
	page := make([]byte, 4096)
	for about, message := range map[string][]byte{
		"another magic":            bigEndian(uint64(nbdIHaveOpt+1), uint32(3), uint32(0)),
		"an option of 2 GiB":       bigEndian(uint64(nbdIHaveOpt), uint32(7), uint32(1<<31), page),
		"EXPORT_NAME of nobody":    bigEndian(uint64(nbdIHaveOpt), uint32(1), uint32(4), "none"),
		"half an option, and gone": bigEndian(uint64(nbdIHaveOpt), uint32(7)),
	} {
		c := greeted()
		_, _ = c.nc.Write(message) // it may be closed before the end
		_ = c.nc.(*net.UnixConn).CloseWrite()
		if n, err := io.Copy(io.Discard, c.nc); os.IsTimeout(err) {
			t.Errorf("%s: the connection goes on, after %d bytes", about, n)
		}
	}
	c = dialRaw(t, d.sock)
	c.say(uint32(1 << 9)) // client flags that nobody knows
	c.closed()
}

func badRequests(t *testing.T, d *device) {
	const perm, inval, nospc, overflow = 1, 22, 28, 75
	c := dialRaw(t, d.sock).goTo("disk")
	ro := dialRaw(t, d.sock).goTo("ro")
	page := make([]byte, 4096)
	for _, q := range []struct {
		about      string
		c          *rawNBD
		flags, cmd uint16
		off        uint64
		length     uint32
		payload    []byte
		want       []uint32
	}{
		{"an unknown command", c, 0, 99, 0, 0, nil, []uint32{inval}},
		{"unknown flags", c, 1 << 9, 0, 0, 512, nil, []uint32{inval}},
		{"DF without structured replies", c, 4, 0, 0, 512, nil, []uint32{inval}},
		{"a read past the end", c, 0, 0, deviceBytes - 512, 1024, nil, []uint32{inval}},
		{"a read at the end of numbers", c, 0, 0, 1<<64 - 512, 1024, nil, []uint32{inval}},
		{"a read of 2 GiB", c, 0, 0, 0, 1 << 31, nil, []uint32{inval, overflow}},
		{"a write past the end", c, 0, 1, deviceBytes - 512, 4096, page, []uint32{nospc}},
		{"zeroes past the end", c, 0, 6, deviceBytes - 512, 4096, nil, []uint32{nospc}},
		{"a trim past the end", c, 0, 4, deviceBytes - 512, 4096, nil, []uint32{inval, nospc}},
		{"a block status without a context", c, 0, 7, 0, 4096, nil, []uint32{inval}},
		{"a flush with a length", c, 0, 3, 0, 4096, nil, []uint32{inval}},
		{"a write to what is read-only", ro, 0, 1, 0, 4096, page, []uint32{perm}},
		{"zeroes to what is read-only", ro, 0, 6, 0, 4096, nil, []uint32{perm}},
		{"a trim of what is read-only", ro, 0, 4, 0, 4096, nil, []uint32{perm}},
	} {
		got, ok := q.c.request(q.flags, q.cmd, q.off, q.length, q.payload), false
		for _, w := range q.want {
			ok = ok || got == w
		}
		if !ok {
			t.Errorf("%s: error %d, want one of %v", q.about, got, q.want)
		}
		if errno := q.c.request(0, nbdCmdRead, 0, 512, nil); errno != 0 {
			t.Errorf("a read after %s: error %d", q.about, errno)
		}
	}
	bad := dialRaw(t, d.sock).goTo("disk")
	bad.say(uint32(nbdRequest+1), uint16(0), uint16(0), uint64(0), uint64(0), uint32(0))
	bad.closed()
	half := dialRaw(t, d.sock).goTo("disk")
	half.say(uint32(nbdRequest), uint16(0), uint16(1), uint64(1), uint64(0), uint32(1<<20), "some")
	half.nc.Close() // in the middle of a payload
}

// noise connects many times and says what is right up to a point, and random from there.
func noise(t *testing.T, d *device, conns int) {
	seed := uint64(envInt("SLUICE_SEED", int(time.Now().UnixNano()&0xffffffff)))
	t.Logf("seed %d, %d connections (SLUICE_SEED, SLUICE_HOSTILE)", seed, conns)
	script := bigEndian(uint32(3), uint64(nbdIHaveOpt), uint32(8), uint32(0), // structured replies
		uint64(nbdIHaveOpt), uint32(7), uint32(8), uint32(2), "ro", uint16(0), // GO
		uint32(nbdRequest), uint16(0), uint16(0), uint64(1), uint64(0), uint32(4096), // a read
		uint32(nbdRequest), uint16(0), uint16(6), uint64(2), uint64(0), uint32(4096)) // zeroes
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range conns {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			nc, err := net.Dial("unix", d.sock)
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(readyLimit))
			said := bytes.Clone(script)
			for range 1 + rng.IntN(8) {
				said[rng.IntN(len(said))] ^= byte(1 << rng.IntN(8))
			}
			_, _ = nc.Write(said[:1+rng.IntN(len(said))]) // it may be closed before the end
			_ = nc.(*net.UnixConn).CloseWrite()
			if n, err := io.Copy(io.Discard, nc); os.IsTimeout(err) {
				t.Errorf("connection %d, seed %d: it goes on after %d bytes", i, seed, n)
			}
		})
	}
	wg.Wait()
	if size := run(t, "", "nbdinfo", "--size", d.uri); size != fmt.Sprintln(deviceBytes) {
		t.Errorf("after the noise the device has %s bytes", size)
	}
}
