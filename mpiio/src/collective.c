/* Collective buffering: some ranks gather what all have for a window of the file, and access the
 * window in few large pieces. Everywhere else a collective call is what an independent one is, one
 * request for each server with the view as a vector, and the ranks need not wait for each other.
 *
 * It pays where views of several ranks are woven into each other in small pieces, of which client
 * and server have to look at each one: elements of 16 bytes were written four times as fast, of 64
 * about as fast; from 256 on reads without exchange were 1.8 times as fast and more (four ranks on
 * one host, docs/figures/parallel.md). CB_PIECE lies between. Whether to exchange is decided with
 * the view, where all ranks meet anyway, so that a collective call without it costs no message.
 *
 * The file is cut into windows of cb_buffer_size, and aggregator a of n has the windows a, n+a, ...
 * In each round every rank sends to each aggregator what it has for its window: first the runs,
 *
 *     | off | block << 4 | dims | count, stride of each dim |   int64 each, block and dims in one
 *
 * then, for a write, their bytes in the order of the view. */
#include "batch.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    CB_PIECE = 128, /* bytes: pieces that are smaller on average are gathered */
    SPARSE = 8,     /* where less than 1/8 of the range is accessed nobody gathers */
    WINDOW_MIN = 64 << 10,
};

/* What ranks agree on, by the largest: hints, too, because all have to cut the same windows. */
enum { WANT_READ, VETO_READ, WANT_WRITE, VETO_WRITE, WORST, BUFFER, NODES, UNIT, VOTES };

/* A view of small pieces: of the filetype, or of its tiles with gaps between them. */
static bool fine(const struct view *v) {
    const struct placed p = v->flat->shape;
    return !placed_contiguous(v->shape) && p.n->size / p.n->pieces < CB_PIECE;
}

static bool wants(enum cb_mode m, const struct view *v) {
    return m == CB_ENABLE || (m == CB_AUTOMATIC && fine(v));
}

int collective_view(struct file *f, int rc) {
    struct hints *h = &f->hints;
    int all[VOTES], votes[VOTES] = {
                        [WANT_READ] = wants(h->cb_read, f->view),
                        [VETO_READ] = h->cb_read == CB_DISABLE,
                        [WANT_WRITE] = wants(h->cb_write, f->view),
                        [VETO_WRITE] = h->cb_write == CB_DISABLE,
                        [WORST] = rc,
                        [BUFFER] = (int)h->cb_buffer_size,
                        [NODES] = (int)h->cb_nodes,
                        [UNIT] = (int)h->striping_unit,
                    };
    if (PMPI_Allreduce(votes, all, VOTES, MPI_INT, MPI_MAX, f->comm) != MPI_SUCCESS)
        return rc != MPI_SUCCESS ? rc : MPI_ERR_OTHER;
    f->gathers[false] = f->ranks > 1 && all[WANT_READ] && !all[VETO_READ];
    f->gathers[true] = f->ranks > 1 && all[WANT_WRITE] && !all[VETO_WRITE];
    h->cb_buffer_size = all[BUFFER];
    h->cb_nodes = all[NODES];
    h->striping_unit = all[UNIT];
    return all[WORST];
}

bool collective_wanted(const struct file *f, bool write) {
    return f->gathers[write] && !f->atomic;
}

/* ---- what all ranks know ---- */

struct facts {
    int64_t lo, hi, len;
};

struct plan {
    struct io *io;
    int ranks, aggregators;
    int64_t base, window, rounds;
};

static int64_t first_offset(void *ctx, const struct run *r) {
    *(int64_t *)ctx = r->off;
    return run_bytes(r);
}

static struct facts facts_of(const struct io *io) {
    struct facts x = {INT64_MAX, 0, io->len};
    if (io->len > 0) {
        shape_walk(io->view->shape, io->pos, 1, first_offset, &x.lo);
        shape_walk(io->view->shape, io->pos + io->len - 1, 1, first_offset, &x.hi);
        x.hi++;
    }
    return x;
}

/* How large windows are: a buffer at most, and not more than a fair part of the range, in whole
 * stripe units. Bytes that several ranks read are sent several times: then windows are smaller, so
 * that an aggregator's memory stays what cb_buffer_size says. Counts of MPI are ints. */
