/* Shapes: which bytes, in which order, as nested repetitions and sequences of runs.
 *
 * A shape is what is left of an MPI datatype when only bytes matter. A vector of a billion blocks
 * is one REP; only what the program has listed itself (an indexed type) is a SEQ with that many
 * items. Nobody expands a shape: walk() finds any position of its stream in a few steps and hands
 * out runs, which are nested vectors, until its consumer has enough.
 *
 * A shape never changes once it is made and lies in the arena of its maker. Nothing in here calls
 * MPI or does I/O.
 */
#ifndef SLUICE_MPIIO_SHAPE_H
#define SLUICE_MPIIO_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

enum { RUN_DIMS = 8 }; /* how deep a vector may be nested in a request */

enum shape_kind { SHAPE_LEAF, SHAPE_REP, SHAPE_SEQ };

struct shape;

/* A shape at an offset. n is NULL where there are no bytes. */
struct placed {
    int64_t off;
    const struct shape *n;
};

struct shape {
    enum shape_kind kind;
    int depth;           /* nested REPs down to a leaf; -1 where a SEQ is among them */
    bool ordered;        /* no piece begins before the one ahead of it in the stream */
    bool overlaps;       /* meaningful where ordered: some byte is in two pieces */
    int64_t size;        /* bytes of the stream */
    int64_t lo, hi;      /* the lowest offset and the end of the highest byte */
    int64_t first, last; /* where the first and the last piece of the stream begin */
    int64_t pieces;      /* runs of bytes, INT64_MAX where there are more */
    int64_t count, stride;
    struct placed child; /* REP */
    int64_t items;
    struct placed *item; /* SEQ */
    int64_t *before;     /* SEQ: bytes of the stream ahead of item i */
};

/* Run: block bytes at off, repeated by the dimensions, the outermost first. */
struct run {
    int64_t off, block;
    int dims;
    int64_t count[RUN_DIMS], stride[RUN_DIMS];
};

/* Memory that is freed at once. */
struct arena {
    struct arena_block *head;
};
void *arena_alloc(struct arena *a, size_t n); /* zeroed; NULL where there is none */
void arena_free(struct arena *a);

/* The makers return false where numbers leave 63 bits or memory is short. They simplify: what is
 * contiguous becomes one leaf, equal steps become a repetition. */
bool shape_leaf(struct arena *a, int64_t len, struct placed *out);
bool shape_rep(struct arena *a, int64_t count, int64_t stride, struct placed child,
               struct placed *out);
/* Takes the array over; it must be of the arena. */
bool shape_seq(struct arena *a, int64_t n, struct placed *item, struct placed *out);

static inline int64_t placed_size(struct placed p) {
    return p.n ? p.n->size : 0;
}
static inline bool placed_contiguous(struct placed p) {
    return !p.n || p.n->kind == SHAPE_LEAF;
}

int64_t run_pieces(const struct run *r);
int64_t run_bytes(const struct run *r);
/* Cuts a run down to a prefix of at most so many bytes and pieces, both at least 1. */
void run_trim(struct run *r, int64_t bytes, int64_t pieces);

/* A sink takes a prefix of a run and says how many bytes of it. If it takes less than all the walk
 * is over. */
typedef int64_t (*run_sink)(void *ctx, const struct run *r);

/* Hands out len bytes of the stream from position skip, and returns how many were taken. */
int64_t shape_walk(struct placed p, int64_t skip, int64_t len, run_sink sink, void *ctx);

/* The position in the stream of the first byte that lies at offset end or behind it, or the size.
 * Only for ordered shapes. */
int64_t shape_position(struct placed p, int64_t end);

#pragma GCC visibility pop
#endif
