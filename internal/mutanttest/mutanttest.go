// Package mutanttest shows, for tests, that other tests find what they are there to find. It plants
// defects (mutants) into a package from outside, so that no production file carries a line for
// them: the Go tool builds the package's tests from changed copies of its files (-overlay), and a
// test that is run against a mutant has to fail.
//
// A package lists its mutants in testdata/mutants.txt as edits of its files:
//
//	# noFence: reads do not ask whether their generation is fenced.
//	fence.go
//	-	if gen < f.min {
//	+	if gen < f.min && !planted("noFence") {
//
// A line that begins with neither '#', '-' nor '+' names the file of the edits below it, by its
// path from the package's folder. The file may be in a package further down, as
// internal/index/loan.go, whose mutants the tests of the package above find. The lines with '-' are
// whole lines of that file, but for their indentation, and must occur in it exactly once; the lines
// with '+' take their place. There, planted("noFence") is true while that mutant is looked for.
// Code that only mutants need is in testdata/mutants.go, a file of the package that has the table.
//
// All mutants are in one binary, so that each costs one run and no build. Without a mutant the
// binary must pass. Read hunt.go first, then edits.go and build.go. The package changes no file and
// invents no mutants: each one is a mistake that somebody could make.
package mutanttest

// environ is the variable that tells a test binary which mutant is planted.
const environ = "SLUICE_MUTANT"

// none is the name for no mutant at all.
const none = "none"
