package tcp

import (
	"encoding/binary"
	"testing"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/fabric/provider"
)

const testMaxMessage = 1 << 16

// examples is one good header of each kind.
func examples() []header {
	perm := uint32(errs.Perm)
	return []header{
		{kind: frameSend, flags: frameSolicited, length: testMaxMessage, imm: 7, ack: 1},
		{kind: frameWrite, flags: frameWantsAck, length: maxTransfer, key: 1, addr: 2, ack: 9},
		{kind: frameWriteImm, length: 5, imm: 1, key: ^uint64(0), addr: ^uint64(0)},
		{kind: frameRead, tag: provider.ReadDepth - 1, length: 9, key: 3, addr: 4},
		{kind: frameReadData, tag: 3, length: 9},
		{kind: frameReadRefused, tag: 3, imm: perm},
		{kind: frameWriteRefused, key: 1 << 40, imm: perm},
		{kind: frameAck, ack: 12},
		{kind: frameBye, imm: uint32(errs.Protocol)},
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, h := range examples() {
		var b [headerBytes]byte
		h.encode(&b)
		got, err := decodeHeader(&b, testMaxMessage)
		if err != nil || got != h {
			t.Errorf("%+v became %+v, %v", h, got, err)
		}
	}
}

func TestHeaderBytes(t *testing.T) {
	h := header{
		kind: frameWriteImm, flags: 1, length: 0x01020304, imm: 0x05060708,
		ack: 0x090a0b0c, key: 0x1112131415161718, addr: 0x2122232425262728,
	}
	var b [headerBytes]byte
	h.encode(&b)
	want := [headerBytes]byte{
		3, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
		0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
		0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
	}
	if b != want {
		t.Fatalf("got  %x\nwant %x", b, want)
	}
}

func TestBadHeadersAreRefused(t *testing.T) {
	for name, h := range map[string]header{
		"no kind":              {},
		"unknown kind":         {kind: frameKinds},
		"unknown flag":         {kind: frameSend, flags: 0x80},
		"flag on an ack":       {kind: frameAck, flags: frameWantsAck},
		"message too long":     {kind: frameSend, length: testMaxMessage + 1},
		"write too long":       {kind: frameWrite, length: maxTransfer + 1},
		"read data too long":   {kind: frameReadData, length: maxTransfer + 1},
		"ack with a length":    {kind: frameAck, length: 1},
		"tag beyond the depth": {kind: frameRead, tag: provider.ReadDepth},
		"send with a tag":      {kind: frameSend, tag: 1},
		"send with a key":      {kind: frameSend, key: 1},
		"write with immediate": {kind: frameWrite, imm: 1},
		"refusal without kind": {kind: frameReadRefused},
		"refusal of a kind that cannot be": {
			kind: frameWriteRefused, imm: uint32(errs.OK)},
		"refusal with a wrapped kind": {
			kind: frameWriteRefused, imm: uint32(errs.Perm) | 1<<16},
	} {
		var b [headerBytes]byte
		h.encode(&b)
		if _, err := decodeHeader(&b, testMaxMessage); errs.KindOf(err) != errs.Protocol {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, h := range examples() {
		var b [headerBytes]byte
		h.encode(&b)
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < headerBytes {
			return
		}
		in := [headerBytes]byte(data)
		h, err := decodeHeader(&in, testMaxMessage)
		if err != nil {
			return
		}
		if h.payload() > maxTransfer || h.kind == frameSend && h.payload() > testMaxMessage {
			t.Fatalf("%+v promises %d bytes", h, h.payload())
		}
		if int(h.tag) >= provider.ReadDepth {
			t.Fatalf("%+v has a tag out of range", h)
		}
		var out [headerBytes]byte
		h.encode(&out)
		if in != out {
			t.Fatalf("%x became %x", in, out)
		}
	})
}

func FuzzHello(f *testing.F) {
	for _, h := range []hello{
		{Hello: fabric.Hello{Version: fabric.HelloVersion}},
		{Hello: fabric.Hello{Version: 99}},
		{Hello: fabric.Hello{Version: fabric.HelloVersion}, refusal: errs.Perm},
		{Hello: fabric.Hello{
			Version: fabric.HelloVersion, MaxMessage: 1, RecvDepth: 2, Identity: 3,
		}},
	} {
		b := h.encode()
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < helloBytes {
			return
		}
		in := [helloBytes]byte(data)
		h, err := decodeHello(&in)
		// A refusal may stand for several kinds.
		if err != nil || errs.Kind(binary.BigEndian.Uint16(in[24:])) != h.refusal {
			return
		}
		if out := h.encode(); in != out {
			t.Fatalf("%x became %x", in, out)
		}
	})
}
