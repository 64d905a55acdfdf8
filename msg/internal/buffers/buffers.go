// Package buffers is the memory of a connection's messages: receives, and send buffers, in one
// arena that is registered with the connection's provider. It does not allocate: its user decides
// which buffer is used for what.
package buffers

import (
	"errors"

	"github.com/sluice-storage/sluice/fabric"
	"github.com/sluice-storage/sluice/mem"
)

// Size says how many buffers there are, and how large.
type Size struct {
	Recvs, RecvBytes int
	Sends, SendBytes int
}

// Buffers are numbered from 0, receives and send buffers apart. Safe for concurrent use.
type Buffers struct {
	size  Size
	arena *mem.Arena
	posts []fabric.Recv // the receives as they are posted; does not change
}

// New maps and registers the memory. The completions of receive i have the context recv + i.
func New(d fabric.Domain, size Size, recv uint64) (*Buffers, error) {
	bytes := size.Recvs*stride(size.RecvBytes) + size.Sends*stride(size.SendBytes)
	arena, err := mem.NewArena(bytes, nil)
	if err != nil {
		return nil, err
	}
	if err := arena.Attach(d); err != nil {
		return nil, errors.Join(err, arena.Close())
	}
	b := &Buffers{size: size, arena: arena, posts: make([]fabric.Recv, size.Recvs)}
	for i := range b.posts {
		b.posts[i] = fabric.Recv{Context: recv + uint64(i), Reg: arena.Region(), Buf: b.Recv(i)}
	}
	return b, nil
}

// stride keeps buffers on cache lines of their own.
func stride(n int) int { return (n + 63) &^ 63 }

// Recv is the memory of a receive.
func (b *Buffers) Recv(i int) []byte { return b.cut(i*stride(b.size.RecvBytes), b.size.RecvBytes) }

// Send is a send buffer.
func (b *Buffers) Send(i int) []byte {
	behind := b.size.Recvs * stride(b.size.RecvBytes)
	return b.cut(behind+i*stride(b.size.SendBytes), b.size.SendBytes)
}

func (b *Buffers) cut(at, n int) []byte { return b.arena.Bytes()[at : at+n : at+n] }

// Posts are all receives, to be posted.
func (b *Buffers) Posts() []fabric.Recv { return b.posts }

// Region is that of all buffers.
func (b *Buffers) Region() fabric.Region { return b.arena.Region() }

// Close frees the memory.
func (b *Buffers) Close() error { return b.arena.Close() }
