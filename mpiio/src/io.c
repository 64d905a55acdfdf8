/* The way of the data: a stretch of a view's stream and the memory for it become requests of the
 * client, each with both sides as a list or a nested vector. Nothing in here calls MPI, so that any
 * thread can do it. */
#include "batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Memory whose pieces do not fit one list, or are smaller than this on average, is copied through a
 * buffer: the description of a piece is 16 bytes, and each costs time at both ends. */
enum { PACK_BELOW = 64, PACK_BYTES = 8 << 20 };

struct copy {
    char *base, *packed;
    bool pack;
};

/* Copies a run, whose innermost dimension is the loop that matters. */
static void copy_dims(struct copy *c, const struct run *r, int dim, int64_t off) {
    if (dim == r->dims) {
        if (c->pack)
            memcpy(c->packed, c->base + off, (size_t)r->block);
        else
            memcpy(c->base + off, c->packed, (size_t)r->block);
        c->packed += r->block;
        return;
    }
    for (int64_t i = 0; i < r->count[dim]; i++)
        copy_dims(c, r, dim + 1, off + i * r->stride[dim]);
}

static int64_t copy_run(void *ctx, const struct run *r) {
    copy_dims(ctx, r, 0, r->off);
    return run_bytes(r);
}

void io_copy(const struct io *io, int64_t pos, int64_t len, char *packed, bool pack) {
    struct copy c = {io->base, packed, pack};
    shape_walk(io->mem, pos, len, copy_run, &c);
}

static ssize_t request(const struct io *io, void *base, struct sluice_access mem,
                       struct sluice_access file) {
    struct sluice_memory memory = {base, mem};
    errno = 0;
    if (io->write)
        return sluice.write_list(io->f->handle, &memory, &file, NULL);
    return sluice.read_list(io->f->handle, &memory, &file, NULL);
}

static ssize_t contiguous(const struct io *io, void *base, int64_t off, int64_t len) {
    errno = 0;
    if (io->write)
        return sluice.pwrite(io->f->handle, base, (size_t)len, off);
    return sluice.pread(io->f->handle, base, (size_t)len, off);
}

static ssize_t send_batch(const struct io *io, void *base, struct sluice_access mem,
                          struct batch *file) {
    bool line = mem.kind == SLUICE_VECTOR && mem.count == 0;
    if (line && !file->list && file->run.dims == 0)
        return contiguous(io, (char *)base + mem.off, file->run.off, file->bytes);
    return request(io, base, mem, batch_access(file, 0));
}

static struct sluice_access line(int64_t len) {
    return (struct sluice_access){.kind = SLUICE_VECTOR, .block = len};
}

/* The file's buffer, which servers of this host reach by themselves, or, where another thread has
 * it, one of our own. */
static char *pack_buffer(struct file *f, bool *shared) {
    *shared = pthread_mutex_trylock(&f->pack_turn) == 0;
    if (!*shared)
        return malloc(PACK_BYTES);
    sluice_fs *fs;
    if (!f->pack && backend_connect(&fs) == 0)
        f->pack = sluice.alloc(fs, PACK_BYTES);
    if (!f->pack)
        pthread_mutex_unlock(&f->pack_turn);
    return f->pack;
}

static void pack_done(struct file *f, char *buf, bool shared) {
    if (shared)
        pthread_mutex_unlock(&f->pack_turn);
    else
        free(buf);
}

/* Through a buffer. */
static ssize_t packed(const struct io *io, struct batch *file) {
    bool shared;
    int64_t want = file->bytes;
    if (want > PACK_BYTES)
        want = batch_fill(file, io->view->shape, io->pos + io->done, PACK_BYTES);
    char *buf = want > 0 ? pack_buffer(io->f, &shared) : NULL;
    if (!buf) {
        errno = ENOMEM;
        return -1;
    }
    if (io->write)
        io_copy(io, io->done, want, buf, true);
    ssize_t n = send_batch(io, buf, line(want), file);
    int err = errno;
    if (!io->write && n > 0)
        io_copy(io, io->done, n, buf, false);
    pack_done(io->f, buf, shared);
    errno = err;
    return n;
}

/* A read into the same memory twice, which MPI forbids and programs do (ior with its strided type):
 * the last one stays, as with a copy. */
static bool twice(const struct io *io) {
    return !io->write && io->mem.n->ordered && io->mem.n->overlaps;
}