static int64_t window_size(const struct plan *p, int64_t range, double sum) {
    const struct hints *h = &p->io->f->hints;
    int64_t unit = h->striping_unit > 0 ? h->striping_unit : WINDOW_MIN, w = h->cb_buffer_size;
    double times = sum / (double)range;
    int64_t part = (range / p->aggregators / unit + 1) * unit;
    if (times > 1)
        w = (int64_t)((double)w / times);
    w = w < WINDOW_MIN ? WINDOW_MIN : w;
    w = w > INT_MAX / 4 / p->ranks ? INT_MAX / 4 / p->ranks : w;
    w = w > part ? part : w;
    return w > unit ? w - w % unit : w;
}

/* The windows, the same at all ranks; false where gathering makes no sense. */
static bool make_plan(struct plan *p, const struct facts *all) {
    const struct hints *h = &p->io->f->hints;
    int64_t lo = INT64_MAX, hi = 0;
    double sum = 0;
    for (int i = 0; i < p->ranks; i++) {
        if (all[i].len <= 0)
            continue;
        lo = all[i].lo < lo ? all[i].lo : lo;
        hi = all[i].hi > hi ? all[i].hi : hi;
        sum += (double)all[i].len;
    }
    if (lo >= hi || sum * SPARSE < (double)(hi - lo))
        return false;
    bool some = h->cb_nodes > 0 && h->cb_nodes < p->ranks;
    p->aggregators = some ? (int)h->cb_nodes : p->ranks;
    p->window = window_size(p, hi - lo, sum);
    p->base = lo - lo % p->window;
    int64_t windows = (hi - p->base - 1) / p->window + 1;
    p->rounds = (windows - 1) / p->aggregators + 1;
    return true;
}

static int rank_of(const struct plan *p, int aggregator) {
    return (int)((int64_t)aggregator * p->ranks / p->aggregators);
}

/* ---- one round ---- */

/* Everything of a round. The arrays of counts are what MPI wants them to be. */
struct round {
    int *counts; /* [8][ranks]: see COUNTS */
    int64_t *out, *in;
    int64_t out_words, out_room, in_words, out_bytes, in_bytes;
    char *packed, *arrived; /* bytes of this rank; bytes of this aggregator's window */
    char *buffer;           /* the window */
    uint64_t *covered;      /* a bit for each byte of it */
    int64_t window;         /* where it begins */
    bool failed;            /* no memory */
    bool eof;
    int err;
};

/* The rows of counts: what goes out and what comes in, words and bytes, lengths and beginnings. */
enum { OUT_WORDS, OUT_BYTES, IN_WORDS, IN_BYTES, COUNT_ROWS, COUNTS = 2 * COUNT_ROWS };

static int *row(const struct plan *p, const struct round *r, int which) {
    return r->counts + (size_t)which * (size_t)p->ranks;
}
static int *row_at(const struct plan *p, const struct round *r, int which) {
    return row(p, r, COUNT_ROWS + which);
}

static int64_t describe(void *ctx, const struct run *run) {
    struct round *r = ctx;
    if (r->out_words + 2 + 2 * RUN_DIMS > r->out_room) {
        int64_t room = r->out_room ? 2 * r->out_room : 1024;
        int64_t *v = realloc(r->out, (size_t)room * sizeof *v);
        if (!v) {
            r->failed = true;
            return 0;
        }
        r->out = v;
        r->out_room = room;
    }
    r->out[r->out_words++] = run->off;
    r->out[r->out_words++] = run->block << 4 | run->dims;
    for (int i = 0; i < run->dims; i++) {
        r->out[r->out_words++] = run->count[i];
        r->out[r->out_words++] = run->stride[i];
    }
    return run_bytes(run);
}

