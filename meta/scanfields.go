package meta

import "github.com/sluice-storage/sluice/wire"

// Bounds of what is scanned besides: directories, and entries of all of them and of the page.
const (
	ScanAlso        = 32
	ScanAlsoEntries = 1024
)

// argScan is |cookie u64 |name |by name u8 |max u32 |attrs u8 |bytes u32 |count u32 |, and count
// times |dir u64 |.
var argScan = one(func(a *Args) *Scan { return &a.Scan },
	func(e *wire.Enc, s *Scan) {
		e.U64(s.Cookie)
		e.String(s.Name)
		e.Bool(s.ByName)
		e.U32(uint32(s.Max))
		e.Bool(s.Attrs)
		e.U32(uint32(s.Bytes))
		scanAlso.enc(e, &s.Also)
	},
	func(d *wire.Dec, s *Scan) {
		s.Cookie = d.U64()
		s.Name = d.String(NameMax + 1) // NextName of a name
		s.ByName = d.Bool()
		s.Max = int(d.U32())
		s.Attrs = d.Bool()
		s.Bytes = int(d.U32())
		scanAlso.dec(d, &s.Also)
	})

var scanAlso = many(func(l *[]Ino) *[]Ino { return l }, ScanAlso, 8,
	func(e *wire.Enc, i *Ino) { e.U64(uint64(*i)) }, func(d *wire.Dec, i *Ino) { *i = Ino(d.U64()) })

// scannedEntries are the entries of a page. Each is |entry |data |: see encEntry and encData.
var scannedEntries = many(func(l *[]Entry) *[]Entry { return l }, DirPageMax, entryBytes+1,
	func(e *wire.Enc, n *Entry) {
		encEntry(e, n)
		encData(e, &n.Data)
	},
	func(d *wire.Dec, n *Entry) {
		decEntry(d, n)
		decData(d, &n.Data)
	})

// encScanned: |page |count u32 |count x page of another directory |.
func encScanned(e *wire.Enc, s *Scanned) {
	encPage(e, s)
	scannedAlso.enc(e, &s.Also)
}

func decScanned(d *wire.Dec, s *Scanned) {
	decPage(d, s)
	scannedAlso.dec(d, &s.Also)
}

var scannedAlso = many(func(l *[]Scanned) *[]Scanned { return l }, ScanAlso, attrBytes+1+4,
	encPage, decPage)

// encPage: |dir attr |end u8 |count u32 |count x entry with data |.
func encPage(e *wire.Enc, s *Scanned) {
	encAttr(e, &s.Dir)
	e.Bool(s.End)
	scannedEntries.enc(e, &s.Entries)
}

func decPage(d *wire.Dec, s *Scanned) {
	decAttr(d, &s.Dir)
	s.End = d.Bool()
	scannedEntries.dec(d, &s.Entries)
}

// Size is an upper bound of the bytes that a page takes on the wire, with what comes with it.
func (s *Scanned) Size() int {
	n := sizeOfAttr(&s.Dir) + 1 + 4 + 4
	for i := range s.Entries {
		n += s.Entries[i].size()
	}
	for i := range s.Also {
		n += s.Also[i].Size()
	}
	return n
}

func (n *Entry) size() int {
	sum := entryBytes + len(n.Name) + 1 + 4 + len(n.Data)
	if n.Attr != nil {
		sum += sizeOfAttr(n.Attr)
	}
	return sum
}

func sizeOfAttr(a *Attr) int {
	return attrBytes + 8 + 4*a.Layout.Width() + 2*4 + len(a.ACL) + len(a.Default)
}

// Cut shortens a page to what takes at most room bytes, but not below one entry. What comes with it
// is left out where it does not fit.
func (s *Scanned) Cut(room int) {
	room -= sizeOfAttr(&s.Dir) + 1 + 4 + 4
	for i := range s.Entries {
		if room -= s.Entries[i].size(); room < 0 && i > 0 {
			s.Entries, s.End, s.Also = s.Entries[:i], false, nil
			return
		}
	}
	for i := range s.Also {
		if room -= s.Also[i].Size(); room < 0 {
			s.Also = s.Also[:i]
			return
		}
	}
}
