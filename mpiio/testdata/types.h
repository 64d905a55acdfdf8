/* Random datatypes, each with its typemap, byte by byte, which is worked out here from MPI's
 * definitions and not from what the library makes of the type. */
#ifndef TYPES_H
#define TYPES_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_MAX = 3000 };

struct type {
    MPI_Datatype t;
    int64_t n; /* bytes of the typemap */
    int64_t *off;
    MPI_Aint lb, extent;
};

/* xorshift*: the same numbers at every rank and on every machine. */
static uint64_t rnd(uint64_t *s) {
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 2685821657736338717ull;
}
static int64_t pick(uint64_t *s, int64_t lo, int64_t hi) {
    return lo + (int64_t)(rnd(s) >> 33) % (hi - lo + 1);
}
static uint64_t seeded(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t s =
        seed * 0x9e3779b97f4a7c15ull + a * 0xbf58476d1ce4e5b9ull + b * 0x94d049bb133111ebull + 1;
    for (int i = 0; i < 4; i++)
        rnd(&s);
    return s ? s : 1;
}

static void die(const char *what) {
    fprintf(stderr, "FAIL: %s\n", what);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 9);
    exit(9);
}
static void must(int rc, const char *what) {
    char text[MPI_MAX_ERROR_STRING];
    int len;
    if (rc == MPI_SUCCESS)
        return;
    MPI_Error_string(rc, text, &len);
    fprintf(stderr, "%s: %s\n", what, text);
    die(what);
}

static void type_free(struct type *x) {
    if (x->t != MPI_DATATYPE_NULL)
        MPI_Type_free(&x->t);
    free(x->off);
    x->off = NULL;
}

/* count copies of x from base on, one extent apart */
static void put(struct type *out, const struct type *x, int64_t count, int64_t base) {
    if (count <= 0 || x->n == 0)
        return;
    out->off = realloc(out->off, (size_t)(out->n + count * x->n + 1) * sizeof *out->off);
    for (int64_t c = 0; c < count; c++)
        for (int64_t i = 0; i < x->n; i++)
            out->off[out->n++] = base + c * x->extent + x->off[i];
}

static struct type basic(uint64_t *s) {
    struct type x = {.lb = 0};
    int size = 0;
    MPI_Datatype t = MPI_BYTE;
    int64_t kind = pick(s, 0, 9);
    if (kind < 4)
        t = MPI_INT;
    else if (kind < 6)
        t = MPI_DOUBLE;
    else if (kind < 7)
        t = MPI_SHORT_INT;
    MPI_Type_size(t, &size);
    MPI_Type_dup(t, &x.t);
    MPI_Type_get_extent(t, &x.lb, &x.extent);
    x.off = malloc(64 * sizeof *x.off);
    for (x.n = 0; x.n < size; x.n++)
        x.off[x.n] = t == MPI_SHORT_INT && x.n >= 2 ? x.n + 2 : x.n;
    return x;
}

static struct type random_type(uint64_t *s, int depth, int file);

static void make_vector(uint64_t *s, struct type *o, const struct type *in, int file, int bytes) {
    int count = (int)pick(s, 0, 5), block = (int)pick(s, 0, 4);
    int64_t stride = file ? pick(s, block, block + 4) : pick(s, -6, 8), step = stride * in->extent;
    if (bytes) {
        step += file ? pick(s, 0, 3) : pick(s, -3, 3);
        MPI_Type_create_hvector(count, block, step, in->t, &o->t);
    } else {
        MPI_Type_vector(count, block, (int)stride, in->t, &o->t);
    }
    for (int i = 0; i < count; i++)
        put(o, in, block, i * step);
}

