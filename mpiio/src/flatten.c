/* From MPI datatypes to shapes, by envelope and contents, once for each datatype: the result is an
 * attribute of it and lives as long as it or a request that uses it. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* Types nested deeper than this are refused: their makers recurse, and so do we. */
enum { DEPTH_MAX = 512 };

/* Within one build a datatype that is used often is looked at once, so that a type that names the
 * one below it twice, thirty times over, costs thirty steps and not 2^30. */
struct memo {
    bool used;
    MPI_Datatype type;
    struct placed shape;
};

/* Handles that MPI has given to us, to be freed when all is built: one that were freed before could
 * be given anew, and the memo would take it for the other one. */
struct handle {
    MPI_Datatype type;
    struct handle *next;
};

struct build {
    struct arena arena, memory; /* what stays, and what is freed when it is built */
    struct memo *memo; /* a hash table of room places: HDF5 makes structs of 65536 types */
    size_t memos, room;
    struct handle *handles;
};

/* What a datatype was made of: all numbers in the order of the C call that made it. */
struct contents {
    int combiner, n, types;
    int64_t *v;
    MPI_Datatype *type;
};

struct element { /* a datatype inside another one */
    struct placed shape;
    int64_t lb, extent;
};

static int build(struct build *b, MPI_Datatype t, int depth, struct placed *out);

bool type_predefined(MPI_Datatype t) {
    int ni, na, nt, combiner;
    if (PMPI_Type_get_envelope(t, &ni, &na, &nt, &combiner) != MPI_SUCCESS)
        return false;
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_INTEGER || combiner == MPI_COMBINER_F90_COMPLEX;
}

#ifdef MPICH
/* MPI 4: types made by large-count calls keep some of their numbers as counts. Those of subarrays
 * and distributed arrays are put where the small call has them. */
static void interleave(struct contents *c, const int *ints, int ni, const MPI_Count *counts,
                       int nc) {
    int n = 0;
    if (c->combiner == MPI_COMBINER_SUBARRAY) {
        c->v[n++] = ints[0];
        for (int i = 0; i < nc; i++)
            c->v[n++] = counts[i];
        c->v[n++] = ints[1];
    } else if (c->combiner == MPI_COMBINER_DARRAY) {
        for (int i = 0; i < 3; i++)
            c->v[n++] = ints[i];
        for (int i = 0; i < nc; i++)
            c->v[n++] = counts[i];
        for (int i = 3; i < ni; i++)
            c->v[n++] = ints[i];
    } else {
        for (int i = 0; i < nc; i++)
            c->v[n++] = counts[i];
    }
}

