package nbd

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func FuzzDecodeExtRequest(f *testing.F) {
	f.Add(extMessage(header{flags: 1, cmd: 2, cookie: 3, offset: 4, length: 1 << 40}, nil))
	f.Add(extMessage(header{flags: cmdFlagPayload, cmd: cmdWrite, length: 5}, nil))
	f.Add(make([]byte, extRequestBytes))
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) < extRequestBytes {
			return
		}
		h, ok := decodeExtRequest(p)
		if !ok {
			return
		}
		if h.payload != 0 {
			h.flags |= cmdFlagPayload
		}
		if h.length == 0 {
			h.flags = binary.BigEndian.Uint16(p[4:]) // an empty payload is none
		}
		if !bytes.Equal(extMessage(h, nil), p[:extRequestBytes]) {
			t.Errorf("%x decodes to %+v", p, h)
		}
	})
}

func FuzzDecodeFilter(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 2})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, p []byte) {
		_, contexts, ok := decodeFilter(p)
		if ok && (contexts == 0 || contexts>>(contextsMax+1) != 0) {
			t.Errorf("%x selects %b", p, contexts)
		}
	})
}

// FuzzExtended sends anything after a negotiation of extended headers.
func FuzzExtended(f *testing.F) {
	s := serve(f, Config{MemoryBytes: mib, MaxPayload: 64 << 10}, placedEntry())
	for cmd := range cmdCount + 1 {
		h := header{cmd: cmd, cookie: 9, offset: 4096, length: 16}
		f.Add(extMessage(h, nil))
		h.flags = cmdFlagPayload
		f.Add(extMessage(h, make([]byte, 16)))
	}
	f.Add(extMessage(header{cmd: cmdWrite, flags: cmdFlagPayload, length: 1<<64 - 1}, nil))
	prefix := binary.BigEndian.AppendUint32(nil, 3)
	prefix = append(prefix, optionMessage(optExtHeaders, nil)...)
	prefix = append(prefix, optionMessage(optSetMeta, metaData("x", metaBase, "test:place"))...)
	prefix = append(prefix, optionMessage(optGo, infoData("x"))...)
	f.Fuzz(func(t *testing.T, p []byte) { converse(t, s, prefix, p) })
}

// FuzzStartTLS sends anything where TLS is expected, in the clear.
func FuzzStartTLS(f *testing.F) {
	a := newAuthority()
	s := serve(f, Config{TLS: &TLS{Config: a.server()}}, newFake(64<<10).entry("x"))
	f.Add([]byte{})
	f.Add(optionMessage(optGo, infoData("x")))
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 0})
	f.Add(append([]byte{22, 3, 1, 0xff, 0xff}, make([]byte, 300)...))
	prefix := append(binary.BigEndian.AppendUint32(nil, 3), optionMessage(optStartTLS, nil)...)
	f.Fuzz(func(t *testing.T, p []byte) { converse(t, s, prefix, p) })
}

// talk is a negotiation beside a model of it.
type talk struct {
	t *testing.T
	a *authority
	c *client

	secure, structured, extended bool
	selected                     string // the export that contexts are selected for
}

// FuzzOptions lets a client send options in any order, TLS in between, and holds each answer
// against what the protocol says for that state.
func FuzzOptions(f *testing.F) {
	a := newAuthority()
	secret := newFake(64 << 10).entry("secret")
	secret.TLSOnly = true
	s := serve(f, Config{TLS: &TLS{Config: a.server(), Selective: true}}, secret,
		newFake(64<<10).entry("open"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	f.Add([]byte{1, 3, 6, 0, 3, 6, 7, 0})
	f.Add([]byte{2, 4, 7, 0, 4, 7, 1, 2, 2, 4, 7, 9})
	f.Add([]byte{7, 0, 7, 1, 4, 7, 8, 5, 10})
	f.Fuzz(func(t *testing.T, steps []byte) {
		k := &talk{t: t, a: a, c: greeted(t, s)}
		for _, step := range steps[:min(len(steps), 40)] {
			k.step(step % 11)
		}
		k.c.nc.Close()
	})
}

func (k *talk) step(n byte) {
	switch n {
	case 0:
		k.starttls()
	case 1:
		k.want(optStructuredReply, nil, k.either(k.extended, repErrExtReqd, repAck))
		k.structured = true
	case 2:
		k.want(optExtHeaders, nil, k.either(k.extended, repErrInvalid, repAck))
		k.structured, k.extended = true, true
	case 3, 4, 5:
		k.selects([]string{"open", "secret", "nobody"}[n-3])
	case 6, 7, 8:
		k.asks([]string{"open", "secret", "nobody"}[n-6])
	case 9:
		k.want(77, []byte("data"), repErrUnsup)
	case 10:
		if got := len(k.want(optList, nil, repAck)); got != 1 && !k.secure || got != 2 && k.secure {
			k.t.Errorf("%d exports, TLS %v", got, k.secure)
		}
	}
}

func (k *talk) either(yes bool, a, b uint32) uint32 {
	if yes {
		return a
	}
	return b
}

func (k *talk) want(opt uint32, data []byte, kind uint32) []optionReply {
	k.t.Helper()
	all := k.c.option(opt, data)
	if last := all[len(all)-1]; last.kind != kind {
		k.t.Fatalf("option %d: %#x %q, want %#x; %+v", opt, last.kind, last.data, kind, k)
	}
	return all[:len(all)-1]
}

func (k *talk) starttls() {
	k.want(optStartTLS, nil, k.either(k.secure, repErrInvalid, repAck))
	if !k.secure {
		k.c.handshakeTLS(k.a, "alice")
		k.secure, k.structured, k.extended, k.selected = true, false, false, ""
	}
}

func (k *talk) selects(name string) {
	k.selected = ""
	hidden := name == "nobody" || name == "secret" && !k.secure
	kind := k.either(hidden, repErrUnknown, repAck)
	k.want(optSetMeta, metaData(name, metaBase), k.either(k.structured, kind, repErrInvalid))
	if k.structured && !hidden {
		k.selected = name
	}
}

func (k *talk) asks(name string) {
	kind := k.either(name == "secret" && !k.secure, repErrTLSReqd, repAck)
	info := k.want(optInfo, infoData(name), k.either(name == "nobody", repErrUnknown, kind))
	if len(info) == 0 {
		return
	}
	flags := binary.BigEndian.Uint16(info[0].data[10:])
	if df := flags&sendDF != 0; df != k.structured {
		k.t.Errorf("DF %v; %+v", df, k)
	}
	if filter := flags&sendStatusLoad != 0; filter != (k.extended && k.selected == name) {
		k.t.Errorf("filters %v; %+v", filter, k)
	}
}
