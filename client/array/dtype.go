package array

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/layout"
)

// Type is what one element is, in NumPy's words. Elements are moved as they lie in the file: bytes
// in the other order are described, not swapped.
type Type struct {
	// Kind is NumPy's letter: b (boolean), i, u, f, c (complex), S (bytes), U (characters of 4
	// bytes), V (plain bytes), m (time difference), M (time). 0: a structure, of Fields.
	Kind byte

	// Order of the bytes: '<' the least first, '>' the most first, '|' where it means nothing.
	Order byte

	// Bytes of one element.
	Bytes int64

	// Unit of m and M, in brackets: "[ns]".
	Unit string

	// Fields of a structure, in the order in which they lie. Those without a name are padding.
	Fields []Field
}

// Field of a structure.
type Field struct {
	Name  string
	Title string // a second name, mostly empty
	Type  Type
	Shape []int64 // of a field that is an array; nil: one element
}

// Limits of types. NumPy's own: an element has less than 2 GiB, an array at most 64 axes.
const (
	elementMax = 1<<31 - 1
	axesMax    = 64
	fieldsMax  = 4096
)

// typeNames are the names that people use.
var typeNames = map[string]string{
	"bool": "b1", "int8": "i1", "int16": "i2", "int32": "i4", "int64": "i8", "int": "i8",
	"uint8": "u1", "uint16": "u2", "uint32": "u4", "uint64": "u8", "uint": "u8",
	"float16": "f2", "float32": "f4", "float64": "f8", "float": "f8", "float128": "f16",
	"complex64": "c8", "complex128": "c16", "complex256": "c32", "complex": "c16",
}

// kindSizes are the sizes that numbers may have.
var kindSizes = map[byte]string{
	'b': " 1 ", 'i': " 1 2 4 8 ", 'u': " 1 2 4 8 ", 'f': " 2 4 8 12 16 ", 'c': " 8 16 24 32 ",
	'm': " 8 ", 'M': " 8 ",
}

func badType(text, why string) error {
	return errs.Newf(errs.Invalid, "array.Type", text, "%s", why)
}

// ParseType reads a type: NumPy's short form (<f8, >i4, S16, M8[ns]), a name (float64), or a
// structure as NumPy writes it: [('x', '<f4'), ('v', '<f8', (3,))].
func ParseType(text string) (Type, error) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "[") {
		return parsePlain(text)
	}
	v, err := parseLiteral(text)
	if err != nil {
		return Type{}, err
	}
	return typeOf(v)
}

// typeOf turns what stands behind descr into a type.
func typeOf(v any) (Type, error) {
	switch d := v.(type) {
	case string:
		return parsePlain(d)
	case sequence:
		return structure(d)
	}
	return Type{}, badType("", "neither a string nor a list of fields")
}

func parsePlain(text string) (Type, error) {
	t := Type{Order: '='}
	rest := text
	if long, ok := typeNames[text]; ok {
		rest = long
	}
	if rest != "" && strings.IndexByte("<>=|", rest[0]) >= 0 {
		t.Order, rest = rest[0], rest[1:]
	}
	if rest == "?" {
		rest = "b1"
	}
	if rest == "" {
		return t, badType(text, "no type")
	}
	t.Kind, rest = rest[0], rest[1:]
	if i := strings.IndexByte(rest, '['); i >= 0 {
		rest, t.Unit = rest[:i], rest[i:]
	}
	n, err := strconv.ParseInt(rest, 10, 32)
	if err != nil || n < 0 || rest[0] == '+' {
		return t, badType(text, "its size is missing or no number")
	}
	t.Bytes = n
	return t.normal(text)
}

// normal checks a plain type and gives it the one form that NumPy writes.
func (t Type) normal(text string) (Type, error) {
	switch t.Kind {
	case 'a':
		t.Kind = 'S'
	case 'O':
		return t, badType(text, "elements that are Python objects are not data that lies in a file")
	}
	sizes, number := kindSizes[t.Kind]
	switch {
	case number && !strings.Contains(sizes, " "+strconv.FormatInt(t.Bytes, 10)+" "):
		return t, badType(text, "there is no such size")
	case !number && strings.IndexByte("SUV", t.Kind) < 0:
		return t, badType(text, "unknown")
	case t.Kind == 'm' || t.Kind == 'M':
		if t.Unit != "" && !validUnit(t.Unit) {
			return t, badType(text, "an unknown unit of time")
		}
	case t.Unit != "":
		return t, badType(text, "only times have a unit")
	case t.Kind == 'U':
		t.Bytes *= 4
	}
	switch {
	case t.Bytes > elementMax:
		return t, badType(text, "an element is too large")
	case t.Bytes == 1 && number || t.Kind == 'S' || t.Kind == 'V':
		t.Order = '|'
	case t.Order == '=' || t.Order == '|':
		t.Order = nativeOrder()
	}
	return t, nil
}

