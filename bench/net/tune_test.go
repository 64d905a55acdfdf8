package net

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/bench/tune"
	"github.com/sluice-storage/sluice/msg"
	measure "github.com/sluice-storage/sluice/msg/tune"
)

// TestTune measures for real: what comes out must be good for a node.
func TestTune(t *testing.T) {
	n := netHere(t)
	all, err := n.Tune(t.Context(), measure.Options{Calls: 5, Large: mib})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tune.Write(&out, all); err != nil {
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
