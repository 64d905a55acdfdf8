package main

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/client"
	"github.com/sluice-storage/sluice/meta"
)

// findFlags are the tests of find as the user wrote them.
type findFlags struct {
	names, inames, paths, notNames, notPaths []string
	types, size, mtime, mmin, perm           string
	newer, newermt, user, group              string
	empty                                    bool
}

// findTest tells whether something is meant.
type findTest func(ctx context.Context, fs *client.FS, v *visit) (bool, error)

// simple is a test that looks at attributes only.
func simple(fn func(v *visit) bool) findTest {
	return func(_ context.Context, _ *client.FS, v *visit) (bool, error) { return fn(v), nil }
}

// tests are all that must be met. look finds the time of change of another path.
func (f *findFlags) tests(now time.Time, look func(path string) (time.Time, error)) (
	[]findTest, error) {
	b := testBuilder{now: now}
	b.globs(f)
	b.add(f.types, parseTypes)
	b.add(f.size, parseSizeTest)
	b.add(f.mtime, func(text string) (findTest, error) { return b.age(text, 24*time.Hour) })
	b.add(f.mmin, func(text string) (findTest, error) { return b.age(text, time.Minute) })
	b.add(f.perm, parsePermTest)
	b.add(f.newer, func(text string) (findTest, error) { return newerThan(look(text)) })
	b.add(f.newermt, func(text string) (findTest, error) { return newerThan(parseDate(text, now)) })
	b.add(f.user, func(text string) (findTest, error) {
		id, err := parseUser(text)
		return simple(func(v *visit) bool { return v.attr.UID == uint32(id) }), err
	})
	b.add(f.group, func(text string) (findTest, error) {
		id, err := parseGroup(text)
		return simple(func(v *visit) bool { return v.attr.GID == uint32(id) }), err
	})
	if f.empty { // the last one, because it may have to ask
		b.tests = append(b.tests, isEmpty)
	}
	return b.tests, b.err
}

// testBuilder collects tests up to the first error.
type testBuilder struct {
	now   time.Time
	tests []findTest
	err   error
}

func (b *testBuilder) add(text string, parse func(string) (findTest, error)) {
	if text == "" || b.err != nil {
		return
	}
	t, err := parse(text)
	b.tests, b.err = append(b.tests, t), err
}

// globs adds the tests of names: one of several names must fit, and none of those that must not.
func (b *testBuilder) globs(f *findFlags) {
	name := func(v *visit) string { return v.name }
	whole := func(v *visit) string { return v.path }
	b.globList(f.names, false, true, name)
	b.globList(f.inames, true, true, name)
	b.globList(f.paths, false, true, whole)
	b.globList(f.notNames, false, false, name)
	b.globList(f.notPaths, false, false, whole)
}

func (b *testBuilder) globList(texts []string, fold, want bool, of func(v *visit) string) {
	if len(texts) == 0 || b.err != nil {
		return
	}
	var globs []*glob
	for _, text := range texts {
		g, err := parseGlob(text, fold)
		if err == nil && g == nil {
			err = refuse("an empty pattern", "Write one like '*.log'")
		}
		if err != nil {
			b.err = err
			return
		}
		globs = append(globs, g)
	}
	b.tests = append(b.tests, simple(func(v *visit) bool {
		for _, g := range globs {
			if g.fits(of(v)) {
				return want
			}
		}
		return !want
	}))
}

// parseTypes reads f,d,l,...
func parseTypes(text string) (findTest, error) {
	var want []meta.Type
	for _, word := range strings.Split(text, ",") {
		t, ok := map[string]meta.Type{"f": meta.Regular, "d": meta.Directory, "l": meta.Symlink,
			"p": meta.Fifo, "s": meta.Socket, "c": meta.CharDevice, "b": meta.BlockDevice}[word]
		if !ok {
			return nil, refuse(strconv.Quote(word)+" is no type",
				"Choose of f (file), d (directory), l (link), p (fifo), s (socket), c, b (devices)")
		}
		want = append(want, t)
	}
	return simple(func(v *visit) bool {
		for _, t := range want {
			if v.attr.Type == t {
				return true
			}
		}
		return false
	}), nil
}

// compared reads +N (more), -N (less) or N (as much).
func compared(text string) (op byte, rest string) {
	if text[0] == '+' || text[0] == '-' {
		return text[0], text[1:]
	}
	return '=', text
}

func holds(op byte, have, want int64) bool {
	switch op {
	case '+':
		return have > want
	case '-':
		return have < want
	}
	return have == want
}

// parseSizeTest reads [+-]N[cwbkMGTP]. As with find(1) a size is rounded up to whole units, 512
// bytes where none is named, before it is compared.
func parseSizeTest(text string) (findTest, error) {
	op, rest := compared(text)
	unit := int64(512)
	if i := strings.IndexAny(rest, "cwbkKMGTP"); i >= 0 && i == len(rest)-1 {
		unit = map[byte]int64{'c': 1, 'w': 2, 'b': 512, 'k': 1 << 10, 'K': 1 << 10, 'M': 1 << 20,
			'G': 1 << 30, 'T': 1 << 40, 'P': 1 << 50}[rest[i]]
		rest = rest[:i]
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || n < 0 {
		return nil, refuse(strconv.Quote(text)+" is no size to look for",
			"Write +1G (more than), -64k (less than), 0 or 4096c (bytes); units are c, k, M, G, T")
	}
	return simple(func(v *visit) bool {
		units := v.attr.Size / unit
		if v.attr.Size%unit != 0 {
			units++
		}
		return holds(op, units, n)
	}), nil
}

// age reads [+-]N: how many whole units ago something was changed.
func (b *testBuilder) age(text string, unit time.Duration) (findTest, error) {
	op, rest := compared(text)
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return nil, refuse(strconv.Quote(text)+" is no age",
			"Write +7 (more than), -7 (less than) or 7 whole days, or minutes with --mmin")
	}
	return simple(func(v *visit) bool {
		return holds(op, int64(math.Floor(float64(b.now.Sub(v.attr.Mtime.Time()))/float64(unit))), n)
	}), nil
}

func newerThan(t time.Time, err error) (findTest, error) {
	return simple(func(v *visit) bool { return v.attr.Mtime.Time().After(t) }), err
}

// parsePermTest reads MODE (exactly), -MODE (all of these bits) or /MODE (any of them).
func parsePermTest(text string) (findTest, error) {
	op, rest := byte('='), text
	if text[0] == '-' || text[0] == '/' {
		op, rest = text[0], text[1:]
	}
	m, err := parseModeChange(rest)
	if err != nil {
		return nil, err
	}
	want := client.ModeBits(m.apply(0, false))
	return simple(func(v *visit) bool {
		have := v.attr.Mode & 0o7777
		switch op {
		case '-':
			return have&want == want
		case '/':
			return want == 0 || have&want != 0
		}
		return have == want
	}), nil
}

// isEmpty is met by files without data and directories without entries.
func isEmpty(ctx context.Context, fs *client.FS, v *visit) (bool, error) {
	switch v.attr.Type {
	case meta.Regular:
		return v.attr.Size == 0, nil
	case meta.Directory:
		empty := true
		err := fs.ReadDir(ctx, v.path, func(meta.Entry) error {
			empty = false
			return errEnough
		})
		if err == errEnough {
			err = nil
		}
		return empty, err
	}
	return false, nil
}
