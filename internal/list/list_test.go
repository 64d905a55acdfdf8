package list

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-storage/sluice/internal/alloctest"
)

// item is in up to two lists at the same time.
type item struct {
	number  int
	one     Link[item]
	another Link[item]
}

// numbers are those of the list's elements, found from either end.
func numbers(l *List[item], next func(*item) *item) []int {
	var all []int
	for x := l.First(); x != nil; x = next(x) {
		all = append(all, x.number)
	}
	return all
}

// check compares a list with its model from both ends.
func check(t *rapid.T, l *List[item], link func(*item) *Link[item], want []int) {
	got := numbers(l, func(x *item) *item { return link(x).Next() })
	if !slices.Equal(got, want) {
		t.Fatalf("forwards %v, want %v", got, want)
	}
	var back []int
	for k := l.last; k != nil; k = k.prev {
		back = append(back, k.of.number)
	}
	slices.Reverse(back)
	if !slices.Equal(back, want) {
		t.Fatalf("backwards %v, want %v", back, want)
	}
	if l.Empty() != (len(want) == 0) || l.Empty() != (l.First() == nil) ||
		l.Empty() != (l.Last() == nil) {
		t.Fatalf("empty %v, first %v, last %v, want %v", l.Empty(), l.First(), l.Last(), want)
	}
	if n := len(want); n > 0 && (l.First().number != want[0] || l.Last().number != want[n-1]) {
		t.Fatalf("first %d, last %d, want %v", l.First().number, l.Last().number, want)
	}
}

// TestAgainstSlices moves items within and between three lists: two of them share a link.
func TestAgainstSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var lists [3]List[item]
		var models [3][]int
		items := make([]item, 8)
		links := [3]func(*item) *Link[item]{
			func(x *item) *Link[item] { return &x.one },
			func(x *item) *Link[item] { return &x.one },
			func(x *item) *Link[item] { return &x.another },
		}
		for i := range items {
			items[i].number = i
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			x := &items[rapid.IntRange(0, len(items)-1).Draw(t, "item")]
			n := rapid.IntRange(0, len(lists)-1).Draw(t, "list")
			k := links[n](x)
			if !k.In() {
				if rapid.Bool().Draw(t, "first") {
					lists[n].PushFirst(k, x)
					models[n] = slices.Insert(models[n], 0, x.number)
				} else {
					lists[n].PushLast(k, x)
					models[n] = append(models[n], x.number)
				}
			} else if at := slices.Index(models[n], x.number); at >= 0 {
				if rapid.Bool().Draw(t, "turn") {
					lists[n].EndWith(k)
					models[n] = slices.Concat(models[n][at+1:], models[n][:at+1])
				} else {
					lists[n].Remove(k)
					models[n] = slices.Delete(models[n], at, at+1)
				}
			}
			for i := range lists {
				check(t, &lists[i], links[i], models[i])
			}
		}
	})
}

// TestMisuse panics before anything is damaged.
func TestMisuse(t *testing.T) {
	var l, other List[item]
	var a, b item
	l.PushLast(&a.one, &a)
	for name, do := range map[string]func(){
		"in it already":           func() { l.PushLast(&a.one, &a) },
		"in it already, in front": func() { l.PushFirst(&a.one, &a) },
		"in another one":          func() { other.PushLast(&a.one, &a) },
		"in none":                 func() { l.Remove(&b.one) },
		"out of another one":      func() { other.Remove(&a.one) },
		"turned, and not in it":   func() { other.EndWith(&a.one) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
				if l.First() != &a || l.Last() != &a || !other.Empty() {
					t.Error("the list has changed")
				}
			}()
			do()
		})
	}
}

func TestNothingIsAllocated(t *testing.T) {
	var l List[item]
	items := make([]item, 3)
	if n := alloctest.PerRun(0, 100, func() {
		for i := range items {
			l.PushLast(&items[i].one, &items[i])
		}
		for x := l.First(); x != nil; x = l.First() {
			l.Remove(&x.one)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkMove takes the last one of many and puts it in front.
func BenchmarkMove(b *testing.B) {
	var l List[item]
	items := make([]item, 1000)
	for i := range items {
		l.PushLast(&items[i].one, &items[i])
	}
	b.ReportAllocs()
	for b.Loop() {
		x := l.Last()
		l.Remove(&x.one)
		l.PushFirst(&x.one, x)
	}
}
