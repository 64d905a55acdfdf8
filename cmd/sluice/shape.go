package main

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// jsonShape says in words what encoding/json makes of a type: the help is written from the types,
// so that it cannot be wrong.
func jsonShape(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		if s := jsonShape(t.Elem()); s != "" {
			return "a list, each " + s
		}
		return "a list"
	case reflect.Map:
		if s := jsonShape(t.Elem()); s != "" {
			return "an object by name, each " + s
		}
		return "an object by name"
	case reflect.Struct:
		if t.Implements(reflect.TypeFor[json.Marshaler]()) {
			return ""
		}
		return "{" + strings.Join(jsonKeys(t, nil), ", ") + "}"
	}
	return ""
}

// jsonKeys are the keys of a struct, and in parentheses what is below them. A type inside itself is
// not told again.
func jsonKeys(t reflect.Type, above []reflect.Type) []string {
	var keys []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous && name == "":
			keys = append(keys, jsonKeys(f.Type, above)...)
			continue
		case name == "":
			name = f.Name
		}
		keys = append(keys, name+jsonBelow(f.Type, append(above, t)))
	}
	return keys
}

func jsonBelow(t reflect.Type, above []reflect.Type) string {
	for {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			t = t.Elem()
			continue
		}
		break
	}
	if t.Kind() != reflect.Struct || t.Implements(reflect.TypeFor[json.Marshaler]()) ||
		t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return ""
	}
	for _, a := range above {
		if a == t {
			return " (as here)"
		}
	}
	return " {" + strings.Join(jsonKeys(t, above), ", ") + "}"
}

// helpColumns is how wide the help is.
const helpColumns = 95

// wrapped breaks a paragraph into lines.
func wrapped(text string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > helpColumns:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
