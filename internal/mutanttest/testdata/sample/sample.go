// Package sample is what the tests of package mutanttest plant defects into.
package sample

import "example.org/sample/internal/order"

// Larger returns the larger one.
func Larger(a, b int) int {
	if order.Before(b, a) {
		return a
	}
	return b
}
