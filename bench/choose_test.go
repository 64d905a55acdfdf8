package bench

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-storage/sluice/errs"
)

func TestChoose(t *testing.T) {
	cases := []Case{{Name: "a-1"}, {Name: "a-2", Contenders: []Contender{{Case: "b-2"}}}, {Name: "c"}}
	for _, c := range []struct {
		patterns []string
		want     string
		kind     errs.Kind
	}{
		{nil, "a-1 a-2 c", errs.OK},
		{[]string{"a-.*"}, "a-1 a-2", errs.OK},
		{[]string{"c", "b-2"}, "a-2 c", errs.OK},
		{[]string{"a"}, "", errs.NotFound},
		{[]string{"a-1", "("}, "", errs.Invalid},
	} {
		got, err := Choose(cases, c.patterns)
		var names []string
		for i := range got {
			names = append(names, got[i].Name)
		}
		if strings.Join(names, " ") != c.want || errs.KindOf(err) != c.kind {
			t.Errorf("%v: %v, %v", c.patterns, names, err)
		}
	}
	var b bytes.Buffer
	if err := WriteCases(&b, cases); err != nil || !strings.Contains(b.String(), "a-2, b-2") {
		t.Errorf("%q, %v", b.String(), err)
	}
}
