// Package order is a part of the sample that is a package of its own.
package order

// Before tells whether a is smaller than b.
func Before(a, b int) bool {
	return a < b
}
