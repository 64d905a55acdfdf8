package logstore

import "github.com/sluice-storage/sluice/internal/crc32c"

// gather is a list of buffers that is walked from front to back.
type gather struct {
	bufs [][]byte
	at   int // in bufs[0]
}

// skipEmpty drops what is used up.
func (g *gather) skipEmpty() {
	for len(g.bufs) > 0 && g.at == len(g.bufs[0]) {
		g.bufs, g.at = g.bufs[1:], 0
	}
}

// next takes up to n bytes that lie together.
func (g *gather) next(n int) []byte {
	g.skipEmpty()
	b := g.bufs[0][g.at:]
	b = b[:min(n, len(b))]
	g.at += len(b)
	return b
}

func (g *gather) skip(n int) {
	for n > 0 {
		n -= len(g.next(n))
	}
}

// copyTo moves bytes from the list into dst, which it fills.
func (g *gather) copyTo(dst []byte) {
	for len(dst) > 0 {
		dst = dst[copy(dst, g.next(len(dst))):]
	}
}

// copyFrom moves src into the list.
func (g *gather) copyFrom(src []byte) {
	for len(src) > 0 {
		src = src[copy(g.next(len(src)), src):]
	}
}

// zero clears the next n bytes of the list.
func (g *gather) zero(n int) {
	for n > 0 {
		b := g.next(n)
		clear(b)
		n -= len(b)
	}
}

// direct appends the next n bytes to dst as pieces that direct I/O can use. It returns false, and
// has taken nothing, when some are not aligned.
func (g *gather) direct(dst [][]byte, n int) ([][]byte, bool) {
	save, had := *g, len(dst)
	for n > 0 {
		b := g.next(n)
		if len(b)%blockBytes != 0 || !aligned(b) {
			*g = save
			return dst[:had], false
		}
		dst = append(dst, b)
		n -= len(b)
	}
	return dst, true
}

// plainSum is the CRC32C of the next block of the list.
func (g *gather) plainSum() uint32 {
	var crc uint32
	for n := blockBytes; n > 0; {
		b := g.next(n)
		crc = crc32c.Update(crc, b)
		n -= len(b)
	}
	return crc
}