/* One request: as much as its description can carry. */
static ssize_t step(const struct io *io, struct batch *file, struct batch *mem) {
    int64_t want = batch_fill(file, io->view->shape, io->pos + io->done, io->len - io->done);
    if (want < 0) {
        errno = ENOMEM;
        return -1;
    }
    if (want == 0)
        return 0;
    if (io->mem.n->kind == SHAPE_LEAF)
        return send_batch(io, io->base + io->mem.off + io->done, line(want), file);
    int64_t got = batch_fill(mem, io->mem, io->done, want);
    if (got != want || want / batch_pieces(mem) < PACK_BELOW || twice(io))
        return packed(io, file);
    int64_t lo = batch_lowest(mem);
    return send_batch(io, io->base + lo, batch_access(mem, lo), file);
}

static void run_plain(struct io *io) {
    struct batch file = {0}, mem = {0};
    while (io->done < io->len) {
        ssize_t n = step(io, &file, &mem);
        if (n < 0) {
            io->err = errno ? errno : EIO;
            break;
        }
        io->done += n;
        /* Less than a batch: the end of the file, or a quota. */
        if (n < file.bytes || n == 0) {
            if (io->write && io->done < io->len)
                io->err = EDQUOT;
            break;
        }
    }
    batch_free(&file);
    batch_free(&mem);
}

struct span {
    int64_t lo, hi;
};

static int64_t widen(void *ctx, const struct run *r) {
    struct span *s = ctx;
    int64_t end = r->off + r->block;
    for (int i = 0; i < r->dims; i++)
        end += (r->count[i] - 1) * r->stride[i];
    s->lo = r->off < s->lo ? r->off : s->lo;
    s->hi = end > s->hi ? end : s->hi;
    return run_bytes(r);
}

/* The offsets that a request lies between. Views are ordered: its first and last byte tell. */
static struct span span_of(const struct io *io) {
    struct span s = {INT64_MAX, 0};
    shape_walk(io->view->shape, io->pos, 1, widen, &s);
    shape_walk(io->view->shape, io->pos + io->len - 1, 1, widen, &s);
    return s;
}

/* Atomic mode: all that a request touches is locked at the cluster, for all ranks wherever they
 * are. The lock's owner is the handle, so that this process's threads take turns. */
static void run_atomic(struct io *io) {
    struct span s = span_of(io);
    int how = io->write ? SLUICE_LOCK_EXCLUSIVE : SLUICE_LOCK_SHARED;
    pthread_mutex_lock(&io->f->atomic_turn);
    errno = 0;
    if (sluice.lock(io->f->handle, s.lo, s.hi - s.lo, how) != 0) {
        io->err = errno ? errno : EIO;
    } else {
        run_plain(io);
        if (sluice.unlock(io->f->handle, s.lo, s.hi - s.lo) != 0 && !io->err)
            io->err = errno ? errno : EIO;
    }
    pthread_mutex_unlock(&io->f->atomic_turn);
}

void io_run(struct io *io) {
    if (io->len <= 0)
        return;
    if (io->atomic)
        run_atomic(io);
    else
        run_plain(io);
}

static int memory_shape(struct io *io, int64_t count) {
    const struct flat *t = io->flat;
    int64_t size;
    if (__builtin_mul_overflow(count, t->size, &size))
        return MPI_ERR_COUNT;
    io->len = size;
    if (size == 0)
        return MPI_SUCCESS;
    if (placed_contiguous(t->shape) && (count == 1 || t->extent == t->size)) {
        io->leaf = (struct shape){
            .kind = SHAPE_LEAF, .ordered = true, .size = size, .hi = size, .pieces = 1};
        io->mem = (struct placed){t->shape.off, &io->leaf};
        return MPI_SUCCESS;
    }
    return shape_rep(&io->arena, count, t->extent, t->shape, &io->mem) ? MPI_SUCCESS : MPI_ERR_TYPE;
}

int io_prepare(struct io *io, struct file *f, bool write, struct view *v, void *buf, int64_t count,
               MPI_Datatype type) {
    *io = (struct io){.f = f, .write = write, .base = buf};
    if (count < 0)
        return MPI_ERR_COUNT;
    int rc = flat_get(type, &io->flat);
    if (rc != MPI_SUCCESS)
        return MPI_ERR_TYPE;
    io->view = view_ref(v);
    rc = memory_shape(io, count);
    if (rc == MPI_SUCCESS && io->len % v->etype_size != 0)
        rc = MPI_ERR_IO; /* not a whole number of etypes */
    if (rc != MPI_SUCCESS)
        io_release(io);
    return rc;
}

void io_release(struct io *io) {
    view_put(io->view);
    flat_put(io->flat);
    arena_free(&io->arena);
    io->view = NULL;
    io->flat = NULL;
    io->mem = (struct placed){0, NULL};
}
