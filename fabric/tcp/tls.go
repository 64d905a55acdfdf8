package tcp

import (
	"crypto/tls"
	"errors"
	"os"
	"sync"
)

// tlsRecords encrypt a socket with TLS, whose connection reads and writes through here: what it
// reads comes from the stream's socket, what it writes is collected until the batch takes it.
type tlsRecords struct {
	tls *tls.Conn

	reader *stream // who is in tls.Read
	src    vec
	buf    []byte // for what the socket has, beyond what TLS asks for: it asks for a record's head
	rest   []byte // of buf, not taken by TLS yet

	stage []byte // small pieces put together

	mu      sync.Mutex
	sealed  []byte // written by TLS, not taken by a batch
	writing []byte // taken by the batch
}

const (
	tlsRecordBytes = 16 << 10  // the payload of a full record
	tlsSealBytes   = 128 << 10 // how much is sealed at a time
	tlsReadBytes   = 32 << 10  // how much is read at a time
)

func newTLSRecords(c *tls.Conn, under *underConn) *tlsRecords {
	r := &tlsRecords{tls: c, stage: make([]byte, 0, tlsRecordBytes),
		buf: make([]byte, tlsReadBytes)}
	under.after = r
	return r
}

// pending implements records. What TLS itself has left is not known.
func (r *tlsRecords) pending() bool { return len(r.rest) > 0 }

func (r *tlsRecords) read(s *stream) (int, error) {
	r.reader = s
	n, err := r.tls.Read(s.in.first())
	if !s.block && errors.Is(err, os.ErrDeadlineExceeded) {
		return n, nil
	}
	return n, err
}

// readCipher reads for TLS. Where the stream does not block and there is nothing it fails as when
// its time is over, after which TLS goes on where it was.
func (r *tlsRecords) readCipher(b []byte) (int, error) {
	if len(r.rest) == 0 {
		r.src.reset()
		r.src.add(r.buf)
		n, err := r.reader.receive(&r.src)
		if n == 0 && err == nil {
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			return 0, err
		}
		r.rest = r.buf[:n]
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
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
