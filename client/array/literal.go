package array

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluice-storage/sluice/errs"
)

// The values of Python that a header is written in. Strings, integers, booleans and None are those
// of Go: string, int64, bool, nil.
type (
	tuple    []any
	sequence []any // a list
	dict     []entry
	entry    struct {
		key string
		val any
	}
)

// literalDepth is how deep literals may be nested: structured types inside structured types.
const literalDepth = 16

// literals reads values of Python as they are written in its source. It knows no more of the
// language than headers use.
type literals struct {
	text  string
	at    int
	depth int
	bad   error
}

// parseLiteral reads one value, and nothing behind it.
func parseLiteral(text string) (any, error) {
	p := literals{text: text}
	v := p.value()
	if p.space(); p.bad == nil && p.at < len(p.text) {
		p.fail("something follows its end")
	}
	return v, p.bad
}

func (p *literals) fail(why string) {
	if p.bad == nil {
		p.bad = errs.Newf(errs.Invalid, "array.Literal", "", "byte %d: %s", p.at, why)
	}
}

func (p *literals) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n\f\v", p.text[p.at]) >= 0 {
		p.at++
	}
}

// next takes c if it comes next.
func (p *literals) next(c byte) bool {
	p.space()
	if p.bad != nil || p.at >= len(p.text) || p.text[p.at] != c {
		return false
	}
	p.at++
	return true
}

func (p *literals) value() any {
	p.depth++
	defer func() { p.depth-- }()
	p.space()
	switch {
	case p.bad != nil:
		return nil
	case p.at >= len(p.text):
		p.fail("it ends in the middle")
		return nil
	case p.depth > literalDepth:
		p.fail("nested too deep")
		return nil
	}
	switch c := p.text[p.at]; {
	case c == '\'' || c == '"':
		return p.str()
	case c == '(':
		p.at++
		return p.parenthesis()
	case c == '[':
		p.at++
		items, _ := p.items(']')
		return sequence(items)
	case c == '{':
		p.at++
		return p.dict()
	case c == '-' || c >= '0' && c <= '9':
		return p.integer()
	}
	return p.word()
}

// parenthesis is a tuple, or, without a comma, the value inside.
func (p *literals) parenthesis() any {
	items, comma := p.items(')')
	if len(items) == 1 && !comma {
		return items[0]
	}
	return tuple(items)
}

// items reads values up to the closing bracket. comma tells whether there was one.
func (p *literals) items(closing byte) (items []any, comma bool) {
	for !p.next(closing) {
		items = append(items, p.value())
		if p.next(',') {
			comma = true
			continue
		}
		if !p.next(closing) {
			p.fail("a comma or a " + string(closing) + " is missing")
		}
		break
	}
	return items, comma
}

func (p *literals) dict() dict {
	var d dict
	for !p.next('}') {
		p.space()
		key, ok := p.value().(string)
		if !ok {
			p.fail("a key is no string")
		}
		if !p.next(':') {
			p.fail("a colon is missing")
		}
		d = append(d, entry{key, p.value()})
		if p.next(',') {
			continue
		}
		if !p.next('}') {
			p.fail("a comma or a } is missing")
		}
		break
	}
	return d
}

// integer reads a number; Python 2 wrote an L behind some.
func (p *literals) integer() any {
	from := p.at
	if p.text[p.at] == '-' {
		p.at++
	}
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	n, err := strconv.ParseInt(p.text[from:p.at], 10, 64)
	if err != nil {
		p.fail("no number of 64 bits")
		return nil
	}
	if p.at < len(p.text) && p.text[p.at] == 'L' {
		p.at++
	}
	return n
}

func (p *literals) word() any {
	for word, v := range map[string]any{"True": true, "False": false, "None": nil} {
		if strings.HasPrefix(p.text[p.at:], word) {
			p.at += len(word)
			return v
		}
	}
	p.fail("no value begins like this")
	return nil
}

// str reads a string in single or double quotes.
func (p *literals) str() string {
	quote := p.text[p.at]
	p.at++
	var b strings.Builder
	for p.bad == nil && p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch c {
		case quote:
			return b.String()
		case '\\':
			p.escape(&b)
		case '\n':
			p.fail("a string ends with its line")
		default:
			b.WriteByte(c)
		}
	}
	p.fail("a string does not end")
	return ""
}

// escapeDigits is how many hexadecimal digits follow each letter.
var escapeDigits = map[byte]int{'x': 2, 'u': 4, 'U': 8}

func (p *literals) escape(b *strings.Builder) {
	if p.at >= len(p.text) {
		return
	}
	c := p.text[p.at]
	p.at++
	if i := strings.IndexByte(`\'"ntrfvab`, c); i >= 0 {
		b.WriteByte("\\'\"\n\t\r\f\v\a\b"[i])
		return
	}
	n, ok := escapeDigits[c]
	if !ok || p.at+n > len(p.text) {
		p.fail("an unknown escape")
		return
	}
	r, err := strconv.ParseUint(p.text[p.at:p.at+n], 16, 32)
	if err != nil || r > utf8.MaxRune || !utf8.ValidRune(rune(r)) {
		p.fail("an escape that is no character")
		return
	}
	p.at += n
	b.WriteRune(rune(r))
}

// quoted writes a string as Python's repr does.
func quoted(s string) string {
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < ' ' || r >= 0x7f && r < 0xa0:
			b.WriteString(`\x` + strconv.FormatUint(0x100+uint64(r), 16)[1:])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte(quote)
	return b.String()
}

// shapeText writes numbers as Python writes a tuple of them: (), (3,), (3, 4).
func shapeText(shape []int64) string {
	words := make([]string, len(shape))
	for i, n := range shape {
		words[i] = strconv.FormatInt(n, 10)
	}
	if len(shape) == 1 {
		return "(" + words[0] + ",)"
	}
	return "(" + strings.Join(words, ", ") + ")"
}
