package memory

import "github.com/sluice-storage/sluice/fabric"

// Gather lists pieces of blocks for the network or for the disk; pieces that touch in memory flow
// together. One Gather makes one list.
type Gather struct {
	last *chunk
	end  int // of the last piece in its chunk
}

// Sge appends n bytes at lo of the block to a list for the network.
func (g *Gather) Sge(list []fabric.Sge, b Block, lo, n int) []fabric.Sge {
	k, at := b.slab.chunk, b.start()+lo
	if g.joins(k, at) {
		p := &list[len(list)-1]
		p.Buf = k.mem[at-len(p.Buf) : at+n : at+n]
	} else {
		list = append(list, fabric.Sge{Reg: k.arena.Region(), Buf: k.mem[at : at+n : at+n]})
	}
	g.last, g.end = k, at+n
	return list
}

// Bytes appends n bytes at lo of the block to a list for the disk.
func (g *Gather) Bytes(list [][]byte, b Block, lo, n int) [][]byte {
	k, at := b.slab.chunk, b.start()+lo
	if g.joins(k, at) {
		p := &list[len(list)-1]
		*p = k.mem[at-len(*p) : at+n : at+n]
	} else {
		list = append(list, k.mem[at:at+n:at+n])
	}
	g.last, g.end = k, at+n
	return list
}

func (g *Gather) joins(k *chunk, at int) bool { return g.last == k && g.end == at }
