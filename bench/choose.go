package bench

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sluice-storage/sluice/errs"
)

// names are those of a case's rows.
func (c *Case) names() []string {
	names := []string{c.Name}
	for _, other := range c.Contenders {
		if other.Case != "" && !slices.Contains(names, other.Case) {
			names = append(names, other.Case)
		}
	}
	return names
}

// Possible keeps the cases that have a contender.
func Possible(cases []Case) []Case {
	return slices.DeleteFunc(cases, func(c Case) bool { return len(c.Contenders) == 0 })
}

// Choose keeps the cases one of whose names matches one of the patterns: regular expressions for
// the whole name. Without patterns it keeps all. A pattern that nothing matches is errs.NotFound.
func Choose(cases []Case, patterns []string) ([]Case, error) {
	if len(patterns) == 0 {
		return cases, nil
	}
	keep := make([]bool, len(cases))
	for _, p := range patterns {
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			return nil, errs.New(errs.Invalid, "bench", p, err)
		}
		found := false
		for i := range cases {
			if slices.ContainsFunc(cases[i].names(), re.MatchString) {
				keep[i], found = true, true
			}
		}
		if !found {
			return nil, errs.Newf(errs.NotFound, "bench", p, "no case has such a name")
		}
	}
	var kept []Case
	for i := range cases {
		if keep[i] {
			kept = append(kept, cases[i])
		}
	}
	return kept, nil
}

// ChooseWays keeps the contenders whose names match one of the patterns, and the cases that have
// some. Without patterns it keeps all.
func ChooseWays(cases []Case, patterns []string) ([]Case, error) {
	if len(patterns) == 0 {
		return cases, nil
	}
	re, err := regexp.Compile("^(?:" + strings.Join(patterns, "|") + ")$")
	if err != nil {
		return nil, errs.New(errs.Invalid, "bench", strings.Join(patterns, ","), err)
	}
	kept := slices.Clone(cases)
	for i := range kept {
		kept[i].Contenders = slices.DeleteFunc(slices.Clone(kept[i].Contenders),
			func(by Contender) bool { return !re.MatchString(by.Provider) })
	}
	return Possible(kept), nil
}

// WriteCases lists cases, a line each.
func WriteCases(w io.Writer, cases []Case) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range cases {
		c := &cases[i]
		fmt.Fprintf(t, "%s\t%s\t%s\n", strings.Join(c.names(), ", "), c.Metric, c.About)
	}
	return t.Flush()
}