static void make_indexed(uint64_t *s, struct type *o, const struct type *in, int file, int how) {
    int n = (int)pick(s, 0, 7), lens[8], disps[8];
    MPI_Aint at[8];
    int64_t next = 0;
    for (int i = 0; i < n; i++) {
        lens[i] = how >= 2 ? (i ? lens[0] : (int)pick(s, 1, 3)) : (int)pick(s, 0, 3);
        disps[i] = (int)(file ? next + pick(s, 0, 3) : pick(s, -10, 20));
        next = disps[i] + lens[i];
        at[i] = disps[i] * in->extent + (how & 1 ? pick(s, 0, 2) * (file ? i : 1) : 0);
        if (how == 0 || how == 2)
            at[i] = disps[i] * in->extent;
    }
    if (how == 0)
        MPI_Type_indexed(n, lens, disps, in->t, &o->t);
    else if (how == 1)
        MPI_Type_create_hindexed(n, lens, at, in->t, &o->t);
    else if (how == 2)
        MPI_Type_create_indexed_block(n, n ? lens[0] : 1, disps, in->t, &o->t);
    else
        MPI_Type_create_hindexed_block(n, n ? lens[0] : 1, at, in->t, &o->t);
    for (int i = 0; i < n; i++)
        put(o, in, lens[i], at[i]);
}

static void make_struct(uint64_t *s, struct type *o, int depth, int file) {
    int n = (int)pick(s, 1, 4), lens[4];
    MPI_Aint at[4], next = 0;
    MPI_Datatype types[4];
    struct type in[4];
    for (int i = 0; i < n; i++) {
        in[i] = random_type(s, depth - 1, file);
        types[i] = in[i].t;
        lens[i] = (int)pick(s, 0, 2);
        at[i] = next + (file ? pick(s, 0, 9) : pick(s, -40, 40));
        next = at[i] + lens[i] * in[i].extent + (in[i].lb > 0 ? in[i].lb : 0);
    }
    MPI_Type_create_struct(n, lens, at, types, &o->t);
    for (int i = 0; i < n; i++) {
        put(o, &in[i], lens[i], at[i]);
        type_free(&in[i]);
    }
}

static void make_subarray(uint64_t *s, struct type *o, const struct type *in) {
    int dims = (int)pick(s, 1, 3), sizes[3], subs[3], starts[3], fortran = (int)pick(s, 0, 1),
        at[3];
    int64_t total = 1;
    for (int d = 0; d < dims; d++) {
        sizes[d] = (int)pick(s, 1, 6);
        subs[d] = (int)pick(s, 1, sizes[d]);
        starts[d] = (int)pick(s, 0, sizes[d] - subs[d]);
        total *= subs[d];
    }
    MPI_Type_create_subarray(dims, sizes, subs, starts, fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C,
                             in->t, &o->t);
    for (int64_t k = 0; k < total; k++) {
        int64_t rest = k, linear = 0, step = 1;
        for (int i = 0; i < dims; i++) { /* the fastest dimension first */
            int d = fortran ? i : dims - 1 - i;
            at[d] = (int)(rest % subs[d]) + starts[d];
            rest /= subs[d];
            linear += at[d] * step;
            step *= sizes[d];
        }
        put(o, in, 1, linear * in->extent);
    }
}

/* Whether process coord of procs has element i of a dimension. */
static int owns(int i, int gsize, int dist, int darg, int procs, int coord) {
    if (dist == MPI_DISTRIBUTE_NONE)
        return 1;
    if (dist == MPI_DISTRIBUTE_BLOCK)
        darg = darg == MPI_DISTRIBUTE_DFLT_DARG ? (gsize + procs - 1) / procs : darg;
    else
        darg = darg == MPI_DISTRIBUTE_DFLT_DARG ? 1 : darg;
    return i / darg % procs == coord;
}

