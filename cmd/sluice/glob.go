package main

import (
	"regexp"
	"strconv"
	"strings"
)

// glob is a pattern as shells have it: * any text, ? one character, [a-z] and [!a-z] one of
// several, \ before a character that means itself. As with find(1), * matches slashes and leading
// dots, too.
type glob struct{ re *regexp.Regexp }

// parseGlob reads one; an empty text is no pattern, nil.
func parseGlob(text string, fold bool) (*glob, error) {
	if text == "" {
		return nil, nil
	}
	var b strings.Builder
	b.WriteString(`(?s`)
	if fold {
		b.WriteString(`i`)
	}
	b.WriteString(`)\A`)
	for i := 0; i < len(text); {
		i += globPart(&b, text[i:])
	}
	b.WriteString(`\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		return nil, refuse(strconv.Quote(text)+" is no pattern",
			"Write it as for a shell, in quotes: '*.log', 'run[0-9]?'")
	}
	return &glob{re}, nil
}

// globPart translates the beginning of a pattern and tells how much of it.
func globPart(b *strings.Builder, text string) int {
	switch text[0] {
	case '*':
		b.WriteString(`.*`)
	case '?':
		b.WriteString(`.`)
	case '\\':
		if len(text) > 1 {
			b.WriteString(regexp.QuoteMeta(text[1:2]))
			return 2
		}
		b.WriteString(`\\`)
	case '[':
		return globSet(b, text)
	default:
		end := strings.IndexAny(text, `*?\[`)
		if end < 0 {
			end = len(text)
		}
		b.WriteString(regexp.QuoteMeta(text[:end]))
		return end
	}
	return 1
}

// globSet translates [...]; a bracket that is not closed means itself.
func globSet(b *strings.Builder, text string) int {
	at := 1
	if at < len(text) && (text[at] == '!' || text[at] == '^') {
		at++
	}
	negated := at == 2
	end := at
	if end < len(text) && text[end] == ']' {
		end++ // the first one is a member
	}
	next := strings.IndexByte(text[min(end, len(text)):], ']')
	if next < 0 {
		b.WriteString(`\[`)
		return 1
	}
	end += next
	b.WriteString(`[`)
	if negated {
		b.WriteString(`^`)
	}
	members := strings.NewReplacer(`\`, ``, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text[at:end])
	b.WriteString(members + `]`)
	return end + 1
}

func (g *glob) fits(text string) bool { return g.re.MatchString(text) }
