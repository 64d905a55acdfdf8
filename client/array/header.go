package array

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/sluice-storage/sluice/errs"
)

// Header is what stands before the data in a .npy file.
//
//	|0x93 N U M P Y | major u8 | minor u8 | length u16 (1.0) or u32 (2.0, 3.0), little endian |
//	|{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), } and spaces and a newline     |
//	|data: elements, the last axis fastest, or the first (fortran_order)                      |
//
// The text is Latin-1, from 3.0 on UTF-8. It is filled up so that the data begins at a multiple of
// 64. A scalar has the shape () and one element.
type Header struct {
	Type    Type
	Fortran bool    // the first axis is the fastest
	Shape   []int64 // one length for each axis
	Version int     // major: 1, 2 or 3; 0 when written: the lowest that can hold it
}

const (
	magic = "\x93NUMPY"

	// headerAlign is what the data's offset is a multiple of when we write.
	headerAlign = 64

	// headerMax bounds what is read of a header that a stranger wrote. NumPy itself refuses more than
	// 10000 characters unless it is told otherwise.
	headerMax = 1 << 20
)

func badHeader(format string, args ...any) error {
	return errs.Newf(errs.Invalid, "array.Header", "", format, args...)
}

// headerLen tells from the first 12 bytes of a file where the text begins and where it ends.
func headerLen(p []byte) (from, end int64, version int, err error) {
	if len(p) < 12 || string(p[:len(magic)]) != magic {
		return 0, 0, 0, badHeader("this is no .npy file: it does not begin with \\x93NUMPY")
	}
	version = int(p[6])
	switch {
	case version < 1 || version > 3 || p[7] != 0:
		return 0, 0, 0, badHeader("version %d.%d of the format is unknown", p[6], p[7])
	case version == 1:
		from, end = 10, 10+int64(binary.LittleEndian.Uint16(p[8:]))
	default:
		from, end = 12, 12+int64(binary.LittleEndian.Uint32(p[8:]))
	}
	if end > headerMax {
		return 0, 0, 0, badHeader("it has %d bytes, at most %d are read", end, headerMax)
	}
	return from, end, version, nil
}

// ParseHeader reads a header from the beginning of a file, all of which must be in p. It returns
// where the data begins.
func ParseHeader(p []byte) (h Header, data int64, err error) {
	from, end, version, err := headerLen(p)
	if err != nil {
		return h, 0, err
	}
	if end > int64(len(p)) {
		return h, 0, badHeader("it has %d bytes, but the file ends after %d", end, len(p))
	}
	text := string(p[from:end])
	if version < 3 {
		text = latin1(p[from:end])
	} else if !utf8.ValidString(text) {
		return h, 0, badHeader("its text is not UTF-8")
	}
	v, err := parseLiteral(text)
	if err != nil {
		return h, 0, errs.Wrap("array.Header", "", err)
	}
	h, err = headerOf(v)
	h.Version = version
	return h, end, err
}

func latin1(p []byte) string {
	var b strings.Builder
	for _, c := range p {
		b.WriteRune(rune(c))
	}
	return b.String()
}

// headerOf reads the dictionary. It must have these three keys, once each, and no others.
func headerOf(v any) (h Header, err error) {
	d, ok := v.(dict)
	if !ok || len(d) != 3 {
		return h, badHeader("it is no dictionary of three keys")
	}
	seen := map[string]bool{}
	for _, e := range d {
		seen[e.key] = true
		switch e.key {
		case "descr":
			h.Type, err = typeOf(e.val)
		case "fortran_order":
			if h.Fortran, ok = e.val.(bool); !ok {
				err = badHeader("fortran_order is neither True nor False")
			}
		case "shape":
			h.Shape, err = shapeOf(e.val)
		default:
			err = badHeader("the key %q is unknown", e.key)
		}
		if err != nil {
			return h, err
		}
	}
	if len(seen) != 3 {
		return h, badHeader("a key is there twice, and one is missing")
	}
	_, err = h.Bytes()
	return h, err
}

// Bytes is how long the data is.
func (h *Header) Bytes() (int64, error) { return arrayBytes(h.Type.Bytes, h.Shape) }

// Append writes the header behind p. Its length is a multiple of 64.
func (h *Header) Append(p []byte) ([]byte, error) {
	if _, err := h.Bytes(); err != nil {
		return p, err
	}
	order := "False"
	if h.Fortran {
		order = "True"
	}
	text := "{'descr': " + h.Type.literal() + ", 'fortran_order': " + order +
		", 'shape': " + shapeText(h.Shape) + ", }"
	body, version, err := encodeHeader(text, h.Version)
	if err != nil {
		return p, err
	}
	from := 12
	if version == 1 {
		from = 10
	}
	n := (from + len(body) + 1 + headerAlign - 1) / headerAlign * headerAlign
	p = append(append(p, magic...), byte(version), 0)
	if version == 1 {
		p = binary.LittleEndian.AppendUint16(p, uint16(n-from))
	} else {
		p = binary.LittleEndian.AppendUint32(p, uint32(n-from))
	}
	p = append(p, body...)
	p = append(p, strings.Repeat(" ", n-from-len(body)-1)...)
	return append(p, '\n'), nil
}

// encodeHeader chooses the version, if none was, and encodes the text for it.
func encodeHeader(text string, version int) ([]byte, int, error) {
	body := make([]byte, 0, len(text))
	wide := false
	for _, r := range text {
		wide = wide || r > 0xff
		body = append(body, byte(r))
	}
	long := 10+len(body)+1+headerAlign > 1<<16
	lowest := 1
	switch {
	case wide:
		lowest = 3
	case long:
		lowest = 2
	}
	if version == 0 {
		version = lowest
	}
	switch {
	case version < 1 || version > 3:
		return nil, 0, badHeader("there is no version %d of the format", version)
	case version < lowest:
		return nil, 0, badHeader("version %d of the format cannot hold this header", version)
	case version == 3:
		body = []byte(text)
	}
	if len(body) > headerMax-2*headerAlign {
		return nil, 0, badHeader("it has %d bytes, at most %d", len(body), headerMax)
	}
	return body, version, nil
}

// strides are the distances, in bytes, between neighbours along each axis of an array that lies
// without gaps.
func strides(shape []int64, element int64, fortran bool) []int64 {
	out := make([]int64, len(shape))
	step := element
	for k := range shape {
		i := k
		if !fortran {
			i = len(shape) - 1 - k
		}
		out[i] = step
		step *= max(shape[i], 1)
	}
	return out
}
