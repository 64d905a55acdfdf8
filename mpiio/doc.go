// Package mpiio is where libsluice-mpiio is tested: the library, in C, is in src, and programs that
// use it are in testdata. They are compiled and run here under each MPI that is installed, against
// a cluster of the built binary. It imports nothing of the project.
//
// The library has the MPI_File functions of both MPIs of Debian. Files whose name begins with
// "sluice:" go to libsluice; all others go on to the MPI. src/shape.h says what becomes of a
// datatype, src/io.c how a request is made of a view, src/collective.c when ranks exchange data.
//
// Read src/internal.h first, then src/file.c and src/rw.c.
package mpiio
