package tcp

import (
	"crypto/cipher"
	"crypto/subtle"
	"crypto/tls"
	"encoding/binary"
)

// Authenticated plaintext: the stream is cut into records, each with a tag.
//
//	0       4        20
//	|length |tag 16  |data, length bytes |   big-endian
//
// The tag is a GMAC (AES-GCM without anything encrypted) of the data, under a key of its own for
// each direction that comes from the TLS handshake, and with the number of the record as nonce. So
// nothing can be changed, left out, repeated or reordered. Data is read straight to where it
// belongs before it is verified; a record that does not verify ends the connection, and what it
// brought counts as never arrived. Nothing is believed before: frame headers come in small records,
// which are verified first.
//
// Who writes puts at most one large piece into a record of its own, and copies small ones together,
// because a GMAC needs its data in one piece.

const (
	recordHead  = 4 + tagBytes
	tagBytes    = 16
	recordMax   = 64 << 10
	recordSmall = carryBytes // up to here data may be anything; above, the payload of one frame
	sealSmall   = 4          // how many of those are made at a time
	sealRecords = 16         // how many are made at a time
)

// mac makes the tags of one direction.
type mac struct {
	aead  cipher.AEAD
	nonce [12]byte // the number of the next record
	tag   [tagBytes]byte
}

// sum is the tag of the next record.
func (m *mac) sum(data []byte) *[tagBytes]byte {
	m.aead.Seal(m.tag[:0], m.nonce[:], nil, data)
	binary.BigEndian.PutUint64(m.nonce[4:], binary.BigEndian.Uint64(m.nonce[4:])+1)
	return &m.tag
}

// frameRecords is authenticated plaintext on one socket.
type frameRecords struct {
	rxMac mac
	buf   [recordHead + recordSmall + 4096]byte // small records, and the beginning of what follows
	at    int
	to    int
	ready []byte // verified, in buf or whole, not handed over yet
	src   vec
	whole []byte // a large record that cannot go straight to its place
	want  int    // of it; 0: none
	have  int

	txMac mac
	stage []byte // small records
	heads [sealRecords][recordHead]byte
}

func newFrameRecords(c *tls.Conn, server bool) (*frameRecords, error) {
	r := &frameRecords{stage: make([]byte, 0, sealSmall*(recordHead+recordSmall))}
	var err error
	r.txMac.aead, r.rxMac.aead, err = macs(c)
	if server {
		r.txMac.aead, r.rxMac.aead = r.rxMac.aead, r.txMac.aead
	}
	return r, err
}

// pending implements records.
func (r *frameRecords) pending() bool {
	if len(r.ready) > 0 {
		return true
	}
	if r.want > 0 || r.to-r.at < recordHead {
		return false
	}
	size := binary.BigEndian.Uint32(r.buf[r.at:]) // read finds what is wrong with it
	return uint64(r.to-r.at) >= recordHead+uint64(size)
}

func (r *frameRecords) read(s *stream) (int, error) {
	for {
		if len(r.ready) > 0 {
			n := s.in.copyIn(r.ready)
			r.ready = r.ready[n:]
			return n, nil
		}
		if r.want > 0 {
			if done, err := r.readWhole(s); err != nil || !done {
				return 0, err
			}
			continue
		}
		if r.to-r.at >= recordHead {
			size, err := recordSize(r.buf[r.at:])
			if err != nil {
				return 0, err
			}
			switch {
			case size > recordSmall && size <= s.in.bytes:
				return size, r.readDirect(s, size)
			case size > recordSmall:
				r.want, r.have = size, 0
				continue
			case r.to-r.at >= recordHead+size:
				head := r.takeHead()
				r.ready = r.buf[r.at : r.at+size]
				r.at += size
				if err := r.verify(&head, r.ready); err != nil {
					return 0, err
				}
				continue
			}
		}
		if n, err := r.more(s); err != nil || n == 0 {
			return 0, err
		}
	}
}

func recordSize(b []byte) (int, error) {
	size := binary.BigEndian.Uint32(b)
	if size == 0 || size > recordMax {
		return 0, protocolErr("a record of an impossible length")
	}
	return int(size), nil
}

