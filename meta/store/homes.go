package store

import (
	"github.com/sluice-storage/sluice/meta"
	"github.com/sluice-storage/sluice/wire"
)

// home is a directory in which an inode has names.
type home struct {
	dir   meta.Ino
	names uint16 // how many; LinkMax fits
}

// homes are the directories in which an inode that is no directory has names, meta.HomesMax of
// them at most: names in others are not noted. So a name that is noted is there, and where as many
// are noted as the inode has links there are no others. An inode that has lost its last name, or
// was made without, keeps the directory: it is where those found it who have it open.
//
// Whoever makes or takes a name writes the inode anyway, for its links and times: this costs a few
// bytes of its record.
type homes struct {
	first home // most inodes have one, which needs no memory of its own
	rest  []home
}

func (h *homes) find(dir meta.Ino) *home {
	if h.first.dir == dir && h.first.names > 0 {
		return &h.first
	}
	for i := range h.rest {
		if h.rest[i].dir == dir {
			return &h.rest[i]
		}
	}
	return nil
}

// add notes another name.
func (h *homes) add(dir meta.Ino) {
	switch x := h.find(dir); {
	case x != nil:
		x.names++
	case h.first.names == 0:
		h.first = home{dir, 1}
	case 1+len(h.rest) < meta.HomesMax:
		h.rest = append(h.rest, home{dir, 1})
	}
}

// remove notes that a name is gone.
func (h *homes) remove(dir meta.Ino) {
	x := h.find(dir)
	if x == nil {
		return
	}
	if x.names--; x.names > 0 {
		return
	}
	last := len(h.rest) - 1
	if last < 0 {
		h.first = home{}
		return
	}
	*x = h.rest[last]
	h.rest = h.rest[:last]
}

// only notes that there is one name, and no other.
func (h *homes) only(dir meta.Ino) { *h = homes{first: home{dir, 1}} }

// names is how many are noted.
func (h *homes) names() (n uint32) {
	n = uint32(h.first.names)
	for i := range h.rest {
		n += uint32(h.rest[i].names)
	}
	return n
}

// scattered tells whether an inode has names that are not noted. That of a volume is no name.
func (n *inode) scattered() bool {
	return !n.isDir() && !n.has(flagVolume) && n.homes.names() < n.Nlink
}

// append is |count u8 |count x |directory u64 |names u16 ||.
func (h *homes) append(e *wire.Enc) {
	if h.first.names == 0 {
		e.U8(0)
		return
	}
	e.U8(uint8(1 + len(h.rest)))
	h.first.append(e)
	for i := range h.rest {
		h.rest[i].append(e)
	}
}

func (x *home) append(e *wire.Enc) {
	e.U64(uint64(x.dir))
	e.U16(x.names)
}

func (h *homes) decode(d *wire.Dec) {
	*h = homes{}
	count := int(d.U8())
	if count > meta.HomesMax {
		d.Fail("an inode with too many homes")
	}
	for i := 0; i < count && d.Err() == nil; i++ {
		x := home{meta.Ino(d.U64()), d.U16()}
		switch {
		case x.names == 0 || h.find(x.dir) != nil:
			d.Fail("a home without names, or one that is told twice")
		case i == 0:
			h.first = x
		default:
			h.rest = append(h.rest, x)
		}
	}
}
