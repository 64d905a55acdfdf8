package shm

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

func FuzzHeader(f *testing.F) {
	for _, h := range []header{
		{kind: frameSend, flags: frameSolicited, length: 8, part: 8, imm: 5},
		{kind: frameWrite, length: 1 << 20, part: 100, key: 1, addr: 2},
		{kind: frameWriteImm, length: 100, part: 100, imm: 1, key: 1, addr: 2},
		{kind: frameMore, part: 9}, {kind: frameRead, tag: 15, length: 8, key: 1, addr: 2},
		{kind: frameReadData, tag: 2, part: 9}, {kind: frameReadRefused, tag: 3},
		{kind: framePlaced, length: 99, imm: 4},
	} {
		f.Add(rawHeader(&h))
	}
	lim := limits{message: 1 << 20, part: 65504}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < headerBytes {
			return
		}
		raw := [headerBytes]byte(data)
		var h header
		rest := [headerBytes - 8]byte(raw[8:])
		err := h.decode(binary.LittleEndian.Uint64(raw[:]), &rest, lim)
		if h.whole(lim) && h.check(lim) != "" {
			t.Fatal("the quick check passed what the other one refuses")
		}
		if err != nil {
			if errs.KindOf(err) != errs.Protocol {
				t.Fatal(err)
			}
			return
		}
		if again := rawHeader(&h); !bytes.Equal(again, raw[:]) {
			t.Fatalf("%x became %x", raw, again)
		}
		if h.part > lim.part || h.length > maxTransfer || h.tag >= provider.ReadDepth {
			t.Fatalf("accepted %+v", h)
		}
	})
}

// rawHeader is a header as it stands in a ring of a little-endian host.
func rawHeader(h *header) []byte {
	b := make([]byte, headerBytes)
	binary.LittleEndian.PutUint64(b, h.word())
	h.encode(b[8:])
	return b
}

func FuzzHello(f *testing.F) {
	var b [callBytes]byte
	encodeHello(b[:], &fabric.Hello{
		Version: fabric.HelloVersion, Features: 3, MaxMessage: 4, RecvDepth: 5, Identity: 6,
		Token: [32]byte{7},
	}, errs.OK)
	geometry{ring: 256 << 10, slots: [2]uint32{1024}}.encode(b[helloBytes:])
	f.Add(b[:])
	f.Add(b[:helloBytes])
	f.Fuzz(func(t *testing.T, data []byte) {
		h, g, err := decodeCall(data)
		if err != nil {
			return
		}
		var again [callBytes]byte
		encodeHello(again[:], &h, errs.OK)
		g.encode(again[helloBytes:])
		if !bytes.Equal(again[:], data) {
			t.Fatalf("%x became %x", data, again)
		}
		if size := g.size(); size < 2*ringMin || size > 2*ringMax+8<<20 {
			t.Fatalf("a segment of %d bytes", size)
		}
	})
}

func FuzzNote(f *testing.F) {
	for _, n := range []note{
		{kind: noteExport, id: 1, size: 1 << 20}, {kind: noteWithdraw, id: 2}, {kind: noteDoorbell},
	} {
		f.Add(encodeNote(nil, n))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := decodeNote(data)
		if err != nil {
			return
		}
		if again := encodeNote(nil, n); !bytes.Equal(again, data) {
			t.Fatalf("%x became %x", data, again)
		}
	})
}

// FuzzRing lets a peer put anything into its ring and its words: whatever it is, the other side
// does not fall, and writes nothing but what was granted. The first byte says how: bit 0 gives the
// frames the granted key. The next eight are what the peer says it has carried out.
func FuzzRing(f *testing.F) {
	frame := func(h header, payload string) []byte {
		b := make([]byte, frameBytes(len(payload)))
		h.part = uint32(len(payload))
		copy(b, rawHeader(&h))
		copy(b[headerBytes:], payload)
		return b
	}
	add := func(how byte, frames ...[]byte) {
		f.Add(append([]byte{how, 0, 0, 0, 0, 0, 0, 0, 0}, bytes.Join(frames, nil)...))
	}
	add(0, frame(header{kind: frameSend, length: 5}, "hello"))
	add(1, frame(header{kind: frameWrite, length: 5}, "hello"), frame(header{kind: frameSend}, ""))
	add(1, frame(header{kind: frameWriteImm, length: 10}, "hello"),
		frame(header{kind: frameMore}, "hello"))
	add(1, frame(header{kind: frameRead, length: 10}, ""))
	add(0, frame(header{kind: framePlaced, length: 10}, ""))
	add(2, frame(header{kind: frameReadRefused}, ""))
	v := newVictim(f, Options{Ring: ringMin})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 9 || len(data) > ringMin {
			return
		}
		h := v.attack(t)
		defer func() { // the queue has room for a few such connections only
			fatal(t, h.ep.Close())
			v.reg.Revoke(h.rem)
			var dst [4 * endDepth]fabric.Completion
			v.cq.Poll(dst[:])
		}()
		how, done, body := data[0], binary.BigEndian.Uint64(data[1:]), data[9:]
		copy(h.view.out, body)
		if how&1 != 0 {
			for at := 0; at+lineBytes <= len(body); at += lineBytes {
				binary.LittleEndian.PutUint64(h.view.out[at+16:], h.rem.Key)
				old := binary.LittleEndian.Uint64(h.view.out[at+24:])
				binary.LittleEndian.PutUint64(h.view.out[at+24:], h.rem.Addr+old%1100)
			}
		}
		h.view.mine.done.Store(done)
		h.ep.progress()
		_ = h.conn.Close()
		h.died(t)
		h.unharmed(t)
	})
}
