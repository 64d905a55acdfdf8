package ring

import (
	"testing"

	"pgregory.net/rapid"
)

// TestAgainstSlice holds a ring against a slice, over many turns around its end.
func TestAgainstSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := New[int](rapid.IntRange(1, 5).Draw(t, "room"))
		var model []int
		next := 0
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if push := rapid.Bool().Draw(t, "push"); push && !r.Full() {
				r.Push(next)
				model = append(model, next)
				next++
			} else if r.Len() > 0 {
				if got := r.Pop(); got != model[0] {
					t.Fatalf("popped %d, want %d", got, model[0])
				}
				model = model[1:]
			}
			if r.Len() != len(model) || r.Full() != (len(model) == r.Cap()) {
				t.Fatalf("length %d, want %d", r.Len(), len(model))
			}
			for i := range model {
				if *r.At(i) != model[i] {
					t.Fatalf("element %d is %d, want %d", i, *r.At(i), model[i])
				}
			}
		}
	})
}

func TestMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(r *Ring[int]){
		"push into a full ring": func(r *Ring[int]) { r.Push(1); r.Push(2) },
		"pop from an empty one": func(r *Ring[int]) { r.Pop() },
		"element out of range":  func(r *Ring[int]) { r.At(0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("it did not panic")
				}
			}()
			r := New[int](1)
			misuse(&r)
		})
	}
}