static int read_contents(struct build *b, MPI_Datatype t, struct contents *c) {
    MPI_Count ni, na, nc, nt;
    int rc = PMPI_Type_get_envelope_c(t, &ni, &na, &nc, &nt, &c->combiner);
    if (rc != MPI_SUCCESS)
        return rc;
    int *ints = arena_alloc(&b->memory, ((size_t)ni + 1) * sizeof *ints);
    MPI_Aint *addrs = arena_alloc(&b->memory, ((size_t)na + 1) * sizeof *addrs);
    MPI_Count *counts = arena_alloc(&b->memory, ((size_t)nc + 1) * sizeof *counts);
    c->type = arena_alloc(&b->memory, ((size_t)nt + 1) * sizeof *c->type);
    c->v = arena_alloc(&b->memory, (size_t)(ni + na + nc + 1) * sizeof *c->v);
    if (!ints || !addrs || !counts || !c->type || !c->v)
        return MPI_ERR_NO_MEM;
    rc = PMPI_Type_get_contents_c(t, ni, na, nc, nt, ints, addrs, counts, c->type);
    if (rc != MPI_SUCCESS)
        return rc;
    c->types = (int)nt;
    c->n = (int)(ni + na + nc);
    if (nc > 0) {
        interleave(c, ints, (int)ni, counts, (int)nc);
        return MPI_SUCCESS;
    }
    for (int i = 0; i < ni; i++)
        c->v[i] = ints[i];
    for (int i = 0; i < na; i++)
        c->v[ni + i] = addrs[i];
    return MPI_SUCCESS;
}
#else
static int read_contents(struct build *b, MPI_Datatype t, struct contents *c) {
    int ni, na, nt;
    int rc = PMPI_Type_get_envelope(t, &ni, &na, &nt, &c->combiner);
    if (rc != MPI_SUCCESS)
        return rc;
    int *ints = arena_alloc(&b->memory, ((size_t)ni + 1) * sizeof *ints);
    MPI_Aint *addrs = arena_alloc(&b->memory, ((size_t)na + 1) * sizeof *addrs);
    c->type = arena_alloc(&b->memory, ((size_t)nt + 1) * sizeof *c->type);
    c->v = arena_alloc(&b->memory, ((size_t)ni + (size_t)na + 1) * sizeof *c->v);
    if (!ints || !addrs || !c->type || !c->v)
        return MPI_ERR_NO_MEM;
    rc = PMPI_Type_get_contents(t, ni, na, nt, ints, addrs, c->type);
    if (rc != MPI_SUCCESS)
        return rc;
    c->types = nt;
    c->n = ni + na;
    for (int i = 0; i < ni; i++)
        c->v[i] = ints[i];
    for (int i = 0; i < na; i++)
        c->v[ni + i] = addrs[i];
    return MPI_SUCCESS;
}
#endif

static int code(bool ok) {
    return ok ? MPI_SUCCESS : MPI_ERR_TYPE;
}

/* A type that MPI knows by name is contiguous, but for the pairs that minloc and maxloc use. */
static int build_named(struct build *b, MPI_Datatype t, struct placed *out) {
    int size;
    int rc = PMPI_Type_size(t, &size);
    if (rc != MPI_SUCCESS)
        return rc;
    if (t == MPI_SHORT_INT) {
        struct pair {
            short s;
            int i;
        };
        struct placed *item = arena_alloc(&b->arena, 2 * sizeof *item);
        if (!item || !shape_leaf(&b->arena, sizeof(short), &item[0]) ||
            !shape_leaf(&b->arena, sizeof(int), &item[1]))
            return MPI_ERR_NO_MEM;
        item[1].off = offsetof(struct pair, i);
        return code(shape_seq(&b->arena, 2, item, out));
    }
    return code(shape_leaf(&b->arena, size, out));
}

/* count elements behind each other. */
static bool row(struct build *b, int64_t count, const struct element *e, struct placed *out) {
    return shape_rep(&b->arena, count, e->extent, e->shape, out);
}

static bool vector(struct build *b, int64_t count, int64_t block, int64_t stride,
                   const struct element *e, struct placed *out) {
    struct placed r;
    return row(b, block, e, &r) && shape_rep(&b->arena, count, stride, r, out);
}

static bool strided(struct build *b, const struct contents *c, const struct element *e, bool bytes,
                    struct placed *out) {
    int64_t stride = c->v[2];
    if (!bytes && __builtin_mul_overflow(stride, e->extent, &stride))
        return false;
    return vector(b, c->v[0], c->v[1], stride, e, out);
}

/* Lists of blocks: lengths and displacements, the latter in bytes or in extents. With one length
 * for all, lens is a single number. */
static bool blocks(struct build *b, int64_t n, const int64_t *lens, bool one, const int64_t *disps,
                   bool bytes, const struct element *e, struct placed *out) {
    struct placed *item = arena_alloc(&b->arena, ((size_t)n + 1) * sizeof *item), last = {0, NULL};
    if (!item)
        return false;
    for (int64_t i = 0; i < n; i++) {
        int64_t len = one ? lens[0] : lens[i], off = disps[i];
        if (!bytes && __builtin_mul_overflow(off, e->extent, &off))
            return false;
        /* Blocks of one length share their shape. */
        bool again = i > 0 && len == (one ? lens[0] : lens[i - 1]);
        if (!again && !row(b, len, e, &last))
            return false;
        item[i] = last;
        if (__builtin_add_overflow(item[i].off, off, &item[i].off))
            return false;
    }
    return shape_seq(&b->arena, n, item, out);
}

