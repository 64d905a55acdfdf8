package config

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// Render writes a Config as a file that Parse reads as the same, with a comment for each key. What
// is empty is left out, so that a Config without defaults becomes a short file. head goes first, as
// comments.
func Render(c *Config, head string) []byte {
	var w writer
	for line := range strings.Lines(head) {
		fmt.Fprintln(&w.text, strings.TrimRight("# "+strings.TrimRight(line, "\n"), " "))
	}
	w.table("", "", reflect.ValueOf(c).Elem())
	return []byte(w.text.String())
}

type writer struct {
	text strings.Builder
	docs map[string]string
}

// table writes the keys of a struct and then its tables, which have to follow. path is as in
// headers, table as in docs.
func (w *writer) table(path, table string, v reflect.Value) {
	if w.docs == nil {
		w.docs = docs()
	}
	var later []int
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("toml")
		if name == "" {
			continue
		}
		if isTable(v.Field(i).Type()) {
			later = append(later, i)
			continue
		}
		text, ok := written(v.Field(i))
		if !ok {
			continue
		}
		line := name + " = " + text
		if doc := w.docs[joined(table, name)]; doc != "" {
			line = fmt.Sprintf("%-32s # %s", line, doc)
		}
		fmt.Fprintln(&w.text, line)
	}
	for _, i := range later {
		name := joined(path, v.Type().Field(i).Tag.Get("toml"))
		switch f := v.Field(i); {
		case f.Kind() == reflect.Slice:
			for j := range f.Len() {
				fmt.Fprintf(&w.text, "\n[[%s]]\n", name)
				w.table(name, name, f.Index(j))
			}
		case !f.IsNil():
			fmt.Fprintf(&w.text, "\n[%s]\n", name)
			w.table(name, name, f.Elem())
		}
	}
}

// isTable tells whether a field has a header of its own.
func isTable(t reflect.Type) bool {
	if t.Kind() != reflect.Slice && t.Kind() != reflect.Pointer {
		return false
	}
	return t.Elem().Kind() == reflect.Struct
}

// written is a value as the file has it; false: it is left out.
func written(v reflect.Value) (text string, ok bool) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "", false
		}
		v = v.Elem()
	} else if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
		return "", false
	}
	switch x := v.Interface().(type) {
	case List:
		if len(x) == 1 {
			return quote(x[0]), true
		}
		var all []string
		for _, s := range x {
			all = append(all, quote(s))
		}
		return "[" + strings.Join(all, ", ") + "]", true
	case Duration:
		return quote(x.String()), true
	}
	if v.Kind() == reflect.String {
		return quote(v.String()), true
	}
	return fmt.Sprint(v.Interface()), true
}

// quote writes a TOML string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case unicode.IsControl(r):
			fmt.Fprintf(&b, "\\u%04X", r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
