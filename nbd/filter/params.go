package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-storage/sluice/internal/size"
)

// params are the parameters of a filter. Each is taken by its kind; the first that is wrong is the
// error of finish, as is one that nobody has taken.
type params struct {
	given map[string]string
	known []string
	err   error
}

func parseParams(text string) (*params, error) {
	p := &params{given: map[string]string{}}
	if text == "" {
		return p, nil
	}
	const mark = "\x00"
	for _, part := range strings.Split(strings.ReplaceAll(text, "::", mark), ":") {
		key, value, ok := strings.Cut(strings.ReplaceAll(part, mark, ":"), "=")
		if _, twice := p.given[key]; !ok || key == "" || value == "" || twice {
			return nil, fmt.Errorf("%q is not key=value, or there twice", part)
		}
		p.given[key] = value
	}
	return p, nil
}

// take hands a parameter to parse, if it is given.
func (p *params) take(key string, parse func(value string) error) {
	p.known = append(p.known, key)
	value, ok := p.given[key]
	if !ok {
		return
	}
	delete(p.given, key)
	if err := parse(value); err != nil && p.err == nil {
		p.err = fmt.Errorf("%s=%s: %w", key, value, err)
	}
}

func (p *params) finish() error {
	if p.err != nil {
		return p.err
	}
	for key := range p.given {
		if len(p.known) == 0 {
			return fmt.Errorf("it takes no %s, or anything else", key)
		}
		return fmt.Errorf("it takes no %s: choose of %s", key, strings.Join(p.known, ", "))
	}
	return nil
}

func (p *params) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// bytes is a number of bytes, like 64K.
func (p *params) bytes(key string, otherwise int64) (n int64) {
	n = otherwise
	p.take(key, func(v string) error {
		var ok bool
		if n, ok = size.Parse(v); !ok {
			return fmt.Errorf("write a number of bytes like 64K")
		}
		return nil
	})
	return n
}

// count is a whole number that is not negative.
func (p *params) count(key string, otherwise uint64) (n uint64) {
	n = otherwise
	p.take(key, func(v string) (err error) {
		n, err = strconv.ParseUint(v, 10, 64)
		return err
	})
	return n
}

// chance is a probability.
func (p *params) chance(key string, otherwise float64) (x float64) {
	x = otherwise
	p.take(key, func(v string) (err error) {
		x, err = strconv.ParseFloat(v, 64)
		if err == nil && (x < 0 || x > 1 || x != x) {
			err = fmt.Errorf("choose from 0 to 1")
		}
		return err
	})
	return x
}

// duration is a time like 10ms.
func (p *params) duration(key string, otherwise time.Duration) (d time.Duration) {
	d = otherwise
	p.take(key, func(v string) (err error) {
		d, err = time.ParseDuration(v)
		if err == nil && d < 0 {
			err = fmt.Errorf("it is negative")
		}
		return err
	})
	return d
}

func (p *params) text(key string) (s string) {
	p.take(key, func(v string) error {
		s = v
		return nil
	})
	return s
}

// calls are kinds of calls with + between them; without the parameter all of them.
func (p *params) calls(key string) map[call]bool {
	chosen := map[call]bool{}
	p.take(key, func(v string) error {
		for _, word := range strings.Split(v, "+") {
			i := slices.Index(callNames(), word)
			if i < 0 {
				return fmt.Errorf("choose of %s, with + between them", strings.Join(callNames(), ", "))
			}
			chosen[call(i)] = true
		}
		return nil
	})
	if len(chosen) == 0 {
		for i := range callNames() {
			chosen[call(i)] = true
		}
	}
	return chosen
}
