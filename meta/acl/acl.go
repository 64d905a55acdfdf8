// Package acl is POSIX access control lists as Linux has them: what they look like in an extended
// attribute, what they allow, how chmod(2) changes them, and what new files inherit. It is pure:
// who may set them, and where they are kept, is the metadata service's business.
//
// A list is kept in the form that programs give it, once Parse has found it sound:
//
//	0         4
//	|version  |entries ...
//
//	entry:  |tag u16 |permissions u16 |id u32 |
//
// in little endian. The entries come in the order of their tags: owner, users, owning group,
// groups, mask, others.
package acl

import (
	"encoding/binary"

	"github.com/sluice-storage/sluice/errs"
)

// List is a list that is sound; empty: there is none, and the mode says everything. It is a string
// so that it can be shared, and compared.
type List string

// Names of the extended attributes.
const (
	Access  = "system.posix_acl_access"  // who may do what
	Default = "system.posix_acl_default" // of a directory: what is made in it begins with this
)

// BytesMax is how long a list may be: Linux takes no more than a page of it.
const BytesMax = 4096

// NamesBytes is room for both names in a list, with a zero behind each.
const NamesBytes = 64

const (
	version    = 2
	headBytes  = 4
	entryBytes = 8
	noID       = ^uint32(0) // of entries that name nobody
)

// Tags.
const (
	tagOwner  = 0x01
	tagUser   = 0x02
	tagGroup  = 0x04 // the owning group
	tagGroups = 0x08 // a named one
	tagMask   = 0x10
	tagOther  = 0x20
)

// entry is one line of a list.
type entry struct {
	tag  uint16
	perm uint16
	id   uint32
}

func (l List) len() int { return max(0, len(l)-headBytes) / entryBytes }

func (l List) at(i int) entry {
	b := l[headBytes+i*entryBytes:]
	return entry{tag: u16(b), perm: u16(b[2:]), id: uint32(u16(b[4:])) | uint32(u16(b[6:]))<<16}
}

func u16(s List) uint16 { return uint16(s[0]) | uint16(s[1])<<8 }

// builder puts a list together.
type builder []byte

func newBuilder(bytes int) builder {
	return binary.LittleEndian.AppendUint32(make(builder, 0, bytes), version)
}

func (b builder) add(e entry) builder {
	b = binary.LittleEndian.AppendUint16(b, e.tag)
	b = binary.LittleEndian.AppendUint16(b, e.perm)
	return binary.LittleEndian.AppendUint32(b, e.id)
}

// Parse reads the value of an extended attribute. It takes what Linux takes: errs.Invalid if it is
// no list, errs.Unsupported if it is of another version, errs.TooBig. A value without entries is no
// list at all, and not an error.
func Parse(value []byte) (List, error) {
	bad := func(format string, args ...any) (List, error) {
		return "", errs.Newf(errs.Invalid, "acl", "", format, args...)
	}
	switch {
	case len(value) == 0:
		return "", nil
	case len(value) > BytesMax:
		return "", errs.Newf(errs.TooBig, "acl", "", "%d bytes, at most %d", len(value), BytesMax)
	case len(value) < headBytes || (len(value)-headBytes)%entryBytes != 0:
		return bad("%d bytes are no list", len(value))
	case binary.LittleEndian.Uint32(value) != version:
		return "", errs.Newf(errs.Unsupported, "acl", "", "a list of version %d",
			binary.LittleEndian.Uint32(value))
	}
	raw := List(value)
	b := newBuilder(len(value))
	var last, seen uint16
	for i := range raw.len() {
		e := raw.at(i)
		if e.perm > 7 || !follows(last, e.tag) {
			return bad("entry %d: tag %#x with %#o behind tag %#x", i, e.tag, e.perm, last)
		}
		if named := e.tag == tagUser || e.tag == tagGroups; !named {
			e.id = noID
		} else if e.id == noID {
			return bad("entry %d names nobody", i)
		}
		last, seen = e.tag, seen|e.tag
		b = b.add(e)
	}
	switch {
	case seen == 0:
		return "", nil
	case last != tagOther || seen&(tagOwner|tagGroup) != tagOwner|tagGroup:
		return bad("the owner, the group or others are missing")
	case seen&(tagUser|tagGroups) != 0 && seen&tagMask == 0:
		return bad("users and groups need a mask")
	}
	return List(b), nil
}

// follows tells whether an entry may stand behind another one; 0: at the beginning. Only users and
// groups may be several.
func follows(last, tag uint16) bool {
	switch tag {
	case tagOwner, tagGroup, tagMask, tagOther:
		return last < tag
	case tagUser:
		return last == tagOwner || last == tagUser
	case tagGroups:
		return last == tagGroup || last == tagGroups
	}
	return false
}

// Mode is the permission bits that a file with this list shows: as group's those of the mask, if
// there is one.
func (l List) Mode() (mode uint32) {
	for i := range l.len() {
		switch e := l.at(i); e.tag {
		case tagOwner:
			mode |= uint32(e.perm) << 6
		case tagGroup, tagMask: // the mask comes later
			mode = mode&^0o070 | uint32(e.perm)<<3
		case tagOther:
			mode |= uint32(e.perm)
		}
	}
	return mode
}

// Extended tells whether a list says more than its mode does.
func (l List) Extended() bool { return l.len() > 3 }

// WithMode is the list after chmod(2): group's bits are those of the mask, if there is one.
func (l List) WithMode(mode uint32) List {
	if l == "" {
		return ""
	}
	b := newBuilder(len(l))
	for i := range l.len() {
		e := l.at(i)
		switch {
		case e.tag == tagOwner:
			e.perm = uint16(mode >> 6 & 7)
		case e.tag == tagMask || e.tag == tagGroup && !l.Extended():
			e.perm = uint16(mode >> 3 & 7)
		case e.tag == tagOther:
			e.perm = uint16(mode & 7)
		}
		b = b.add(e)
	}
	return List(b)
}

// Inherit is what something gets that is made with mode in a directory with this default list: a
// list of its own, none where the mode says it all, and the permission bits, which are those that
// both allow. Other bits of the mode stay.
func (l List) Inherit(mode uint32) (List, uint32) {
	if l == "" {
		return "", mode
	}
	allowed := l.Mode() & mode & 0o777
	mode = mode&^0o777 | allowed
	if !l.Extended() {
		return "", mode
	}
	return l.WithMode(allowed), mode
}

// Allows tells whether a user who does not own the file, of group gid, may do what want says. The
// first of user, groups and others that fits decides; of groups one that allows it is enough.
func (l List) Allows(uid, gid uint32, in func(gid uint32) bool, want uint32) bool {
	member, granted := false, false
	for i := range l.len() {
		e := l.at(i)
		yes := uint32(e.perm)&want == want
		switch e.tag {
		case tagUser:
			if e.id == uid {
				return yes && l.mask()&want == want
			}
		case tagGroup, tagGroups:
			if e.tag == tagGroup {
				e.id = gid
			}
			if in(e.id) {
				member, granted = true, granted || yes
			}
		case tagOther:
			if !member {
				return yes
			}
		}
	}
	return granted && l.mask()&want == want
}

// mask is what users and groups have at most. It stands before others in every extended list, which
// has one because users and groups need it.
func (l List) mask() uint32 {
	if !l.Extended() {
		return 7
	}
	return uint32(l.at(l.len() - 2).perm)
}
