// Package sample is what the tests of package mutanttest plant defects into.
package sample

// Larger returns the larger one.
func Larger(a, b int) int {
	if a > b {
		return a
	}
	return b
}
