#include "batch.h"

#include <stdlib.h>

static bool backwards(const struct run *r) {
    for (int i = 0; i < r->dims; i++)
        if (r->stride[i] < 0)
            return true;
    return false;
}

/* Adds a piece, joined to the last one where they are adjacent. */
static bool put(struct batch *b, int64_t off, int64_t len) {
    struct sluice_piece *last = b->n ? &b->piece[b->n - 1] : NULL;
    if (last && last->off + last->len == off) {
        last->len += len;
        return true;
    }
    if (b->n == LIST_MAX)
        return false;
    b->piece[b->n++] = (struct sluice_piece){off, len};
    return true;
}

/* Adds a run piece by piece as far as there is room, and returns the bytes of what was added. */
static int64_t put_run(struct batch *b, const struct run *r, int64_t room) {
    int64_t index[RUN_DIMS] = {0}, off = r->off, done = 0;
    while (done < room) {
        int64_t len = r->block < room - done ? r->block : room - done;
        if (!put(b, off, len))
            break;
        done += len;
        int d = r->dims - 1;
        for (; d >= 0; d--) { /* count up, the innermost first */
            off += r->stride[d];
            if (++index[d] < r->count[d])
                break;
            off -= r->count[d] * r->stride[d];
            index[d] = 0;
        }
        if (d < 0)
            break;
    }
    return done;
}

static bool become_list(struct batch *b) {
    if (!b->piece)
        b->piece = malloc(LIST_MAX * sizeof *b->piece);
    if (!b->piece)
        return false;
    b->list = true;
    b->n = 0;
    return true;
}

/* A single run stays one as long as nothing follows. What follows a small one makes a list of both;
 * behind a large one the batch ends. */
static int64_t take(void *ctx, const struct run *r) {
    struct batch *b = ctx;
    int64_t room = b->max - b->bytes, n;
    if (b->full || room <= 0)
        return 0;
    if (b->bytes == 0 && !backwards(r)) {
        b->run = *r;
        run_trim(&b->run, room, VECTOR_MAX);
        n = run_bytes(&b->run);
        b->bytes = n;
        return n;
    }
    bool large = !b->list && b->bytes > 0 && run_pieces(&b->run) > LIST_MAX / 4;
    bool next = b->bytes > 0 && run_pieces(r) > LIST_MAX / 4 && !backwards(r);
    if (large || next) { /* a vector of its own, the one that is here or the one that comes */
        b->full = true;
        return 0;
    }
    if (!b->list) {
        if (!become_list(b)) {
            b->bytes = -1;
            b->full = true;
            return 0;
        }
        if (b->bytes > 0)
            put_run(b, &b->run, b->bytes);
    }
    n = put_run(b, r, room);
    b->bytes += n;
    return n;
}

int64_t batch_fill(struct batch *b, struct placed p, int64_t pos, int64_t max) {
    b->list = b->full = false;
    b->n = b->bytes = 0;
    b->max = max < REQUEST_MAX ? max : REQUEST_MAX;
    shape_walk(p, pos, b->max, take, b);
    return b->bytes;
}

void batch_free(struct batch *b) {
    free(b->piece);
    b->piece = NULL;
}

int64_t batch_lowest(const struct batch *b) {
    if (!b->list)
        return b->run.off;
    int64_t lo = b->piece[0].off;
    for (int64_t i = 1; i < b->n; i++)
        lo = b->piece[i].off < lo ? b->piece[i].off : lo;
    return lo;
}

int64_t batch_pieces(const struct batch *b) {
    return b->list ? b->n : run_pieces(&b->run);
}

struct sluice_access batch_access(struct batch *b, int64_t shift) {
    struct sluice_access a = {.kind = SLUICE_VECTOR};
    if (b->list) {
        a.kind = SLUICE_LIST;
        a.count = (uint32_t)b->n;
        a.u.pieces = b->piece;
        for (int64_t i = 0; shift && i < b->n; i++)
            b->piece[i].off -= shift;
        return a;
    }
    for (int i = 0; i < b->run.dims; i++)
        b->dim[i] = (struct sluice_dim){b->run.count[i], b->run.stride[i]};
    a.count = (uint32_t)b->run.dims;
    a.u.dims = b->dim;
    a.off = b->run.off - shift;
    a.block = b->run.block;
    return a;
}
