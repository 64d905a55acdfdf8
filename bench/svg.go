package bench

import (
	"encoding/xml"
	"fmt"
	"strconv"
	"strings"
)

// svg is a drawing being made. It knows shapes and text; what they mean is plot.go's.
type svg struct{ b strings.Builder }

// num writes a coordinate with as many digits as can be seen.
func num(v float64) string { return strconv.FormatFloat(float64(int(v*10+0.5))/10, 'f', -1, 64) }

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder does not fail
	return b.String()
}

func (s *svg) begin(width, height float64) {
	fmt.Fprintf(&s.b, `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%[1]s" height="%[2]s" viewBox="0 0 %[1]s %[2]s"`+
		` font-family="sans-serif" font-size="12" fill="#222">
<rect width="%[1]s" height="%[2]s" fill="#fff"/>
`, num(width), num(height))
}

func (s *svg) end() []byte {
	s.b.WriteString("</svg>\n")
	return []byte(s.b.String())
}

// attr is more about a shape, such as `stroke-dasharray="6 3"`: written as it is.
type attr string

const dashed attr = `stroke-dasharray="6 4"`

func (s *svg) line(x1, y1, x2, y2 float64, color string, more ...attr) {
	fmt.Fprintf(&s.b, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s"%s/>`+"\n",
		num(x1), num(y1), num(x2), num(y2), color, join(more))
}

func (s *svg) rect(x, y, w, h float64, fill string, more ...attr) {
	fmt.Fprintf(&s.b, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"%s/>`+"\n",
		num(x), num(y), num(w), num(max(h, 0)), fill, join(more))
}

func (s *svg) dot(x, y float64, color string) {
	fmt.Fprintf(&s.b, `<circle cx="%s" cy="%s" r="3" fill="%s"/>`+"\n", num(x), num(y), color)
}

// path joins points by straight lines.
func (s *svg) path(points [][2]float64, color string, more ...attr) {
	texts := make([]string, len(points))
	for i, p := range points {
		texts[i] = num(p[0]) + "," + num(p[1])
	}
	fmt.Fprintf(&s.b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n",
		strings.Join(texts, " "), color, join(more))
}

// The sides at which a text stands to its point.
const (
	atStart  attr = `text-anchor="start"`
	atMiddle attr = `text-anchor="middle"`
	atEnd    attr = `text-anchor="end"`
)

func (s *svg) text(x, y float64, text string, more ...attr) {
	fmt.Fprintf(&s.b, `<text x="%s" y="%s"%s>%s</text>`+"\n", num(x), num(y), join(more),
		escape(text))
}

func join(more []attr) string {
	var b strings.Builder
	for _, a := range more {
		b.WriteString(" " + string(a))
	}
	return b.String()
}

// textWidth is about how wide a text is at the usual size.
func textWidth(text string) float64 { return 6.6 * float64(len([]rune(text))) }
