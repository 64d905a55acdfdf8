package store

import (
	"github.com/sluice-storage/sluice/kv"
	"github.com/sluice-storage/sluice/meta"
)

// The names of an inode are spread over the whole store, and to count them for every inode takes
// memory for every inode. Sums do not: each inode adds a number of its own, times the links that it
// says it has, to one of many sums; each name takes the number of its inode away. Where all names
// are there the sums are zero. For those that are not, names and inodes are read once more, in
// another snapshot, and the names of the inodes of these sums alone are counted.
//
// That a sum is zero by accident has a probability of 2^-64 for each inode that is wrong.

const (
	sumsMax = 1 << 16 // sums, 12 bytes each

	// countedMax is how many inodes are counted in one go, some 60 bytes each. If there are more the
	// rest is counted in the next go.
	countedMax = 1 << 16
)

// links is the state of it.
type links struct {
	sums   []uint64
	inodes []uint32 // that belong to a sum

	snap    kv.Snapshot // of the second look; nil: it has not begun
	chosen  map[int]bool
	counted map[meta.Ino]*counted
	named   bool // inodes are read, names are being read
}

// counted is an inode whose names are counted.
type counted struct {
	nlink, names uint32
	version      kv.Version
	dir          bool
}

// mixIno makes a number of an inode's own, which looks random (the finisher of splitmix64).
func mixIno(ino meta.Ino) uint64 {
	x := uint64(ino) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sumOf is which sum an inode belongs to: by other bits than those that are added.
func sumOf(ino meta.Ino) int { return int(mixIno(ino+1<<63) >> 48) }

func (l *links) claim(ino meta.Ino, nlink uint32) {
	if l.sums == nil {
		l.sums, l.inodes = make([]uint64, sumsMax), make([]uint32, sumsMax)
	}
	l.sums[sumOf(ino)] += uint64(nlink) * mixIno(ino)
	l.inodes[sumOf(ino)]++
}

func (l *links) name(ino meta.Ino) {
	if l.sums == nil {
		l.sums, l.inodes = make([]uint64, sumsMax), make([]uint32, sumsMax)
	}
	l.sums[sumOf(ino)] -= mixIno(ino)
}

func (l *links) close() {
	if l.snap != nil {
		_ = l.snap.Close() // nothing is lost with it
		l.snap = nil
	}
}

// choose takes sums that are not zero, as many as can be counted in one go.
func (l *links) choose() {
	l.chosen, l.counted, l.named = map[int]bool{}, map[meta.Ino]*counted{}, false
	n := 0
	for i, sum := range l.sums {
		if sum == 0 || n > 0 && n+int(l.inodes[i]) > countedMax {
			continue
		}
		n += int(l.inodes[i])
		l.chosen[i] = true
		l.sums[i] = 0
	}
}

// linkStage counts the names of inodes whose sums are not zero.
func (r *checkRun) linkStage(max int) (over bool, err error) {
	l := &r.links
	if l.snap == nil {
		if l.choose(); len(l.chosen) == 0 {
			return true, nil
		}
		l.snap = r.s.kv.Snapshot()
		r.pos = nil
	}
	if !l.named {
		if over, err = r.scanLinks(kindInode, max, l.readInode); over && err == nil {
			l.named, r.pos = true, nil
		}
		return false, err
	}
	if over, err = r.scanLinks(kindEntry, max, l.readEntry); !over || err != nil {
		return false, err
	}
	if _, err = r.scanLinks(kindVolume, 0, l.readVolume); err != nil {
		return false, err
	}
	done := r.addLinks()
	if !done {
		return false, nil // more findings than a page has: the rest comes with the next step
	}
	l.close()
	return false, nil // once more: others may be left
}

// scanLinks reads records of a kind in the second snapshot; max 0: all.
func (r *checkRun) scanLinks(kind byte, max int, read func(key, value []byte, v kv.Version)) (
	over bool, err error) {

	start := []byte{kind}
	if r.pos != nil && r.pos[0] == kind {
		start = append(append([]byte(nil), r.pos...), 0)
	}
	n := 0
	over = true
	err = r.links.snap.Scan(start, kv.PrefixEnd([]byte{kind}),
		func(key, value []byte, v kv.Version) bool {
			if max != 0 && n == max {
				over = false
				return false
			}
			n++
			r.pos = append(r.pos[:0:0], key...)
			read(key, value, v)
			return true
		})
	r.broken = err != nil
	r.looked += uint64(n)
	return over, err
}

func (l *links) readInode(key, value []byte, v kv.Version) {
	ino := meta.Ino(number(key, 0))
	var n inode
	if ino == meta.RootIno || !l.chosen[sumOf(ino)] || parse(key, value, &n) != nil {
		return
	}
	l.counted[ino] = &counted{nlink: n.Nlink, version: v, dir: n.isDir()}
}

func (l *links) readEntry(key, value []byte, _ kv.Version) {
	var e entry
	if parse(key, value, &e) == nil {
		l.count(e.Ino)
	}
}

func (l *links) readVolume(key, value []byte, _ kv.Version) {
	var v volume
	if parse(key, value, &v) == nil {
		l.count(v.Ino)
	}
}

func (l *links) count(ino meta.Ino) {
	if c := l.counted[ino]; c != nil {
		c.names++
	}
}

// addLinks makes flaws of what was counted; false if there are more than fit.
func (r *checkRun) addLinks() (done bool) {
	for ino, c := range r.links.counted {
		if len(r.flaws) >= meta.FindingsMax-flawsOfOne {
			return false
		}
		delete(r.links.counted, ino)
		switch {
		case c.names == c.nlink:
		case c.names == 0:
			r.add(nameless(ino, c))
		default:
			r.add(linkCount(ino, c))
		}
	}
	return true
}