static void make_darray(uint64_t *s, struct type *o, const struct type *in) {
    int dims = (int)pick(s, 1, 3), g[3], dist[3], darg[3], ps[3], coord[3], procs = 1;
    int fortran = (int)pick(s, 0, 1);
    int64_t total = 1;
    for (int d = 0; d < dims; d++) {
        g[d] = (int)pick(s, 1, 7);
        int64_t k = pick(s, 0, 2);
        dist[d] = k == 0   ? MPI_DISTRIBUTE_NONE
                  : k == 1 ? MPI_DISTRIBUTE_BLOCK
                           : MPI_DISTRIBUTE_CYCLIC;
        ps[d] = k == 0 ? 1 : (int)pick(s, 1, 3);
        darg[d] = MPI_DISTRIBUTE_DFLT_DARG;
        if (k == 1 && pick(s, 0, 1))
            darg[d] = (g[d] + ps[d] - 1) / ps[d] + (int)pick(s, 0, 1);
        if (k == 2 && pick(s, 0, 1))
            darg[d] = (int)pick(s, 1, 3);
        procs *= ps[d];
        total *= g[d];
    }
    int rank = (int)pick(s, 0, procs - 1), rest = rank;
    for (int d = dims - 1; d >= 0; d--) {
        coord[d] = rest % ps[d];
        rest /= ps[d];
    }
    MPI_Type_create_darray(procs, rank, dims, g, dist, darg, ps,
                           fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, in->t, &o->t);
    for (int64_t k = 0; k < total; k++) {
        int64_t left = k;
        int mine = 1;
        for (int i = 0; i < dims; i++) {
            int d = fortran ? i : dims - 1 - i;
            mine = mine && owns((int)(left % g[d]), g[d], dist[d], darg[d], ps[d], coord[d]);
            left /= g[d];
        }
        if (mine)
            put(o, in, 1, k * in->extent);
    }
}

static struct type random_type(uint64_t *s, int depth, int file) {
    if (depth <= 0 || pick(s, 0, 9) == 0)
        return basic(s);
    struct type in = random_type(s, depth - 1, file), o = {.t = MPI_DATATYPE_NULL};
    o.off = malloc(sizeof *o.off);
    int64_t kind = pick(s, 0, 11);
    if (kind == 0) {
        int n = (int)pick(s, 0, 5);
        MPI_Type_contiguous(n, in.t, &o.t);
        put(&o, &in, n, 0);
    } else if (kind <= 3) {
        make_vector(s, &o, &in, file, (int)(kind & 1));
    } else if (kind <= 7) {
        make_indexed(s, &o, &in, file, (int)kind - 4);
    } else if (kind == 8) {
        make_struct(s, &o, depth, file);
    } else if (kind == 9) {
        make_subarray(s, &o, &in);
    } else if (kind == 10) {
        make_darray(s, &o, &in);
    } else {
        MPI_Aint lb = file ? 0 : pick(s, -8, 8), extent = in.extent + pick(s, 0, 24);
        MPI_Type_create_resized(in.t, lb, extent, &o.t);
        put(&o, &in, 1, 0);
    }
    type_free(&in);
    if (o.t != MPI_DATATYPE_NULL)
        MPI_Type_get_extent(o.t, &o.lb, &o.extent);
    /* Too large, or one that this MPI refuses to make: something simple in its place. */
    if (o.t == MPI_DATATYPE_NULL || o.n > BYTES_MAX) {
        type_free(&o);
        return basic(s);
    }
    return o;
}

/* Whether it may be a filetype that is written: offsets rise, from tile to tile, too. */
static int good_filetype(const struct type *x) {
    if (x->n == 0 || x->extent <= 0 || x->off[0] < 0)
        return 0;
    for (int64_t i = 1; i < x->n; i++)
        if (x->off[i] <= x->off[i - 1])
            return 0;
    return x->off[x->n - 1] < x->off[0] + x->extent;
}

static int cmp64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Whether some byte is in count elements of it twice. */
static int overlaps(const struct type *x, int64_t count) {
    struct type all = {.off = malloc(sizeof(int64_t))};
    int twice = 0;
    put(&all, x, count, 0);
    qsort(all.off, (size_t)all.n, sizeof *all.off, cmp64);
    for (int64_t i = 1; i < all.n; i++)
        twice |= all.off[i] == all.off[i - 1];
    free(all.off);
    return twice;
}
#endif