static const int64_t *parse(const int64_t *v, struct run *r) {
    r->off = v[0];
    r->block = v[1] >> 4;
    r->dims = (int)(v[1] & 15);
    v += 2;
    for (int i = 0; i < r->dims; i++, v += 2) {
        r->count[i] = v[0];
        r->stride[i] = v[1];
    }
    return v;
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

/* What this rank has for each aggregator. The windows of a round follow each other, so that it is
 * one stretch of the stream; its beginning is returned. */
static int64_t describe_round(const struct plan *p, int64_t round, struct round *r) {
    const struct io *io = p->io;
    int64_t end = io->pos + io->len, from = 0;
    memset(r->counts, 0, sizeof(int) * COUNTS * (size_t)p->ranks);
    r->out_words = r->out_bytes = 0;
    for (int a = 0; a < p->aggregators && io->len > 0; a++) {
        int64_t w = p->base + (round * p->aggregators + a) * p->window, first = r->out_words;
        int64_t s = clamp(shape_position(io->view->shape, w), io->pos, end);
        int64_t e = clamp(shape_position(io->view->shape, w + p->window), io->pos, end);
        int rank = rank_of(p, a);
        from = a == 0 ? s - io->pos : from;
        row_at(p, r, OUT_WORDS)[rank] = (int)first;
        row_at(p, r, OUT_BYTES)[rank] = (int)r->out_bytes;
        shape_walk(io->view->shape, s, e - s, describe, r);
        row(p, r, OUT_WORDS)[rank] = (int)(r->out_words - first);
        row(p, r, OUT_BYTES)[rank] = (int)(e - s);
        r->out_bytes += e - s;
    }
    return from;
}

static int64_t total(const struct plan *p, struct round *r, int which) {
    int64_t sum = 0;
    for (int i = 0; i < p->ranks; i++) {
        row_at(p, r, which)[i] = (int)sum;
        sum += row(p, r, which)[i];
    }
    return sum;
}

/* Memory for what will come. All ranks learn if somebody has none, before anybody sends. */
static int make_room(const struct plan *p, struct round *r) {
    free(r->in);
    free(r->packed);
    free(r->arrived);
    r->in = malloc((size_t)(r->in_words + 1) * sizeof *r->in);
    r->packed = malloc((size_t)r->out_bytes + 1);
    r->arrived = malloc((size_t)r->in_bytes + 1);
    if (r->in_bytes > 0 && !r->buffer) {
        r->buffer = malloc((size_t)p->window);
        r->covered = malloc((size_t)(p->window / 64 + 1) * sizeof *r->covered);
    }
    if (!r->in || !r->packed || !r->arrived || (r->in_bytes > 0 && (!r->buffer || !r->covered)))
        r->failed = true;
    return agree(p->io->f, r->failed ? MPI_ERR_NO_MEM : MPI_SUCCESS);
}

static int send_descriptions(const struct plan *p, struct round *r) {
    MPI_Comm comm = p->io->f->comm;
    for (int i = 0; i < 2; i++) {
        int rc = PMPI_Alltoall(row(p, r, OUT_WORDS + i), 1, MPI_INT, row(p, r, IN_WORDS + i), 1,
                               MPI_INT, comm);
        if (rc != MPI_SUCCESS)
            return rc;
    }
    r->in_words = total(p, r, IN_WORDS);
    r->in_bytes = total(p, r, IN_BYTES);
    int rc = make_room(p, r);
    if (rc != MPI_SUCCESS)
        return rc;
    return PMPI_Alltoallv(r->out, row(p, r, OUT_WORDS), row_at(p, r, OUT_WORDS), MPI_INT64_T, r->in,
                          row(p, r, IN_WORDS), row_at(p, r, IN_WORDS), MPI_INT64_T, comm);
}

/* The bytes of this rank to the aggregators, or from them. */
static int send_bytes(const struct plan *p, struct round *r, bool back) {
    MPI_Comm comm = p->io->f->comm;
    int *out = row(p, r, OUT_BYTES), *out_at = row_at(p, r, OUT_BYTES);
    int *in = row(p, r, IN_BYTES), *in_at = row_at(p, r, IN_BYTES);
    if (back)
        return PMPI_Alltoallv(r->arrived, in, in_at, MPI_BYTE, r->packed, out, out_at, MPI_BYTE,
                              comm);
    return PMPI_Alltoallv(r->packed, out, out_at, MPI_BYTE, r->arrived, in, in_at, MPI_BYTE, comm);
}

/* ---- the aggregator's part ---- */

static void cover(uint64_t *bits, int64_t from, int64_t len) {
    for (int64_t i = from; i < from + len;) {
        int64_t bit = i & 63, n = 64 - bit;
        n = n < from + len - i ? n : from + len - i;
        uint64_t mask = n == 64 ? ~0ull : ((1ull << n) - 1) << bit;
        bits[i >> 6] |= mask;
        i += n;
    }
}

enum visit { COVER, FILL, EXTRACT };

/* Visits the blocks of a run in the order of its stream. */
static char *visit_dims(struct round *r, const struct run *run, int dim, int64_t off, enum visit v,
                        char *data) {
    if (dim < run->dims) {
        for (int64_t i = 0; i < run->count[dim]; i++)
            data = visit_dims(r, run, dim + 1, off + i * run->stride[dim], v, data);
        return data;
    }
    int64_t at = off - r->window;
    if (v != EXTRACT)
        cover(r->covered, at, run->block);
    if (v == FILL)
        memcpy(r->buffer + at, data, (size_t)run->block);
    if (v == EXTRACT)
        memcpy(data, r->buffer + at, (size_t)run->block);
    return data + run->block;
}

static void visit_all(struct round *r, enum visit v) {
    const int64_t *words = r->in, *end = r->in + r->in_words;
    char *data = r->arrived;
    while (words < end) {
        struct run run;
        words = parse(words, &run);
        data = visit_dims(r, &run, 0, run.off, v, data);
    }
}

/* The next byte from at on that is covered, or that is not. */
static int64_t next_bit(const uint64_t *bits, int64_t at, int64_t end, bool covered) {
    while (at < end) {
        uint64_t w = covered ? bits[at >> 6] : ~bits[at >> 6];
        w >>= at & 63;
        if (w) {
            at += __builtin_ctzll(w);
            return at < end ? at : end;
        }
        at = (at | 63) + 1;
    }
    return end;
}

static ssize_t list_request(const struct plan *p, struct round *r,
                            const struct sluice_piece *pieces, int n) {
    sluice_file *h = p->io->f->handle;
    errno = 0;
    if (n == 1) {
        char *at = r->buffer + pieces[0].off;
        int64_t off = r->window + pieces[0].off;
        return p->io->write ? sluice.pwrite(h, at, (size_t)pieces[0].len, off)
                            : sluice.pread(h, at, (size_t)pieces[0].len, off);
    }
    struct sluice_access a = {.kind = SLUICE_LIST, .count = (uint32_t)n, .u.pieces = pieces};
    struct sluice_memory mem = {r->buffer, a};
    a.off = r->window;
    return p->io->write ? sluice.write_list(h, &mem, &a, NULL)
                        : sluice.read_list(h, &mem, &a, NULL);
}

/* A read of pieces with small holes between them reads the holes, too. */
enum { HOLE = 4096 };

/* Writes, or reads, what is covered, in as few pieces as it has. */
static void access_window(const struct plan *p, struct round *r) {
    struct sluice_piece *pieces = malloc(LIST_MAX * sizeof *pieces);
    int64_t at = 0, end = p->window, bytes = 0;
    int n = 0;
    if (!pieces) {
        r->err = ENOMEM;
        return;
    }
    while (!r->err) {
        int64_t from = next_bit(r->covered, at, end, true);
        int64_t to = next_bit(r->covered, from, end, false);
        bool last = from == end;
        struct sluice_piece *prev = n ? &pieces[n - 1] : NULL;
        if (!last && prev && !p->io->write && from - (prev->off + prev->len) <= HOLE) {
            bytes += to - (prev->off + prev->len);
            prev->len = to - prev->off;
        } else if (!last && n < LIST_MAX) {
            pieces[n++] = (struct sluice_piece){from, to - from};
            bytes += to - from;
        } else {
            ssize_t done = n ? list_request(p, r, pieces, n) : 0;
            if (done < 0)
                r->err = errno ? errno : EIO;
            else if (done < bytes && p->io->write)
                r->err = EDQUOT;
            else if (done < bytes)
                r->eof = true;
            if (last)
                break;
            n = 0;
            bytes = 0;
            continue; /* with the same piece */
        }
        at = to;
    }
    free(pieces);
}

static void aggregate(const struct plan *p, struct round *r, int64_t round) {
    int a = (int)((int64_t)p->io->f->rank * p->aggregators / p->ranks);
    while (a < p->aggregators - 1 && rank_of(p, a) < p->io->f->rank)
        a++;
    r->window = p->base + (round * p->aggregators + a) * p->window;
    memset(r->covered, 0, (size_t)(p->window / 64 + 1) * sizeof *r->covered);
    visit_all(r, p->io->write ? FILL : COVER);
    access_window(p, r);
    if (!p->io->write)
        visit_all(r, EXTRACT);
}

static int run_round(const struct plan *p, struct round *r, int64_t round) {
    int64_t from = describe_round(p, round, r);
    int rc = send_descriptions(p, r);
    if (rc == MPI_SUCCESS && p->io->write) {
        io_copy(p->io, from, r->out_bytes, r->packed, true);
        rc = send_bytes(p, r, false);
    }
    if (rc != MPI_SUCCESS)
        return rc;
    if (r->in_bytes > 0 && !r->err)
        aggregate(p, r, round);
    if (!p->io->write) {
        rc = send_bytes(p, r, true);
        if (rc == MPI_SUCCESS)
            io_copy(p->io, from, r->out_bytes, r->packed, false);
    }
    return rc;
}

static void free_round(struct round *r) {
    free(r->counts);
    free(r->out);
    free(r->in);
    free(r->packed);
    free(r->arrived);
    free(r->buffer);
    free(r->covered);
}

/* How much of a read lies before the end of the file. */
static int64_t before_end(const struct io *io) {
    struct sluice_stat st;
    if (sluice.fstat(io->f->handle, &st) != 0)
        return 0;
    return clamp(shape_position(io->view->shape, st.size) - io->pos, 0, io->len);
}

static int run_plan(const struct plan *p) {
    struct round r = {.counts = malloc(sizeof(int) * COUNTS * (size_t)p->ranks)};
    struct file *f = p->io->f;
    int rc = agree(f, r.counts ? MPI_SUCCESS : MPI_ERR_NO_MEM);
    for (int64_t i = 0; i < p->rounds && rc == MPI_SUCCESS; i++)
        rc = run_round(p, &r, i);
    if (rc == MPI_SUCCESS)
        rc = agree(f, class_of(r.err, p->io->write ? "write" : "read", f->path));
    int eof = r.eof, any = 0;
    if (rc == MPI_SUCCESS && !p->io->write)
        rc = PMPI_Allreduce(&eof, &any, 1, MPI_INT, MPI_MAX, f->comm);
    if (rc == MPI_SUCCESS)
        p->io->done = any && p->io->len > 0 ? before_end(p->io) : p->io->len;
    free_round(&r);
    return rc;
}

int collective_run(struct io *io, int rc) {
    struct file *f = io->f;
    struct facts *all = malloc((size_t)f->ranks * sizeof *all);
    struct plan p = {.io = io, .ranks = f->ranks};
    /* A view with bytes that are in it twice can only be read, and is read alone. */
    int64_t len = io->len;
    bool alone = len > 0 && io->view->shape.n->overlaps;
    struct facts mine = facts_of(io);
    if (alone)
        mine.len = 0;
    int sent = agree(f, all ? MPI_SUCCESS : MPI_ERR_NO_MEM);
    if (sent == MPI_SUCCESS)
        sent = PMPI_Allgather(&mine, 3, MPI_INT64_T, all, 3, MPI_INT64_T, f->comm);
    bool gather = sent == MPI_SUCCESS && make_plan(&p, all);
    free(all);
    if (sent != MPI_SUCCESS)
        return rc != MPI_SUCCESS ? rc : sent;
    if (gather) {
        io->len = mine.len;
        sent = run_plan(&p);
        io->len = len;
    }
    if ((alone || !gather) && rc == MPI_SUCCESS && sent == MPI_SUCCESS) {
        io_run(io);
        sent = class_of(io->err, io->write ? "write" : "read", f->path);
    }
    return rc != MPI_SUCCESS ? rc : sent;
}
