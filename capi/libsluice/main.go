// Command libsluice is the library of that name for programs in C: built with -buildmode=c-shared
// it is libsluice.so, whose contract is sluice.h. It hands its arguments over to package capi.
//
// A call goes this way: a function of sluice.h in shim.c, which looks at the buffer, to the Go
// function of the same name in export.go, to the method of capi.Lib. What comes back is a number:
// negative, it is an errno, which shim.c sets; its text was written into a buffer of the thread.
//
// What makes a Go runtime a good guest in a program of C is in shim.c: signals, fork, and the end
// of the program.
package main

// main is not called: the library has none.
func main() {}