static int build_struct(struct build *b, const struct contents *c, int depth, struct placed *out) {
    int64_t n = c->v[0];
    struct placed *item = arena_alloc(&b->arena, ((size_t)n + 1) * sizeof *item);
    if (!item)
        return MPI_ERR_NO_MEM;
    for (int64_t i = 0; i < n; i++) {
        struct element e;
        MPI_Aint lb, extent;
        int rc = PMPI_Type_get_extent(c->type[i], &lb, &extent);
        if (rc == MPI_SUCCESS)
            rc = build(b, c->type[i], depth + 1, &e.shape);
        if (rc != MPI_SUCCESS)
            return rc;
        e.extent = extent;
        if (!row(b, c->v[1 + i], &e, &item[i]) ||
            __builtin_add_overflow(item[i].off, c->v[1 + n + i], &item[i].off))
            return MPI_ERR_TYPE;
    }
    return code(shape_seq(&b->arena, n, item, out));
}

/* One dimension after the other, from the one whose elements are adjacent outwards. */
static bool subarray(struct build *b, const struct contents *c, const struct element *e,
                     struct placed *out) {
    int64_t dims = c->v[0], order = c->v[1 + 3 * dims], step = e->extent, off = 0;
    const int64_t *sizes = c->v + 1, *subsizes = sizes + dims, *starts = subsizes + dims;
    struct placed p = e->shape;
    for (int64_t i = 0; i < dims; i++) {
        int64_t d = order == MPI_ORDER_FORTRAN ? i : dims - 1 - i, skip;
        if (!shape_rep(&b->arena, subsizes[d], step, p, &p) ||
            __builtin_mul_overflow(starts[d], step, &skip) ||
            __builtin_add_overflow(off, skip, &off) ||
            __builtin_mul_overflow(step, sizes[d], &step))
            return false;
    }
    *out = p;
    return !__builtin_add_overflow(p.off, off, &out->off);
}

/* The part of one dimension that process coord of procs has: blocks of block elements, dealt out in
 * turn. A block distribution is one deal. */
static bool deal(struct build *b, int64_t gsize, int64_t procs, int64_t coord, int64_t block,
                 int64_t step, struct placed inner, struct placed *out) {
    int64_t cycle, off, begin, full, rest;
    *out = (struct placed){0, NULL};
    if (block <= 0 || __builtin_mul_overflow(block, procs, &cycle))
        return false;
    begin = coord * block;
    if (begin >= gsize)
        return true;
    full = (gsize - begin) / cycle;
    rest = gsize - begin - full * cycle;
    if (rest >= block) {
        full++;
        rest = 0;
    }
    int64_t pitch;
    struct placed r, *item = arena_alloc(&b->arena, 2 * sizeof *item);
    if (!item || __builtin_mul_overflow(cycle, step, &pitch) ||
        !shape_rep(&b->arena, block, step, inner, &r) ||
        !shape_rep(&b->arena, full, pitch, r, &item[0]) ||
        !shape_rep(&b->arena, rest, step, inner, &item[1]) ||
        __builtin_mul_overflow(full, pitch, &off))
        return false;
    item[1].off += off;
    if (!shape_seq(&b->arena, 2, item, out) || __builtin_mul_overflow(begin, step, &off))
        return false;
    return !__builtin_add_overflow(out->off, off, &out->off);
}

