// Package tune is the file in which a cluster keeps what bench tune has found: where one protocol
// of package msg gives way to the next. Servers and clients read it. Package bench/net measures it.
package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/sluice-storage/sluice/bench"
	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
)

// Tuning is what is found and nodes are given: the limits of package msg, by provider. It
// is kept as JSON, and may be written by hand:
//
//	{
//	  "format": 1,
//	  "made": "2026-11-15T10:00:00Z",
//	  "machine": "2 cores, ...",
//	  "limits": {
//	    "tcp": {"inline_max": 4096, "eager_max": 65536, "unit": 1048576},
//	    "shm": {"inline_max": 2048, "eager_max": -1, "unit": 262144}
//	  }
//	}
//
// format and limits are required. All limits are bytes, see msg.Limits: a field that is 0 or
// missing is as the node's options say, an eager_max of -1 means no eager slots.
type Tuning struct {
	Format  int                   `json:"format"`
	Made    time.Time             `json:"made,omitzero"`
	Machine string                `json:"machine,omitempty"`
	Limits  map[string]msg.Limits `json:"limits"`
}

// File is its name in a cluster's folder.
const File = "tuning.json"

// Limits of a Tuning, which may be written by hand: values beyond them are mistakes.
const (
	format       = 1
	bytesMax     = 64 << 10 // of the file
	providersMax = 16       // providers
	inlineMost   = 1 << 20
	eagerMost    = 2 << 20
	unitLeast    = 4 << 10
	unitMost     = 64 << 20
)

// Read reads a Tuning. What it does not understand it refuses: a limit that is misspelt would
// be believed to hold.
func Read(text []byte) (*Tuning, error) {
	bad := func(kind errs.Kind, format string, args ...any) (*Tuning, error) {
		return nil, errs.Newf(kind, "tuning", "", format, args...)
	}
	if len(text) > bytesMax {
		return bad(errs.TooBig, "%d bytes", len(text))
	}
	var t Tuning
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return bad(errs.Corrupt, "%w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bad(errs.Corrupt, "there is more behind its end")
	}
	switch {
	case t.Format != format:
		return bad(errs.Version, "format %d, known is %d", t.Format, format)
	case len(t.Limits) == 0 || len(t.Limits) > providersMax:
		return bad(errs.Corrupt, "limits of %d providers", len(t.Limits))
	}
	for name, l := range t.Limits {
		if name == "" || l.InlineMax < 0 || l.InlineMax > inlineMost ||
			l.EagerMax < -1 || l.EagerMax > eagerMost ||
			l.Unit != 0 && (l.Unit < unitLeast || l.Unit > unitMost) {
			return bad(errs.OutOfRange, "%q: %+v", name, l)
		}
	}
	return &t, nil
}

// Load reads the limits for msg.Options from a file; none, and no error, if it does not
// exist.
func Load(name string) (map[string]msg.Limits, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := Read(text)
	if err != nil {
		return nil, errs.Wrap("tuning", name, err)
	}
	return t.Limits, nil
}

// Text is what Read reads.
func (t *Tuning) Text() ([]byte, error) {
	text, err := json.MarshalIndent(t, "", "  ")
	return append(text, '\n'), err
}

// Save writes the file whole or not at all.
func (t *Tuning) Save(name string) error {
	text, err := t.Text()
	if err != nil {
		return err
	}
	part := name + ".part"
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, name)
}

// Result is what was measured on one provider.
type Result struct {
	Provider string     `json:"provider"`
	Limits   msg.Limits `json:"limits"`
	Samples  []Sample   `json:"samples"`
}

// Sample is one measurement behind the limits.
type Sample struct {
	Bytes    int     `json:"bytes"`
	Protocol string  `json:"protocol"`
	Unit     int     `json:"unit,omitempty"` // bytes; 0: does not matter
	Micros   float64 `json:"us"`             // median
}

// Write prints results for people: what was chosen, and the measurements behind it, with a
// star at the fastest of a size.
func Write(w io.Writer, all []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range all {
		eager := "none"
		if r.Limits.EagerMax > 0 {
			eager = bench.SizeText(int64(r.Limits.EagerMax))
		}
		fmt.Fprintf(t, "%s: inline up to %s, eager up to %s, unit %s\n", r.Provider,
			bench.SizeText(int64(r.Limits.InlineMax)), eager, bench.SizeText(int64(r.Limits.Unit)))
		fmt.Fprintln(t, "  SIZE\tINLINE us\tEAGER us\tRENDEZVOUS us")
		writeSizes(t, r.Samples)
		fmt.Fprintln(t, "  SIZE\tUNIT\tRENDEZVOUS us\t")
		for _, s := range r.Samples {
			if s.Unit > 0 {
				fmt.Fprintf(t, "  %s\t%s\t%s\t\n", bench.SizeText(int64(s.Bytes)),
					bench.SizeText(int64(s.Unit)), bench.ValueText(s.Micros))
			}
		}
	}
	return t.Flush()
}

// writeSizes prints a line a size.
func writeSizes(t io.Writer, samples []Sample) {
	var sizes []int
	for _, s := range samples {
		if s.Unit == 0 && !slices.Contains(sizes, s.Bytes) {
			sizes = append(sizes, s.Bytes)
		}
	}
	for _, size := range sizes {
		best := 0.0
		took := map[string]float64{}
		for _, s := range samples {
			if s.Bytes != size || s.Unit != 0 {
				continue
			}
			took[s.Protocol] = s.Micros
			if best == 0 || s.Micros < best {
				best = s.Micros
			}
		}
		fmt.Fprintf(t, "  %s", bench.SizeText(int64(size)))
		for _, p := range []string{"inline", "eager", "rendezvous"} {
			text := ""
			if v, ok := took[p]; ok {
				text = bench.ValueText(v)
				if v == best {
					text += " *"
				}
			}
			fmt.Fprintf(t, "\t%s", text)
		}
		fmt.Fprintln(t)
	}
}
