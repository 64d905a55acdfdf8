package nbd

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

func FuzzDecodeInfo(f *testing.F) {
	f.Add(infoData("x", 1, 2, 3))
	f.Add(infoData(""))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, p []byte) {
		r, ok := decodeInfo(p)
		if ok && !bytes.Equal(infoData(r.name, r.wants...), p) {
			t.Errorf("%x decodes to %+v, which encodes differently", p, r)
		}
	})
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add(metaData("x", metaBase, "base:"))
	f.Add(metaData(""))
	f.Add(append(text("x"), 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, p []byte) {
		r, ok := decodeMeta(p)
		if ok && !bytes.Equal(metaData(r.name, r.queries...), p) {
			t.Errorf("%x decodes to %+v, which encodes differently", p, r)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add(requestMessage(header{flags: 1, cmd: 2, cookie: 3, offset: 4, length: 5}, nil))
	f.Add(make([]byte, requestBytes))
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) < requestBytes {
			return
		}
		h, ok := decodeRequest(p)
		if ok && !bytes.Equal(requestMessage(h, nil), p[:requestBytes]) {
			t.Errorf("%x decodes to %+v", p, h)
		}
	})
}

// converse says p to a server after prefix, and returns when the server has had enough.
func converse(t *testing.T, s *Server, prefix, p []byte) {
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() {
		s.ServeConn(far)
		close(ended)
	}()
	go func() {
		_, _ = near.Write(prefix) // the server may hang up at any byte
		_, _ = near.Write(p)
		time.Sleep(time.Millisecond)
		near.Close()
	}()
	_, _ = io.Copy(io.Discard, near)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the connection does not end")
	}
	if st := s.Stats(); st.Panics != 0 || st.MemoryBytes != 0 {
		t.Fatalf("%+v", st)
	}
}

// FuzzHandshake sends anything after the greeting.
func FuzzHandshake(f *testing.F) {
	exp := &full{fake: newFake(64 << 10)}
	s := serve(f, Config{MemoryBytes: mib, MaxPayload: 64 << 10}, entryOf("x", exp, exp.fake))
	f.Add(optionMessage(optList, nil))
	f.Add(optionMessage(optGo, infoData("x", 1, 2, 3)))
	f.Add(append(optionMessage(optStructuredReply, nil),
		optionMessage(optSetMeta, metaData("x", metaBase))...))
	f.Add(optionMessage(optExportName, []byte("x")))
	f.Add(optionMessage(optStartTLS, nil))
	f.Add(optionMessage(77, make([]byte, 100)))
	f.Fuzz(func(t *testing.T, p []byte) {
		converse(t, s, binary.BigEndian.AppendUint32(nil, 3), p)
	})
}

// FuzzTransmission sends anything after a negotiation.
func FuzzTransmission(f *testing.F) {
	exp := &full{fake: newFake(64 << 10)}
	s := serve(f, Config{MemoryBytes: mib, MaxPayload: 64 << 10}, entryOf("x", exp, exp.fake))
	for cmd := range cmdCount + 1 {
		h := header{cmd: cmd, cookie: 9, offset: 4096, length: 16}
		f.Add(requestMessage(h, make([]byte, 16)))
	}
	f.Add(requestMessage(header{cmd: cmdWrite, length: 1<<32 - 1}, nil))
	prefix := binary.BigEndian.AppendUint32(nil, 3)
	prefix = append(prefix, optionMessage(optStructuredReply, nil)...)
	prefix = append(prefix, optionMessage(optSetMeta, metaData("x", metaBase))...)
	prefix = append(prefix, optionMessage(optGo, infoData("x"))...)
	f.Fuzz(func(t *testing.T, p []byte) { converse(t, s, prefix, p) })
}