static bool darray(struct build *b, const struct contents *c, const struct element *e,
                   struct placed *out) {
    int64_t rank = c->v[1], dims = c->v[2];
    const int64_t *gsizes = c->v + 3, *distribs = gsizes + dims, *dargs = distribs + dims,
                  *psizes = dargs + dims, order = psizes[dims];
    int64_t *coord = arena_alloc(&b->memory, ((size_t)dims + 1) * sizeof *coord), step = e->extent;
    if (!coord)
        return false;
    for (int64_t d = dims - 1; d >= 0; d--) { /* ranks are in row order, whatever the array's is */
        coord[d] = rank % psizes[d];
        rank /= psizes[d];
    }
    struct placed p = e->shape;
    for (int64_t i = 0; i < dims; i++) {
        int64_t d = order == MPI_ORDER_FORTRAN ? i : dims - 1 - i;
        int64_t procs = psizes[d], block = dargs[d], at = coord[d];
        if (distribs[d] == MPI_DISTRIBUTE_NONE) {
            procs = 1;
            at = 0;
            block = gsizes[d];
        } else if (block == MPI_DISTRIBUTE_DFLT_DARG) {
            block = distribs[d] == MPI_DISTRIBUTE_CYCLIC ? 1 : (gsizes[d] + procs - 1) / procs;
        }
        if (!deal(b, gsizes[d], procs, at, block, step, p, &p) ||
            __builtin_mul_overflow(step, gsizes[d], &step))
            return false;
    }
    *out = p;
    return true;
}

static int build_from(struct build *b, const struct contents *c, int depth, struct placed *out) {
    if (c->combiner == MPI_COMBINER_STRUCT)
        return build_struct(b, c, depth, out);
    if (c->types < 1)
        return MPI_ERR_TYPE;
    struct element e;
    MPI_Aint lb, extent;
    int rc = PMPI_Type_get_extent(c->type[0], &lb, &extent);
    if (rc == MPI_SUCCESS)
        rc = build(b, c->type[0], depth + 1, &e.shape);
    if (rc != MPI_SUCCESS)
        return rc;
    e.lb = lb;
    e.extent = extent;
    const int64_t *v = c->v, n = c->n > 0 ? v[0] : 0;
    switch (c->combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED: *out = e.shape; return MPI_SUCCESS;
    case MPI_COMBINER_CONTIGUOUS: return code(row(b, n, &e, out));
    case MPI_COMBINER_VECTOR: return code(strided(b, c, &e, false, out));
    case MPI_COMBINER_HVECTOR: return code(strided(b, c, &e, true, out));
    case MPI_COMBINER_INDEXED: return code(blocks(b, n, v + 1, false, v + 1 + n, false, &e, out));
    case MPI_COMBINER_HINDEXED: return code(blocks(b, n, v + 1, false, v + 1 + n, true, &e, out));
    case MPI_COMBINER_INDEXED_BLOCK: return code(blocks(b, n, v + 1, true, v + 2, false, &e, out));
    case MPI_COMBINER_HINDEXED_BLOCK: return code(blocks(b, n, v + 1, true, v + 2, true, &e, out));
    case MPI_COMBINER_SUBARRAY: return code(subarray(b, c, &e, out));
    case MPI_COMBINER_DARRAY: return code(darray(b, c, &e, out));
    default: /* the forms of MPI 1, which no MPI of today makes */ return MPI_ERR_TYPE;
    }
}

/* Where a type is, or the free place for it. There is always one. */
static struct memo *memo_at(struct memo *table, size_t room, MPI_Datatype t) {
    size_t i = (size_t)((uint64_t)(uintptr_t)t * 0x9e3779b97f4a7c15 >> 20) & (room - 1);
    while (table[i].used && table[i].type != t)
        i = (i + 1) & (room - 1);
    return &table[i];
}

