/* Batches: as much of a shape as one request of the client carries. */
#ifndef SLUICE_MPIIO_BATCH_H
#define SLUICE_MPIIO_BATCH_H

#include "internal.h"

#pragma GCC visibility push(hidden)

enum {
    LIST_MAX = 16384,      /* pieces of one list: 256 KiB of description in memory */
    VECTOR_MAX = 1 << 20,  /* pieces of one vector; the client takes four times as many */
    REQUEST_MAX = 1 << 28, /* bytes of one request */
};

/* A batch is either one run, or a list of pieces. */
struct batch {
    bool list, full;
    struct run run;
    struct sluice_piece *piece; /* room for LIST_MAX, made when it is needed */
    int64_t n, bytes, max;
    struct sluice_dim dim[RUN_DIMS];
};

/* Fills the batch with at most max bytes of the stream from pos on; how many, or -1 where there is
 * no memory. A run with a negative stride becomes a list. */
int64_t batch_fill(struct batch *b, struct placed p, int64_t pos, int64_t max);
void batch_free(struct batch *b);

/* The batch as the client wants it. Offsets are moved by -shift. It lasts as long as the batch. */
struct sluice_access batch_access(struct batch *b, int64_t shift);
int64_t batch_lowest(const struct batch *b);
int64_t batch_pieces(const struct batch *b);

#pragma GCC visibility pop
#endif
