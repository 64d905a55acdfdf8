// Package early lets `sluice attach` become the process that serves the device without being
// started a second time. A shell waits for the process that it has started, so that one has to end
// while another one goes on; a program in Go cannot fork any more when its first line runs, because
// its runtime has threads by then. So C code forks before the runtime begins: the parent does
// nothing but wait, and ends when its child says that it is ready (Release) or when it has ended.
//
// The same code marks the process as one that writes out memory (PR_SET_IO_FLUSHER) while it has
// one thread, so that all later ones inherit the mark.
//
// It does nothing for other commands, and nothing where it cannot work: without cgo, or when fork
// fails. Then Waits is false, and the command starts the program again, as others do that leave
// something in the background. Read early.c first.
package early
