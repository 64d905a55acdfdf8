package bench

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"time"
)

// loopBytes is what the memory-bound loop copies from and to: more than a processor caches.
const loopBytes = 64 << 20

// ServeLoop is a process that does nothing but copy memory, when it is asked to: for each 8-byte
// number of nanoseconds it copies for so long and answers with the bytes that it managed. What is
// slowed down by others is memory and processor, since it uses nothing else.
func ServeLoop(ln net.Listener) {
	accept(ln, func(conn net.Conn) error {
		from, to := make([]byte, loopBytes), make([]byte, loopBytes)
		for i := 0; i < loopBytes; i += 512 {
			from[i] = byte(i) // memory that was never written is one page of zeroes
		}
		var b [8]byte
		for {
			if _, err := io.ReadFull(conn, b[:]); err != nil {
				return err
			}
			end := time.Now().Add(time.Duration(binary.BigEndian.Uint64(b[:])))
			var done uint64
			const step = mib // between two looks at the clock
			for at := 0; time.Now().Before(end); at = (at + step) % loopBytes {
				done += uint64(copy(to[at:at+step], from[at:at+step]))
			}
			binary.BigEndian.PutUint64(b[:], done)
			if _, err := conn.Write(b[:]); err != nil {
				return err
			}
		}
	})
}

// loopFor has the loop run for d and tells what it copied, in MB/s.
func loopFor(ctx context.Context, addr string, d time.Duration) (float64, error) {
	var dial net.Dialer
	conn, err := dial.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(d))
	if _, err := conn.Write(b[:]); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return 0, err
	}
	return perSecond(int64(binary.BigEndian.Uint64(b[:])), d), nil
}
