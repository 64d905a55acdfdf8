package hint

import (
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// Prefix begins the names of all extended attributes that mean something to sluice. No others can
// be set below it.
const Prefix = "user.sluice."

// unset is the value of a size that the server chooses.
const unset = "default"

// attr is one extended attribute.
type attr struct {
	name string // behind Prefix
	get  func(h *Hints) string
	set  func(h *Hints, value string) error
}

// attrs are all of them, in the order in which they are listed.
var attrs = []attr{
	word("cache.mode", []string{"cached", "direct", "cached-writes"},
		func(h *Hints) *uint8 { return (*uint8)(&h.Mode) }),
	word("cache.policy", PolicyNames(),
		func(h *Hints) *uint8 { return &h.Policy }),
	size("cache.unit", "a power of two from 4K to 64K", func(h *Hints) *int { return &h.UnitBytes }),
	word("direct.streams", []string{unset, "plain", "single", "multiple"},
		func(h *Hints) *uint8 { return &h.Streams }),
	size("direct.chunk", "a multiple of 4K up to 2M", func(h *Hints) *int { return &h.ChunkBytes }),
}

// NamesBytes is room for all names in a list, with a zero behind each.
const NamesBytes = 128

// Names are the names of all hints, as Get and Set take them.
func Names() []string {
	var names []string
	for _, a := range attrs {
		names = append(names, Prefix+a.name)
	}
	return names
}

// PolicyNames are the names of the policies, in the order of their numbers.
func PolicyNames() []string { return []string{"scan", "lru", "stream", "keep", "none"} }

// Get is the value of a hint as people read it, also where it is the default. ok is false where
// there is no hint of that name.
func (h *Hints) Get(name string) (value string, ok bool) {
	if a := find(name); a != nil {
		return a.get(h), true
	}
	return "", false
}

// Set changes a hint. Names and values that mean nothing are refused with errs.Invalid and text
// that tells which there are.
func (h *Hints) Set(name, value string) error {
	a := find(name)
	if a == nil {
		return errs.Newf(errs.Invalid, "hint", name, "there is no such hint: choose of %s",
			strings.Join(Names(), ", "))
	}
	return a.set(h, value)
}

// Unset makes a hint the default again.
func (h *Hints) Unset(name string) error {
	var plain Hints
	value, _ := plain.Get(name)
	return h.Set(name, value)
}

// Changed are the names of the hints that differ from another set's.
func (h *Hints) Changed(from *Hints) []string {
	var names []string
	for _, a := range attrs {
		if a.get(h) != a.get(from) {
			names = append(names, Prefix+a.name)
		}
	}
	return names
}

func find(name string) *attr {
	short, ok := strings.CutPrefix(name, Prefix)
	i := slices.IndexFunc(attrs, func(a attr) bool { return a.name == short })
	if !ok || i < 0 {
		return nil
	}
	return &attrs[i]
}

// word is a hint with one of several names for a value, which is their number.
func word(name string, words []string, at func(h *Hints) *uint8) attr {
	return attr{
		name: name,
		get: func(h *Hints) string {
			if v := int(*at(h)); v < len(words) {
				return words[v]
			}
			return strconv.Itoa(int(*at(h))) // not valid
		},
		set: func(h *Hints, value string) error {
			i := slices.Index(words, value)
			if i < 0 {
				return errs.Newf(errs.Invalid, "hint", Prefix+name, "%q is none of %s", value,
					strings.Join(words, ", "))
			}
			*at(h) = uint8(i)
			return nil
		},
	}
}

// size is a hint with a number of bytes for a value.
func size(name, which string, at func(h *Hints) *int) attr {
	return attr{
		name: name,
		get:  func(h *Hints) string { return formatSize(*at(h)) },
		set: func(h *Hints, value string) error {
			n, ok := parseSize(value)
			changed := *h
			*at(&changed) = n
			if !ok || changed.Validate() != nil {
				return errs.Newf(errs.Invalid, "hint", Prefix+name, "%q is not %s", value, which)
			}
			*h = changed
			return nil
		},
	}
}

// parseSize reads bytes, or KiB with a K behind, or MiB with an M.
func parseSize(text string) (n int, ok bool) {
	if text == unset {
		return 0, true
	}
	shift := 0
	digits := text
	if rest, found := strings.CutSuffix(text, "K"); found {
		digits, shift = rest, 10
	} else if rest, found := strings.CutSuffix(text, "M"); found {
		digits, shift = rest, 20
	}
	v, err := strconv.ParseUint(digits, 10, 32)
	return int(v << shift), err == nil && v != 0 // what is too large is refused by Validate
}

func formatSize(n int) string {
	switch {
	case n == 0:
		return unset
	case n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + "M"
	case n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + "K"
	}
	return strconv.Itoa(n)
}
