package layout

import (
	"strings"

	"github.com/sluice-storage/sluice/errs"
)

// The extended attributes by which programs see and set policies. AttrAll is all of a policy in one
// text, like "unit=1M width=4 pool=fast".
const (
	AttrUnit  = "user.sluice.unit"
	AttrWidth = "user.sluice.width"
	AttrPool  = "user.sluice.pool"
	AttrAll   = "user.sluice.layout"
)

// NamesBytes is room for the names that are listed of one inode, with a zero behind each.
const NamesBytes = 64

// IsAttr tells whether an extended attribute is one of these.
func IsAttr(name string) bool {
	switch name {
	case AttrUnit, AttrWidth, AttrPool, AttrAll:
		return true
	}
	return false
}

// Get is the value of an attribute as people read it; default for what is left to the cluster.
func (p *Policy) Get(name string) string {
	switch name {
	case AttrUnit:
		return FormatUnit(p.Unit)
	case AttrWidth:
		return FormatWidth(p.Width)
	case AttrPool:
		if p.Pool != "" {
			return p.Pool
		}
	case AttrAll:
		return p.String()
	}
	return Default
}

// Set changes what an attribute says. errs.Invalid tells what could be said.
func (p *Policy) Set(name, value string) (err error) {
	changed := *p
	switch name {
	case AttrUnit:
		changed.Unit, err = ParseUnit(value)
	case AttrWidth:
		changed.Width, err = ParseWidth(value)
	case AttrPool:
		changed.Pool, err = ParsePool(value)
	case AttrAll:
		changed, err = ParsePolicy(value)
	default:
		err = errs.Newf(errs.Invalid, "layout", name, "there is no such attribute")
	}
	if err == nil {
		*p = changed
	}
	return err
}

// IsSet tells whether the policy says something of an attribute.
func (p *Policy) IsSet(name string) bool { return p.Get(name) != Default }

// Names are the attributes AttrUnit, AttrWidth and AttrPool that the policy says something of.
func (p *Policy) Names() []string {
	var names []string
	for _, name := range []string{AttrUnit, AttrWidth, AttrPool} {
		if p.IsSet(name) {
			names = append(names, name)
		}
	}
	return names
}

// String is all that the policy says, as ParsePolicy reads it.
func (p *Policy) String() string {
	var words []string
	for _, name := range p.Names() {
		words = append(words, strings.TrimPrefix(name, "user.sluice.")+"="+p.Get(name))
	}
	if len(words) == 0 {
		return Default
	}
	return strings.Join(words, " ")
}

// ParsePolicy reads words like unit=1M, width=4 and pool=fast, in any order; what is not named is
// left to the cluster. Or default.
func ParsePolicy(text string) (Policy, error) {
	var p Policy
	words := strings.Fields(text)
	if len(words) == 1 && words[0] == Default {
		return p, nil
	}
	if len(words) == 0 || len(words) > 3 {
		return p, errs.Newf(errs.Invalid, "layout", "", "%q is no layout: write it like "+
			"unit=1M width=4 pool=fast", text)
	}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		name := "user.sluice." + key
		if !ok || name == AttrAll || !IsAttr(name) {
			return Policy{}, errs.Newf(errs.Invalid, "layout", "", "%q is none of unit=, width=, pool=",
				word)
		}
		if err := p.Set(name, value); err != nil {
			return Policy{}, err
		}
	}
	return p, nil
}
