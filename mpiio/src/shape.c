#include "shape.h"

#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    max_align_t data[];
};

void *arena_alloc(struct arena *a, size_t n) {
    const size_t unit = sizeof(max_align_t), usual = 4096;
    if (n > SIZE_MAX / 2)
        return NULL;
    n = (n + unit - 1) / unit * unit;
    struct arena_block *b = a->head;
    if (!b || b->size - b->used < n) {
        size_t size = n > usual ? n : usual;
        b = calloc(1, sizeof *b + size);
        if (!b)
            return NULL;
        b->size = size;
        b->next = a->head;
        a->head = b;
    }
    void *p = (char *)b->data + b->used;
    b->used += n;
    return p;
}

void arena_free(struct arena *a) {
    while (a->head) {
        struct arena_block *b = a->head;
        a->head = b->next;
        free(b);
    }
}

static bool mul(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static bool add(int64_t a, int64_t b, int64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

static int64_t saturate(int64_t a, int64_t b) {
    int64_t n;
    return mul(a, b, &n) ? n : INT64_MAX;
}

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

bool shape_leaf(struct arena *a, int64_t len, struct placed *out) {
    *out = (struct placed){0, NULL};
    if (len <= 0)
        return len == 0;
    struct shape *n = arena_alloc(a, sizeof *n);
    if (!n)
        return false;
    *n = (struct shape){.kind = SHAPE_LEAF, .ordered = true, .size = len, .hi = len, .pieces = 1};
    out->n = n;
    return true;
}

/* The offsets of the last repetition: none of them may leave 63 bits. */
static bool reach(const struct shape *c, int64_t off, int64_t count, int64_t stride,
                  int64_t *span) {
    int64_t x;
    return mul(count - 1, stride, span) && add(off, c->lo, &x) && add(x, *span, &x) &&
           add(off, c->hi, &x) && add(x, *span, &x);
}

bool shape_rep(struct arena *a, int64_t count, int64_t stride, struct placed child,
               struct placed *out) {
    *out = (struct placed){0, NULL};
    const struct shape *c = child.n;
    if (count <= 0 || !c)
        return count >= 0;
    if (count == 1) {
        *out = child;
        return true;
    }
    int64_t span, size, merged;
    if (!reach(c, child.off, count, stride, &span) || !mul(count, c->size, &size))
        return false;
    if (c->kind == SHAPE_LEAF && stride == c->size) {
        out->off = child.off;
        struct placed leaf;
        if (!shape_leaf(a, size, &leaf))
            return false;
        out->n = leaf.n;
        return true;
    }
    if (c->kind == SHAPE_REP && mul(c->count, c->stride, &merged) && merged == stride &&
        mul(count, c->count, &merged)) {
        struct placed grandchild = c->child;
        if (!add(grandchild.off, child.off, &grandchild.off))
            return false;
        return shape_rep(a, merged, c->stride, grandchild, out);
    }
    struct shape *n = arena_alloc(a, sizeof *n);
    if (!n)
        return false;
    *n = (struct shape){
        .kind = SHAPE_REP,
        .depth = c->depth < 0 ? -1 : c->depth + 1,
        .size = size,
        .lo = child.off + c->lo + min64(span, 0),
        .hi = child.off + c->hi + max64(span, 0),
        .first = child.off + c->first,
        .last = child.off + c->last + span,
        .pieces = saturate(count, c->pieces),
        .count = count,
        .stride = stride,
        .child = child,
    };
    /* Written as differences, which cannot overflow: the offsets lie within what reach() saw. */
    n->ordered = c->ordered && c->last - c->first <= stride;
    n->overlaps = c->overlaps || c->hi - c->first > stride;
    out->n = n;
    return true;
}

/* Joins items that are contiguous in the stream and in the file, and drops empty ones. */
static bool squeeze(struct arena *a, int64_t *n, struct placed *item) {
    int64_t kept = 0;
    for (int64_t i = 0; i < *n; i++) {
        struct placed p = item[i], *prev = kept ? &item[kept - 1] : NULL;
        if (!p.n)
            continue;
        int64_t end;
        if (!add(p.off, p.n->lo, &end) || !add(p.off, p.n->hi, &end))
            return false;
        if (prev && prev->n->kind == SHAPE_LEAF && p.n->kind == SHAPE_LEAF &&
            prev->off + prev->n->size == p.off) {
            struct placed leaf;
            if (!shape_leaf(a, prev->n->size + p.n->size, &leaf))
                return false;
            prev->n = leaf.n;
            continue;
        }
        item[kept++] = p;
    }
    *n = kept;
    return true;
}

static bool alike(const struct shape *a, const struct shape *b) {
    return a == b || (a->kind == SHAPE_LEAF && b->kind == SHAPE_LEAF && a->size == b->size);
}

/* Whether all items are the same thing at equal distances. */
static bool regular(int64_t n, const struct placed *item, int64_t *stride) {
    if (n < 2 || __builtin_sub_overflow(item[1].off, item[0].off, stride))
        return false;
    for (int64_t i = 1; i < n; i++) {
        int64_t d;
        if (!alike(item[i].n, item[0].n) ||
            __builtin_sub_overflow(item[i].off, item[i - 1].off, &d) || d != *stride)
            return false;
    }
    return true;
}

static void seq_facts(struct shape *s) {
    const struct placed *item = s->item;
    s->ordered = true;
    s->lo = INT64_MAX;
    s->hi = INT64_MIN;
    for (int64_t i = 0; i < s->items; i++) {
        const struct shape *c = item[i].n;
        s->ordered = s->ordered && c->ordered;
        s->overlaps = s->overlaps || c->overlaps;
        if (i) {
            s->ordered = s->ordered && s->last <= item[i].off + c->first;
            s->overlaps = s->overlaps || s->hi > item[i].off + c->first;
        }
        s->lo = min64(s->lo, item[i].off + c->lo);
        s->hi = max64(s->hi, item[i].off + c->hi);
        s->last = item[i].off + c->last;
        if (!add(s->pieces, c->pieces, &s->pieces))
            s->pieces = INT64_MAX;
    }
    s->first = item[0].off + item[0].n->first;
}

bool shape_seq(struct arena *a, int64_t n, struct placed *item, struct placed *out) {
    *out = (struct placed){0, NULL};
    int64_t stride;
    if (!squeeze(a, &n, item))
        return false;
    if (n == 0)
        return true;
    if (n == 1) {
        *out = item[0];
        return true;
    }
    if (regular(n, item, &stride))
        return shape_rep(a, n, stride, item[0], out);
    struct shape *s = arena_alloc(a, sizeof *s);
    int64_t *before = arena_alloc(a, (size_t)n * sizeof *before);
    if (!s || !before)
        return false;
    *s = (struct shape){.kind = SHAPE_SEQ, .depth = -1, .items = n, .item = item, .before = before};
    for (int64_t i = 0; i < n; i++) {
        before[i] = s->size;
        if (!add(s->size, item[i].n->size, &s->size))
            return false;
    }
    seq_facts(s);
    out->n = s;
    return true;
}

int64_t run_pieces(const struct run *r) {
    int64_t n = 1;
    for (int i = 0; i < r->dims; i++)
        n = saturate(n, r->count[i]);
    return n;
}

int64_t run_bytes(const struct run *r) {
    return saturate(run_pieces(r), r->block);
}

void run_trim(struct run *r, int64_t bytes, int64_t pieces) {
    while (r->dims > 0) {
        struct run inner = *r;
        inner.dims--;
        memmove(inner.count, inner.count + 1, sizeof inner.count - sizeof inner.count[0]);
        memmove(inner.stride, inner.stride + 1, sizeof inner.stride - sizeof inner.stride[0]);
        int64_t fit = min64(bytes / run_bytes(&inner), pieces / run_pieces(&inner));
        if (fit > 1) {
            r->count[0] = min64(r->count[0], fit);
            return;
        }
        *r = inner; /* one repetition of this dimension, or a part of one */
    }
    r->block = min64(r->block, bytes);
}

/* The bytes of count whole repetitions below p, which is a nest of repetitions, as one run. */
static struct run nest(const struct shape *rep, int64_t off, int64_t from, int64_t count) {
    struct run r = {.off = off + from * rep->stride};
    if (count > 1) {
        r.count[r.dims] = count;
        r.stride[r.dims++] = rep->stride;
    }
    struct placed p = rep->child;
    for (r.off += p.off; p.n->kind == SHAPE_REP; r.off += p.off) {
        r.count[r.dims] = p.n->count;
        r.stride[r.dims++] = p.n->stride;
        p = p.n->child;
    }
    r.block = p.n->size;
    return r;
}

static int64_t walk_rep(struct placed p, int64_t skip, int64_t len, run_sink sink, void *ctx) {
    const struct shape *rep = p.n, *c = rep->child.n;
    int64_t i = skip / c->size, within = skip % c->size, done = 0;
    while (done < len && i < rep->count) {
        int64_t whole = min64(rep->count - i, (len - done) / c->size);
        if (within == 0 && whole > 0 && c->depth >= 0 && c->depth < RUN_DIMS) {
            struct run r = nest(rep, p.off, i, whole);
            int64_t all = whole * c->size, n = sink(ctx, &r);
            done += n;
            if (n < all)
                return done;
            i += whole;
            continue;
        }
        struct placed child = {p.off + i * rep->stride + rep->child.off, c};
        int64_t want = min64(c->size - within, len - done);
        int64_t n = shape_walk(child, within, want, sink, ctx);
        done += n;
        if (n < want)
            return done;
        within = 0;
        i++;
    }
    return done;
}

static int64_t walk_seq(struct placed p, int64_t skip, int64_t len, run_sink sink, void *ctx) {
    const struct shape *s = p.n;
    int64_t lo = 0, hi = s->items - 1, done = 0;
    while (lo < hi) { /* the last item that begins at skip or ahead of it */
        int64_t mid = lo + (hi - lo + 1) / 2;
        if (s->before[mid] <= skip)
            lo = mid;
        else
            hi = mid - 1;
    }
    int64_t within = skip - s->before[lo];
    for (int64_t i = lo; i < s->items && done < len; i++) {
        struct placed item = {p.off + s->item[i].off, s->item[i].n};
        int64_t want = min64(item.n->size - within, len - done);
        int64_t n = shape_walk(item, within, want, sink, ctx);
        done += n;
        if (n < want)
            return done;
        within = 0;
    }
    return done;
}

int64_t shape_walk(struct placed p, int64_t skip, int64_t len, run_sink sink, void *ctx) {
    if (!p.n || skip >= p.n->size || len <= 0)
        return 0;
    len = min64(len, p.n->size - skip);
    switch (p.n->kind) {
    case SHAPE_LEAF: {
        struct run r = {.off = p.off + skip, .block = len};
        return sink(ctx, &r);
    }
    case SHAPE_REP: return walk_rep(p, skip, len, sink, ctx);
    default: return walk_seq(p, skip, len, sink, ctx);
    }
}

static int64_t position_rep(struct placed p, int64_t end) {
    const struct shape *rep = p.n, *c = rep->child.n;
    int64_t base = p.off + rep->child.off, i = 0;
    if (end <= base + c->lo)
        return 0;
    if (end >= base + c->hi) {
        /* The first repetition that reaches behind end. */
        i = rep->stride > 0 ? (end - base - c->hi) / rep->stride + 1 : rep->count;
        if (i >= rep->count)
            return rep->size;
    }
    struct placed child = {base + i * rep->stride, c};
    return i * c->size + shape_position(child, end);
}

int64_t shape_position(struct placed p, int64_t end) {
    if (!p.n)
        return 0;
    if (p.n->kind == SHAPE_LEAF)
        return max64(0, min64(end - p.off, p.n->size));
    if (p.n->kind == SHAPE_REP)
        return position_rep(p, end);
    for (int64_t i = 0; i < p.n->items; i++) {
        struct placed item = {p.off + p.n->item[i].off, p.n->item[i].n};
        if (item.off + item.n->hi > end)
            return p.n->before[i] + shape_position(item, end);
    }
    return p.n->size;
}