/* The table is twice as large as it need be, at least, and grows in the arena. */
static bool remember(struct build *b, MPI_Datatype t, struct placed shape) {
    if (2 * (b->memos + 1) > b->room) {
        size_t room = b->room ? 4 * b->room : 16;
        struct memo *m = arena_alloc(&b->memory, room * sizeof *m);
        if (!m)
            return false;
        for (size_t i = 0; i < b->room; i++)
            if (b->memo[i].used)
                *memo_at(m, room, b->memo[i].type) = b->memo[i];
        b->memo = m;
        b->room = room;
    }
    *memo_at(b->memo, b->room, t) = (struct memo){.used = true, .type = t, .shape = shape};
    b->memos++;
    return true;
}

static bool keep_handles(struct build *b, const struct contents *c) {
    for (int i = 0; i < c->types; i++) {
        if (type_predefined(c->type[i]))
            continue;
        struct handle *h = arena_alloc(&b->memory, sizeof *h);
        if (!h)
            return false;
        *h = (struct handle){c->type[i], b->handles};
        b->handles = h;
    }
    return true;
}

static int build(struct build *b, MPI_Datatype t, int depth, struct placed *out) {
    if (depth > DEPTH_MAX)
        return MPI_ERR_TYPE;
    struct memo *known = b->room ? memo_at(b->memo, b->room, t) : NULL;
    if (known && known->used) {
        *out = known->shape;
        return MPI_SUCCESS;
    }
    if (type_predefined(t))
        return build_named(b, t, out);
    struct contents c;
    int rc = read_contents(b, t, &c);
    if (rc != MPI_SUCCESS)
        return rc;
    if (!keep_handles(b, &c))
        return MPI_ERR_NO_MEM;
    rc = build_from(b, &c, depth, out);
    if (rc == MPI_SUCCESS && !remember(b, t, *out))
        rc = MPI_ERR_NO_MEM;
    return rc;
}

static struct flat *flat_new(MPI_Datatype t, int *rc) {
    struct flat *f = calloc(1, sizeof *f);
    struct build b = {0};
    MPI_Aint lb, extent;
    *rc = f ? PMPI_Type_get_extent(t, &lb, &extent) : MPI_ERR_NO_MEM;
    if (*rc == MPI_SUCCESS)
        *rc = build(&b, t, 0, &f->shape);
    for (struct handle *h = b.handles; h; h = h->next)
        PMPI_Type_free(&h->type);
    arena_free(&b.memory);
    if (*rc != MPI_SUCCESS) {
        arena_free(&b.arena);
        free(f);
        return NULL;
    }
    f->refs = 1;
    f->arena = b.arena;
    f->size = placed_size(f->shape);
    f->lb = lb;
    f->extent = extent;
    return f;
}

void flat_put(struct flat *f) {
    if (f && __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        arena_free(&f->arena);
        free(f);
    }
}

static int drop_attribute(MPI_Datatype t, int key, void *value, void *extra) {
    (void)t, (void)key, (void)extra;
    flat_put(value);
    return MPI_SUCCESS;
}

int flat_get(MPI_Datatype t, struct flat **out) {
    static pthread_mutex_t mu =
        PTHREAD_MUTEX_INITIALIZER; /* attributes are read and counted at once */
    static int key = MPI_KEYVAL_INVALID;
    struct flat *f = NULL;
    int found = 0, rc = MPI_SUCCESS;
    if (t == MPI_DATATYPE_NULL)
        return MPI_ERR_TYPE;
    pthread_mutex_lock(&mu);
    if (key == MPI_KEYVAL_INVALID)
        rc = PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, drop_attribute, &key, NULL);
    if (rc == MPI_SUCCESS)
        rc = PMPI_Type_get_attr(t, key, &f, &found);
    if (rc == MPI_SUCCESS && !found) {
        f = flat_new(t, &rc);
        if (rc == MPI_SUCCESS && (rc = PMPI_Type_set_attr(t, key, f)) != MPI_SUCCESS)
            flat_put(f);
    }
    if (rc == MPI_SUCCESS) {
        __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
        *out = f;
    }
    pthread_mutex_unlock(&mu);
    return rc;
}
