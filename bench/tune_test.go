package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/errs"
	"github.com/sluice-storage/sluice/msg"
	"github.com/sluice-storage/sluice/msg/tune"
)

func TestTuningRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.Custom(func(t *rapid.T) msg.Limits {
			return msg.Limits{
				InlineMax: rapid.IntRange(0, inlineMost).Draw(t, "inline"),
				EagerMax:  rapid.IntRange(-1, eagerMost).Draw(t, "eager"),
				Unit:      rapid.OneOf(rapid.Just(0), rapid.IntRange(unitLeast, unitMost)).Draw(t, "unit"),
			}
		})
		want := Tuning{
			Format: tuningFormat, Machine: rapid.String().Draw(t, "machine"),
			Made: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "made"), 0).UTC(),
			Limits: rapid.MapOfN(rapid.StringMatching(`[a-z]{1,8}`), limits, 1, tuningMany).
				Draw(t, "limits"),
		}
		want.Machine = strings.ToValidUTF8(want.Machine, "?")
		text, err := want.Text()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadTuning(text)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Fatalf("%+v became %+v, %v", want, got, err)
		}
	})
}

func TestReadTuningRefuses(t *testing.T) {
	for _, c := range []struct {
		text string
		kind errs.Kind
	}{
		{``, errs.Corrupt},
		{`{"format":1}`, errs.Corrupt},
		{`{"format":1,"limits":{}}`, errs.Corrupt},
		{`{"format":2,"limits":{"tcp":{}}}`, errs.Version},
		{`{"format":1,"limits":{"tcp":{"inline":1}}}`, errs.Corrupt},
		{`{"format":1,"limits":{"tcp":{}}} {}`, errs.Corrupt},
		{`{"format":1,"limits":{"":{}}}`, errs.OutOfRange},
		{`{"format":1,"limits":{"tcp":{"inline_max":-1}}}`, errs.OutOfRange},
		{`{"format":1,"limits":{"tcp":{"inline_max":2000000}}}`, errs.OutOfRange},
		{`{"format":1,"limits":{"tcp":{"eager_max":-2}}}`, errs.OutOfRange},
		{`{"format":1,"limits":{"tcp":{"unit":100}}}`, errs.OutOfRange},
		{strings.Repeat(" ", tuningBytes+1), errs.TooBig},
	} {
		if got, err := ReadTuning([]byte(c.text)); errs.KindOf(err) != c.kind {
			t.Errorf("%.60q: %+v, %v", c.text, got, err)
		}
	}
	got, err := ReadTuning([]byte(`{"format":1,"limits":{"tcp":{"eager_max":-1}}}`))
	if err != nil || got.Limits["tcp"].EagerMax != -1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzReadTuning(f *testing.F) {
	f.Add([]byte(`{"format":1,"limits":{"tcp":{"inline_max":4096,"eager_max":65536,"unit":65536}}}`))
	f.Add([]byte(`{"format":1,"made":"2026-11-15T10:00:00Z","machine":"m","limits":{"shm":{}}}`))
	f.Add([]byte(`{"format":1,"limits":{"tcp":{"eager_max":-1}}}`))
	f.Add([]byte(`{"format":1,"limits":{"tcp":null}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ReadTuning(text)
		if err != nil {
			return
		}
		again, err := got.Text()
		if err != nil {
			return // a time that JSON cannot write
		}
		back, err := ReadTuning(again)
		if err != nil || !reflect.DeepEqual(back.Limits, got.Limits) {
			t.Fatalf("%+v became %+v, %v", got, back, err)
		}
	})
}

func TestTuningFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, TuningFile)
	if limits, err := LoadTuning(name); limits != nil || err != nil {
		t.Errorf("without a file: %v, %v", limits, err)
	}
	want := Tuning{Format: 1, Limits: map[string]msg.Limits{"tcp": {InlineMax: 100, Unit: 4096}}}
	if err := want.Save(name); err != nil {
		t.Fatal(err)
	}
	limits, err := LoadTuning(name)
	if err != nil || !reflect.DeepEqual(limits, want.Limits) {
		t.Errorf("%v, %v", limits, err)
	}
	if err := os.WriteFile(name, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadTuning(name); errs.KindOf(err) != errs.Corrupt ||
		!strings.Contains(err.Error(), name) {
		t.Error(err)
	}
}

// TestTune measures for real: what comes out must be good for a node.
func TestTune(t *testing.T) {
	n := netHere(t)
	all, err := n.Tune(t.Context(), tune.Options{Calls: 5, Large: mib})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteTuning(&out, all); err != nil {
		t.Fatal(err)
	}
	for i, r := range all {
		if r.Provider != n.Providers[i] || len(r.Samples) < 20 ||
			!strings.Contains(out.String(), r.Provider+": inline up to ") {
			t.Errorf("%+v\n%s", r, out.String())
		}
		d, err := n.Open(r.Provider)
		if err != nil {
			t.Fatal(err)
		}
		node, err := msg.NewNode(msg.Options{
			Domain: d.Domain, Limits: map[string]msg.Limits{r.Provider: r.Limits},
		})
		if err != nil {
			t.Errorf("%+v: %v", r.Limits, err)
		} else if err := node.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Domain.Close(); err != nil {
			t.Error(err)
		}
	}
}