// more reads into buf. It is 0 where the stream does not block and there is nothing.
func (r *frameRecords) more(s *stream) (int, error) {
	r.to = copy(r.buf[:], r.buf[r.at:r.to])
	r.at = 0
	r.src.reset()
	r.src.add(r.buf[r.to:])
	n, err := s.receive(&r.src)
	if err != nil {
		return 0, err
	}
	r.to += n
	return n, nil
}

// takeHead copies the head of a record, since buf is used again before it is needed.
func (r *frameRecords) takeHead() [recordHead]byte {
	head := [recordHead]byte(r.buf[r.at:])
	r.at += recordHead
	return head
}

func (r *frameRecords) verify(head *[recordHead]byte, data []byte) error {
	if subtle.ConstantTimeCompare(head[4:], r.rxMac.sum(data)[:]) != 1 {
		r.ready = nil
		return protocolErr("a record does not verify: somebody changes what is sent")
	}
	return nil
}

// readDirect reads a large record straight into s.in. Who calls it cannot be interrupted in the
// middle but by the end of the connection, and waits for what is on its way.
func (r *frameRecords) readDirect(s *stream, size int) error {
	defer func(block bool) { s.block = block }(s.block)
	s.block = true
	head := r.takeHead()
	early := min(size, r.to-r.at)
	s.in.copyIn(r.buf[r.at : r.at+early])
	r.at += early
	r.src.reset()
	r.src.addPart(&s.in, early, size-early)
	if r.at == r.to {
		r.at, r.to = 0, 0
		r.src.add(r.buf[:tailBytes])
	}
	for left := size - early; left > 0; {
		n, err := s.receive(&r.src)
		if err != nil {
			r.src.reset()
			return err
		}
		r.to += max(0, n-left)
		left -= min(n, left)
		r.src.drop(n)
	}
	r.src.reset()
	data := s.in.first()
	if len(data) < size {
		data = s.in.copyOut(r.room()[:0], size)
	}
	return r.verify(&head, data[:size])
}

// readWhole reads a large record that is for several places, or for none. It can be interrupted and
// called again, as where it was not done because the stream does not block.
func (r *frameRecords) readWhole(s *stream) (done bool, err error) {
	data := r.room()[:recordHead+r.want]
	for r.have < len(data) {
		if n := copy(data[r.have:], r.buf[r.at:r.to]); n > 0 {
			r.at += n
			r.have += n
			continue
		}
		r.src.reset()
		r.src.add(data[r.have:])
		n, err := s.receive(&r.src)
		if err != nil || n == 0 {
			return false, err
		}
		r.have += n
	}
	head := [recordHead]byte(data)
	r.ready, r.want = data[recordHead:], 0
	return true, r.verify(&head, r.ready)
}

func (r *frameRecords) room() []byte {
	if r.whole == nil {
		r.whole = make([]byte, recordHead+recordMax)
	}
	return r.whole
}

func (r *frameRecords) seal(b *batch) error {
	b.wire.reset()
	r.stage = r.stage[:0]
	for i := 0; i < sealRecords && b.out.bytes > 0; i++ {
		p := b.out.first()
		if len(p) <= recordSmall {
			if cap(r.stage)-len(r.stage) < recordHead+recordSmall {
				break
			}
			r.sealSmall(b)
			continue
		}
		p = p[:min(len(p), recordMax)]
		b.out.drop(len(p))
		r.sealLarge(b, &r.heads[i], p)
	}
	return nil
}

func (r *frameRecords) sealLarge(b *batch, head *[recordHead]byte, data []byte) {
	binary.BigEndian.PutUint32(head[:], uint32(len(data)))
	copy(head[4:], r.txMac.sum(data)[:])
	b.wire.add(head[:])
	b.wire.add(data)
}

// sealSmall puts small pieces together in one record.
func (r *frameRecords) sealSmall(b *batch) {
	begin := len(r.stage)
	r.stage = r.stage[:begin+recordHead]
	for b.out.bytes > 0 {
		room := recordSmall - (len(r.stage) - begin - recordHead)
		p := b.out.first()
		if len(p) > room {
			break
		}
		r.stage = append(r.stage, p...)
		b.out.drop(len(p))
	}
	record := r.stage[begin:]
	data := record[recordHead:]
	binary.BigEndian.PutUint32(record, uint32(len(data)))
	copy(record[4:], r.txMac.sum(data)[:])
	b.wire.add(record)
}