// validUnit checks [ns], [25s], [generic].
func validUnit(unit string) bool {
	name, ok := strings.CutSuffix(strings.TrimPrefix(unit, "["), "]")
	name = strings.TrimLeft(name, "0123456789")
	return ok && strings.Contains(" generic Y M W D h m s ms us ns ps fs as ", " "+name+" ") &&
		len(unit) < 32
}

func nativeOrder() byte {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return '<'
	}
	return '>'
}

func structure(items sequence) (Type, error) {
	t := Type{Order: '|'}
	if len(items) > fieldsMax {
		return t, badType("", "too many fields")
	}
	t.Fields = make([]Field, 0, len(items))
	for _, item := range items {
		f, err := fieldOf(item)
		if err != nil {
			return t, err
		}
		n, err := f.bytes()
		if t.Bytes += n; err != nil || t.Bytes > elementMax {
			return t, badType("", "a structure is too large")
		}
		t.Fields = append(t.Fields, f)
	}
	return t, nil
}

// fieldOf reads ('name', type), ('name', type, shape) or (('title', 'name'), ...).
func fieldOf(item any) (f Field, err error) {
	parts, ok := item.(tuple)
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return f, badType("", "a field is no tuple of a name, a type and perhaps a shape")
	}
	switch name := parts[0].(type) {
	case string:
		f.Name = name
	case tuple:
		if len(name) == 2 {
			f.Title, _ = name[0].(string)
			f.Name, ok = name[1].(string)
		}
		if len(name) != 2 || !ok {
			return f, badType("", "a field with a title has a tuple of two strings")
		}
	default:
		return f, badType("", "a field has no name")
	}
	if f.Type, err = typeOf(parts[1]); err != nil || len(parts) == 2 {
		return f, err
	}
	if n, ok := parts[2].(int64); ok {
		parts[2] = tuple{n}
	}
	f.Shape, err = shapeOf(parts[2])
	return f, err
}

func (f *Field) bytes() (int64, error) { return arrayBytes(f.Type.Bytes, f.Shape) }

// shapeOf reads a tuple of lengths.
func shapeOf(v any) ([]int64, error) {
	items, ok := v.(tuple)
	if !ok {
		return nil, errs.Newf(errs.Invalid, "array.Shape", "", "no tuple")
	}
	shape := make([]int64, len(items))
	for i, item := range items {
		if shape[i], ok = item.(int64); !ok {
			return nil, errs.Newf(errs.Invalid, "array.Shape", "", "length %d is no number", i)
		}
	}
	_, err := arrayBytes(1, shape)
	return shape, err
}

// arrayBytes is how long an array is. It refuses shapes that no file can hold; axes of length 0
// make an array empty, not the others harmless.
func arrayBytes(element int64, shape []int64) (int64, error) {
	if len(shape) > axesMax {
		return 0, errs.Newf(errs.Invalid, "array.Shape", "", "%d axes, at most %d", len(shape), axesMax)
	}
	n, empty := max(element, 1), element == 0
	for i, length := range shape {
		switch {
		case length < 0:
			return 0, errs.Newf(errs.Invalid, "array.Shape", "", "axis %d has length %d", i, length)
		case length == 0:
			empty = true
			continue
		case n > layout.FileSizeMax/2/length:
			return 0, errs.Newf(errs.TooBig, "array.Shape", shapeText(shape),
				"no file is that large")
		}
		n *= length
	}
	if empty {
		return 0, nil
	}
	return n, nil
}

// String is the type as NumPy writes it in a header, without the quotes of a plain one.
func (t Type) String() string {
	if t.Kind == 0 {
		return t.literal()
	}
	n := t.Bytes
	if t.Kind == 'U' {
		n /= 4
	}
	return string([]byte{t.Order, t.Kind}) + strconv.FormatInt(n, 10) + t.Unit
}

// literal is the type as it stands in a header.
func (t Type) literal() string {
	if t.Kind != 0 {
		return quoted(t.String())
	}
	var b strings.Builder
	b.WriteByte('[')
	for i, f := range t.Fields {
		if i > 0 {
			b.WriteString(", ")
		}
		name := quoted(f.Name)
		if f.Title != "" {
			name = "(" + quoted(f.Title) + ", " + name + ")"
		}
		b.WriteString("(" + name + ", " + f.Type.literal())
		if f.Shape != nil {
			b.WriteString(", " + shapeText(f.Shape))
		}
		b.WriteByte(')')
	}
	b.WriteByte(']')
	return b.String()
}
