package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/sluice-storage/sluice/internal/size"
)

// Parse reads a file's text, fills in defaults and validates. The error is an Invalid with all that
// is wrong; there is no Config then.
func Parse(text []byte, h Host) (*Config, error) {
	c := &Config{source: source{file: h.File}}
	if c.source.file == "" {
		c.source.file = FileName
	}
	if len(text) > BytesMax {
		return nil, Invalid{c.Problem("", fmt.Sprintf("%d bytes; at most %d", len(text), BytesMax),
			"Is this the right file?")}
	}
	tree := map[string]any{}
	if err := toml.Unmarshal(text, &tree); err != nil {
		return nil, Invalid{c.syntax(err)}
	}
	c.source.lines = linesOf(text)
	d := decoder{config: c}
	d.table("", tree, reflect.ValueOf(c).Elem())
	if len(d.problems) == 0 {
		c.withDefaults(h)
		d.problems = c.validate(h)
	}
	if len(d.problems) > 0 {
		slices.SortStableFunc(d.problems, func(a, b Problem) int { return a.Line - b.Line })
		return nil, Invalid(d.problems)
	}
	return c, nil
}

// syntax is an error of the library as a problem.
func (c *Config) syntax(err error) Problem {
	p := c.Problem("", err.Error(), "See https://toml.io for how a file is written")
	var at *toml.DecodeError
	if errors.As(err, &at) {
		p.Line, _ = at.Position()
		p.What = strings.TrimPrefix(at.Error(), "toml: ")
		p.Key = strings.Join(at.Key(), ".")
	}
	return p
}

// linesOf finds the line of every key and table of a file that is known to be right.
func linesOf(text []byte) map[string]int {
	m := lineMap{text: text, lines: map[string]int{}, counts: map[string]int{}}
	m.parser.Reset(text)
	within := ""
	for m.parser.NextExpression() {
		switch e := m.parser.Expression(); e.Kind {
		case unstable.Table:
			within = m.enter(e, false)
		case unstable.ArrayTable:
			within = m.enter(e, true)
		case unstable.KeyValue:
			m.keyValue(within, e)
		}
	}
	return m.lines
}

type lineMap struct {
	parser unstable.Parser
	text   []byte
	lines  map[string]int
	counts map[string]int // of tables in arrays, by path
}

func (m *lineMap) at(offset uint32) int {
	return 1 + bytes.Count(m.text[:min(int(offset), len(m.text))], []byte("\n"))
}

// enter is the path of a table's header. Parts of it may be arrays: their last table is meant.
func (m *lineMap) enter(e *unstable.Node, array bool) string {
	path, line := "", 0
	for it := e.Key(); it.Next(); {
		k := it.Node()
		path, line = joined(path, string(k.Data)), m.at(k.Raw.Offset)
		if array && it.IsLast() {
			m.counts[path]++
		}
		if n := m.counts[path]; n > 0 {
			path = fmt.Sprintf("%s[%d]", path, n)
		}
	}
	m.lines[path] = line
	return path
}

func (m *lineMap) keyValue(within string, e *unstable.Node) {
	path := within
	for it := e.Key(); it.Next(); {
		path = joined(path, string(it.Node().Data))
		m.lines[path] = m.at(it.Node().Raw.Offset)
	}
	m.value(path, e.Value())
}

// value looks into tables and lists that are written in a line.
func (m *lineMap) value(path string, v *unstable.Node) {
	switch v.Kind {
	case unstable.InlineTable:
		for it := v.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				m.keyValue(path, it.Node())
			}
		}
	case unstable.Array:
		n := 0
		for it := v.Children(); it.Next(); n++ {
			if it.Node().Kind == unstable.InlineTable {
				m.value(fmt.Sprintf("%s[%d]", path, n+1), it.Node())
			}
		}
	}
}

func joined(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// decoder puts values into a Config, and notes what does not fit.
type decoder struct {
	config   *Config
	problems []Problem
}

func (d *decoder) bad(key, remedy, format string, args ...any) {
	d.problems = append(d.problems, d.config.Problem(key, fmt.Sprintf(format, args...), remedy))
}

// table fills a struct. Keys come in no order; the problems are sorted in the end.
func (d *decoder) table(path string, from map[string]any, into reflect.Value) {
	fields := fieldsOf(into.Type())
	for name, v := range from {
		i, ok := fields[name]
		if !ok {
			d.unknown(path, name, into.Type())
			continue
		}
		d.value(joined(path, name), v, into.Field(i))
	}
}

// fieldsOf are the keys of a struct.
func fieldsOf(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("toml"); name != "" {
			fields[name] = i
		}
	}
	return fields
}

