package array

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
)

// Text writes one element for people, much as Python does: numbers, True, 'characters', b'bytes'.
// Plain bytes are hexadecimal, and so are floating-point numbers of more than 8 bytes, whose form
// is the machine's own; times are numbers of their unit. p has the bytes of one element.
func (t Type) Text(p []byte) string {
	order := binary.ByteOrder(binary.LittleEndian)
	if t.Order == '>' {
		order = binary.BigEndian
	}
	switch t.Kind {
	case 0:
		return t.structText(p)
	case 'b':
		if p[0] != 0 {
			return "True"
		}
		return "False"
	case 'u':
		return strconv.FormatUint(unsigned(order, p), 10)
	case 'i', 'm', 'M':
		shift := 64 - 8*uint(len(p))
		return strconv.FormatInt(int64(unsigned(order, p)<<shift)>>shift, 10)
	case 'f':
		return floatText(order, p)
	case 'c':
		re, im := floatText(order, p[:len(p)/2]), floatText(order, p[len(p)/2:])
		if !strings.HasPrefix(im, "-") {
			im = "+" + im
		}
		return "(" + re + im + "j)"
	case 'S':
		return "b" + bytesText(strings.TrimRight(string(p), "\x00"))
	case 'U':
		var b strings.Builder
		for ; len(p) >= 4; p = p[4:] {
			b.WriteRune(rune(order.Uint32(p)))
		}
		return quoted(strings.TrimRight(b.String(), "\x00"))
	}
	return hex.EncodeToString(p)
}

// structText writes the fields that have names.
func (t Type) structText(p []byte) string {
	var words []string
	for _, f := range t.Fields {
		n, err := f.bytes()
		if err != nil {
			return hex.EncodeToString(p)
		}
		if f.Name != "" {
			words = append(words, f.text(p[:n]))
		}
		p = p[n:]
	}
	if len(words) == 1 {
		words[0] += ","
	}
	return "(" + strings.Join(words, ", ") + ")"
}

// text writes a field; one that is an array as the list of its elements.
func (f *Field) text(p []byte) string {
	if f.Shape == nil {
		return f.Type.Text(p)
	}
	var words []string
	for n := int(f.Type.Bytes); n > 0 && len(p) > 0; p = p[n:] {
		words = append(words, f.Type.Text(p[:n]))
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func unsigned(order binary.ByteOrder, p []byte) uint64 {
	switch len(p) {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(order.Uint16(p))
	case 4:
		return uint64(order.Uint32(p))
	}
	return order.Uint64(p)
}

func floatText(order binary.ByteOrder, p []byte) string {
	switch len(p) {
	case 2:
		return half(order.Uint16(p))
	case 4:
		return number(float64(math.Float32frombits(order.Uint32(p))), 32)
	case 8:
		return number(math.Float64frombits(order.Uint64(p)), 64)
	}
	return hex.EncodeToString(p)
}

// half writes a number of half precision: 1 bit of sign, 5 of exponent, 10 of fraction.
func half(b uint16) string {
	exponent, fraction := int(b>>10&31), float64(b&1023)
	var x float64
	switch exponent {
	case 0:
		x = math.Ldexp(fraction, -24)
	case 31:
		if x = math.Inf(1); fraction != 0 {
			x = math.NaN()
		}
	default:
		x = math.Ldexp(1024+fraction, exponent-25)
	}
	if b>>15 != 0 {
		x = -x
	}
	return number(x, 32)
}

// number writes a number as short as it can be read back.
func number(x float64, bits int) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	}
	return strconv.FormatFloat(x, 'g', -1, bits)
}

// bytesText writes bytes as Python does behind the b.
func bytesText(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~':
			b.WriteString(`\x` + hex.EncodeToString([]byte{c}))
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
