// Package systest drives the built binary on this host as users do: a cluster of real processes, a
// real mount, real block clients, and kill -9. It has tests only, and imports nothing of the
// project but what the commands print.
//
// Read harness_test.go first, then programs_test.go, block_test.go and kill_test.go.
package systest