// unknown is a key that does not exist: perhaps it is misspelled, or belongs to another table.
func (d *decoder) unknown(path, name string, t reflect.Type) {
	var names []string
	for k := range fieldsOf(t) {
		names = append(names, k)
	}
	slices.Sort(names)
	what := "there is no such key"
	if near := Suggest(name, names); near != "" {
		d.bad(joined(path, name), "Did you mean "+near+"?", "%s", what)
		return
	}
	for _, other := range tables() {
		if _, ok := fieldsOf(other.of)[name]; ok && other.of != t {
			d.bad(joined(path, name), "It belongs to "+other.name, "%s here", what)
			return
		}
	}
	d.bad(joined(path, name), "There are: "+strings.Join(names, ", "), "%s", what)
}

// tables are all kinds of tables, as people write them.
func tables() []struct {
	name string
	of   reflect.Type
} {
	return []struct {
		name string
		of   reflect.Type
	}{
		{"the top of the file", reflect.TypeFor[Config]()}, {"[meta]", reflect.TypeFor[Meta]()},
		{"[[iod]]", reflect.TypeFor[Iod]()}, {"[[nbd]]", reflect.TypeFor[NBD]()},
		{"[[nbd.export]]", reflect.TypeFor[Export]()}, {"[[mount]]", reflect.TypeFor[Mount]()},
	}
}

// value puts one value into a field.
func (d *decoder) value(key string, v any, into reflect.Value) {
	switch to := into.Addr().Interface().(type) {
	case *List:
		*to = d.list(key, v)
		return
	case *Size:
		*to = d.size(key, v)
		return
	case *Duration:
		*to = d.duration(key, v)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(key, v, into.Elem())
	case reflect.Struct:
		if sub, ok := v.(map[string]any); ok {
			d.table(key, sub, into)
			return
		}
		d.bad(key, "Write ["+key+"] and its keys below it", "it is a table")
	case reflect.Slice:
		d.tables(key, v, into)
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			d.bad(key, `Write it in quotes: "..."`, "want a text")
		}
		into.SetString(s)
	case reflect.Bool:
		b, ok := v.(bool)
		if !ok {
			d.bad(key, "Write true or false, without quotes", "want yes or no")
		}
		into.SetBool(b)
	case reflect.Int:
		n, ok := v.(int64)
		if !ok || n < 1 || n > 1<<40 {
			d.bad(key, "Write a whole number above 0, without quotes", "want a number")
			n = 0
		}
		into.SetInt(n)
	}
}

// tables fills a slice of structs.
func (d *decoder) tables(key string, v any, into reflect.Value) {
	list, ok := v.([]any)
	if !ok {
		name := key
		if i := strings.LastIndexByte(key, ']'); i >= 0 { // nbd[1].export
			name = "nbd" + key[i+1:]
		}
		d.bad(key, "Write [["+name+"]], for each of them", "there may be several of it")
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
	for i, one := range list {
		at := fmt.Sprintf("%s[%d]", key, i+1)
		sub, ok := one.(map[string]any)
		if !ok {
			d.bad(at, "Write a table", "it is no table")
			continue
		}
		d.table(at, sub, into.Index(i))
	}
}

func (d *decoder) list(key string, v any) List {
	if s, ok := v.(string); ok {
		return List{s}
	}
	all, ok := v.([]any)
	list := List{}
	for _, one := range all {
		s, isText := one.(string)
		ok = ok && isText
		list = append(list, s)
	}
	if !ok {
		d.bad(key, `Write "..." or ["...", "..."]`, "want a text or a list of texts")
	}
	return list
}

func (d *decoder) size(key string, v any) Size {
	text := fmt.Sprint(v)
	_, isText := v.(string)
	_, isInt := v.(int64)
	if _, ok := size.Parse(text); !ok || !isText && !isInt {
		d.bad(key, `Write bytes or a unit, like 1048576, "64M" or "10GiB"`, "want a size")
		return ""
	}
	return Size(text)
}

func (d *decoder) duration(key string, v any) Duration {
	text, _ := v.(string)
	t, err := time.ParseDuration(text)
	if err != nil || t < 0 {
		d.bad(key, `Write a time like "30s", "10m" or "1h30m"`, "want a time")
	}
	return Duration(t)
}
