package tcp

import (
	"crypto/tls"
	"sync"
)

// tlsRecords encrypt a socket with TLS, whose connection reads and writes through here: what it
// reads comes from the stream's socket, what it writes is collected until the batch takes it.
type tlsRecords struct {
	tls *tls.Conn

	reader *stream // who is in tls.Read
	src    vec

	stage []byte // small pieces put together

	mu      sync.Mutex
	sealed  []byte // written by TLS, not taken by a batch
	writing []byte // taken by the batch
}

const (
	tlsRecordBytes = 16 << 10  // the payload of a full record
	tlsSealBytes   = 128 << 10 // how much is sealed at a time
)

func newTLSRecords(c *tls.Conn, under *underConn) *tlsRecords {
	r := &tlsRecords{tls: c, stage: make([]byte, 0, tlsRecordBytes)}
	under.after = r
	return r
}

func (r *tlsRecords) read(s *stream) (int, error) {
	r.reader = s
	return r.tls.Read(s.in.first())
}

func (r *tlsRecords) readCipher(b []byte) (int, error) {
	r.src.reset()
	r.src.add(b)
	return r.reader.receive(&r.src)
}

// writeCipher is also called by a reader when the peer renews its keys.
func (r *tlsRecords) writeCipher(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = append(r.sealed, b...)
	return len(b), nil
}

// seal encrypts large pieces where they are, and small ones together.
func (r *tlsRecords) seal(b *batch) error {
	for left := tlsSealBytes; left > 0 && b.out.bytes > 0; {
		part := r.next(b)
		if _, err := r.tls.Write(part); err != nil {
			return err
		}
		left -= len(part)
	}
	r.mu.Lock()
	r.writing, r.sealed = r.sealed, r.writing[:0]
	r.mu.Unlock()
	b.wire.reset()
	b.wire.add(r.writing)
	return nil
}

// next takes up to a full record's bytes out of the batch, or more if they lie together.
func (r *tlsRecords) next(b *batch) []byte {
	if p := b.out.first(); len(p) >= tlsRecordBytes {
		p = p[:min(len(p)/tlsRecordBytes*tlsRecordBytes, tlsSealBytes)]
		b.out.drop(len(p))
		return p
	}
	r.stage = b.out.take(r.stage[:0], tlsRecordBytes)
	return r.stage
}
