package acl

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// words are the tags as getfacl(1) writes them, by what may stand before the first colon.
var words = map[string][2]uint16{ // the tag without a number, and with one
	"u": {tagOwner, tagUser}, "user": {tagOwner, tagUser},
	"g": {tagGroup, tagGroups}, "group": {tagGroup, tagGroups},
	"m": {tagMask}, "mask": {tagMask},
	"o": {tagOther}, "other": {tagOther},
}

// ParseText reads a list as setfacl(1) takes it, with numbers for users and groups:
// u::rwx,u:1000:rw-,g::r-x,m::rwx,o::r--. The entries must be in order.
func ParseText(text string) (List, error) {
	b := newBuilder(0)
	for line := range strings.SplitSeq(text, ",") {
		parts := strings.Split(line, ":")
		if len(parts) != 3 {
			return "", errs.Newf(errs.Invalid, "acl", "", "%q is no entry like u:1000:rw-", line)
		}
		e := entry{id: noID}
		which, ok := words[parts[0]]
		e.tag = which[0]
		if parts[1] != "" {
			id, err := strconv.ParseUint(parts[1], 10, 32)
			e.tag, e.id, ok = which[1], uint32(id), ok && err == nil && which[1] != 0
		}
		for _, c := range parts[2] {
			bit, known := map[rune]uint16{'r': 4, 'w': 2, 'x': 1, '-': 0}[c]
			e.perm, ok = e.perm|bit, ok && known
		}
		if !ok {
			return "", errs.Newf(errs.Invalid, "acl", "", "%q is no entry like u:1000:rw-", line)
		}
		b = b.add(e)
	}
	return Parse(b)
}

// String is the list as getfacl(1) shows it, in one line.
func (l List) String() string {
	names := map[uint16]string{tagOwner: "user", tagUser: "user", tagGroup: "group",
		tagGroups: "group", tagMask: "mask", tagOther: "other"}
	var lines []string
	for i := range l.len() {
		e, id := l.at(i), ""
		if e.id != noID {
			id = strconv.FormatUint(uint64(e.id), 10)
		}
		rights := []byte("rwx")
		for bit := range rights {
			if e.perm&(4>>bit) == 0 {
				rights[bit] = '-'
			}
		}
		lines = append(lines, fmt.Sprintf("%s:%s:%s", names[e.tag], id, rights))
	}
	return strings.Join(lines, ",")
}
