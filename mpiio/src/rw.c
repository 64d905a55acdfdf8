/* Reads and writes: by explicit offsets, by the individual and by the shared pointer; blocking,
 * nonblocking, collective and split. All of them make a struct io of their arguments (begin), which
 * io.c or collective.c carries out. */
#include "internal.h"
#include "pass.h"

#include <stdlib.h>

enum where { AT_OFFSET, AT_POINTER, AT_SHARED, AT_ORDERED };

struct call {
    bool write, all;
    enum where where;
    MPI_Offset offset;
    void *buf;
    int64_t count;
    MPI_Datatype type;
};

void status_set(MPI_Status *status, int64_t bytes) {
    if (status == MPI_STATUS_IGNORE)
        return;
    PMPI_Status_set_elements_x(status, MPI_BYTE, bytes);
    PMPI_Status_set_cancelled(status, 0);
}

static int allowed(const struct file *f, const struct call *c) {
    if (c->write && (f->amode & MPI_MODE_RDONLY))
        return MPI_ERR_READ_ONLY;
    if (!c->write && (f->amode & MPI_MODE_WRONLY))
        return MPI_ERR_ACCESS;
    bool sequential = f->amode & MPI_MODE_SEQUENTIAL;
    if (sequential && (c->where == AT_OFFSET || c->where == AT_POINTER))
        return MPI_ERR_UNSUPPORTED_OPERATION;
    if (c->where == AT_OFFSET && c->offset < 0)
        return MPI_ERR_ARG;
    return MPI_SUCCESS;
}

/* Each rank's place behind those of lower ranks; the last one moves the pointer for all. A rank
 * whose arguments are wrong takes part with nothing. */
static int order(struct file *f, int64_t len, int64_t *pos) {
    int64_t end = 0, base = 0;
    int rc = PMPI_Scan(&len, &end, 1, MPI_INT64_T, MPI_SUM, f->comm);
    if (rc == MPI_SUCCESS && f->rank == f->ranks - 1)
        rc = shared_add(f, end, &base);
    int again = PMPI_Bcast(&base, 1, MPI_INT64_T, f->ranks - 1, f->comm);
    *pos = base + end - len;
    return rc == MPI_SUCCESS ? again : rc;
}

static int place(struct file *f, const struct call *c, struct io *io) {
    switch (c->where) {
    case AT_OFFSET:
        if (__builtin_mul_overflow((int64_t)c->offset, io->view->etype_size, &io->pos))
            return MPI_ERR_ARG;
        break;
    case AT_POINTER:
        pthread_mutex_lock(&f->mu);
        io->pos = f->position;
        if (__builtin_add_overflow(io->pos, io->len, &f->position))
            f->position = INT64_MAX;
        pthread_mutex_unlock(&f->mu);
        break;
    case AT_SHARED: return shared_add(f, io->len, &io->pos);
    case AT_ORDERED: break;
    }
    return MPI_SUCCESS;
}

/* Makes a request of the arguments. Where it fails io is empty: it has nothing to release. */
static int begin(struct file *f, const struct call *c, struct io *io) {
    *io = (struct io){.f = f, .write = c->write};
    int rc = allowed(f, c);
    if (rc == MPI_SUCCESS) {
        pthread_mutex_lock(&f->mu);
        struct view *v = view_ref(f->view);
        bool atomic = f->atomic;
        pthread_mutex_unlock(&f->mu);
        rc = io_prepare(io, f, c->write, v, c->buf, c->count, c->type);
        view_put(v);
        io->atomic = atomic;
    }
    if (c->where == AT_ORDERED) {
        int ordered = order(f, rc == MPI_SUCCESS ? io->len : 0, &io->pos);
        rc = rc == MPI_SUCCESS ? ordered : rc;
    } else if (rc == MPI_SUCCESS) {
        rc = place(f, c, io);
    }
    /* Behind the last offset there is nothing to read, and no room to write; behind a tile that the
     * next one would overlap there is neither. */
    if (rc == MPI_SUCCESS && io->len > 0) {
        int64_t left = placed_size(io->view->shape) - io->pos;
        left = left < 0 ? 0 : left;
        if (left < io->len && io->view->shape.n && (c->write || io->view->once))
            rc = MPI_ERR_ARG;
        else if (left < io->len)
            io->len = left;
    }
    if (rc != MPI_SUCCESS) {
        io_release(io);
        io->len = 0;
    }
    return rc;
}

/* After a short read by the individual pointer it is behind what was read, if nobody has moved it.
 */
static void settle(struct file *f, const struct call *c, const struct io *io, int64_t wanted) {
    if (c->where != AT_POINTER || io->done == wanted)
        return;
    pthread_mutex_lock(&f->mu);
    if (f->position == io->pos + wanted)
        f->position = io->pos + io->done;
    pthread_mutex_unlock(&f->mu);
}

/* Collective calls may exchange data: then every rank takes part, whatever its arguments are. */
static int carry_out(struct file *f, const struct call *c, struct io *io, int rc) {
    if (c->all && collective_wanted(f, c->write))
        return collective_run(io, rc);
    if (rc != MPI_SUCCESS)
        return rc;
    io_run(io);
    return class_of(io->err, c->write ? "write" : "read", f->path);
}

static int blocking(struct file *f, const struct call *c, MPI_Status *status) {
    struct io io;
    int rc = begin(f, c, &io);
    int64_t wanted = io.len;
    rc = carry_out(f, c, &io, rc);
    settle(f, c, &io, wanted);
    status_set(status, io.done);
    io_release(&io);
    return fail(f, rc);
}

static int nonblocking(struct file *f, const struct call *c, MPI_Request *request) {
    struct io io;
    int rc = begin(f, c, &io);
    if (rc == MPI_SUCCESS)
        rc = job_request(&io, request);
    return fail(f, rc);
}

/* ---- split collectives ---- */

static int split_begin(struct file *f, const struct call *c) {
    struct io io;
    if (f->split.active)
        return fail(f, MPI_ERR_OTHER);
    struct split s = {.active = true, .write = c->write, .buf = c->buf};
    int rc = begin(f, c, &io);
    if (c->all && collective_wanted(f, c->write)) {
        s.rc = collective_run(&io, rc);
        s.bytes = io.done;
        io_release(&io);
    } else if (rc == MPI_SUCCESS) {
        rc = job_start(&io, &s.job);
    }
    if (rc == MPI_SUCCESS)
        f->split = s;
    return fail(f, rc);
}

static int split_end(struct file *f, bool write, const void *buf, MPI_Status *status) {
    struct split s = f->split;
    if (!s.active || s.write != write || s.buf != buf)
        return fail(f, MPI_ERR_OTHER);
    f->split = (struct split){0};
    if (s.job) {
        job_wait(s.job);
        struct io *io = job_io(s.job);
        s.bytes = io->done;
        s.rc = class_of(io->err, write ? "write" : "read", f->path);
        job_free(s.job);
    }
    status_set(status, s.bytes);
    return fail(f, s.rc);
}

/* ---- MPI's functions ---- */

#define CALL(WRITE, ALL, WHERE, OFFSET)                                                            \
    { WRITE, ALL, WHERE, OFFSET, (void *)buf, count, type }

#define AT(name, DATA, COUNT, RESULT, result, how, WRITE, ALL)                                     \
    int name(MPI_File fh, MPI_Offset offset, DATA buf, COUNT count, MPI_Datatype type,             \
             RESULT *result) {                                                                     \
        struct file *f = file_of(fh);                                                              \
        if (!f)                                                                                    \
            return NEXT(name)(fh, offset, buf, count, type, result);                               \
        struct call c = CALL(WRITE, ALL, AT_OFFSET, offset);                                       \
        return how(f, &c, result);                                                                 \
    }                                                                                              \
    EXPORT(name)

#define BY(name, DATA, COUNT, RESULT, result, how, WRITE, ALL, WHERE)                              \
    int name(MPI_File fh, DATA buf, COUNT count, MPI_Datatype type, RESULT *result) {              \
        struct file *f = file_of(fh);                                                              \
        if (!f)                                                                                    \
            return NEXT(name)(fh, buf, count, type, result);                                       \
        struct call c = CALL(WRITE, ALL, WHERE, 0);                                                \
        return how(f, &c, result);                                                                 \
    }                                                                                              \
    EXPORT(name)

#define BEGIN(name, DATA, COUNT, WRITE, WHERE)                                                     \
    int name(MPI_File fh, DATA buf, COUNT count, MPI_Datatype type) {                              \
        struct file *f = file_of(fh);                                                              \
        if (!f)                                                                                    \
            return NEXT(name)(fh, buf, count, type);                                               \
        struct call c = CALL(WRITE, true, WHERE, 0);                                               \
        return split_begin(f, &c);                                                                 \
    }                                                                                              \
    EXPORT(name)

#define AT_BEGIN(name, DATA, COUNT, WRITE)                                                         \
    int name(MPI_File fh, MPI_Offset offset, DATA buf, COUNT count, MPI_Datatype type) {           \
        struct file *f = file_of(fh);                                                              \
        if (!f)                                                                                    \
            return NEXT(name)(fh, offset, buf, count, type);                                       \
        struct call c = CALL(WRITE, true, AT_OFFSET, offset);                                      \
        return split_begin(f, &c);                                                                 \
    }                                                                                              \
    EXPORT(name)

#define END(name, DATA, WRITE)                                                                     \
    int name(MPI_File fh, DATA buf, MPI_Status *status) {                                          \
        struct file *f = file_of(fh);                                                              \
        return f ? split_end(f, WRITE, buf, status) : NEXT(name)(fh, buf, status);                 \
    }                                                                                              \
    EXPORT(name)

#define FUNCTIONS(C, COUNT)                                                                        \
    AT(MPI_File_read_at##C, void *, COUNT, MPI_Status, st, blocking, false, false);                \
    AT(MPI_File_write_at##C, const void *, COUNT, MPI_Status, st, blocking, true, false);          \
    AT(MPI_File_read_at_all##C, void *, COUNT, MPI_Status, st, blocking, false, true);             \
    AT(MPI_File_write_at_all##C, const void *, COUNT, MPI_Status, st, blocking, true, true);       \
    AT(MPI_File_iread_at##C, void *, COUNT, MPI_Request, rq, nonblocking, false, false);           \
    AT(MPI_File_iwrite_at##C, const void *, COUNT, MPI_Request, rq, nonblocking, true, false);     \
    AT(MPI_File_iread_at_all##C, void *, COUNT, MPI_Request, rq, nonblocking, false, true);        \
    AT(MPI_File_iwrite_at_all##C, const void *, COUNT, MPI_Request, rq, nonblocking, true, true);  \
    BY(MPI_File_read##C, void *, COUNT, MPI_Status, st, blocking, false, false, AT_POINTER);       \
    BY(MPI_File_write##C, const void *, COUNT, MPI_Status, st, blocking, true, false, AT_POINTER); \
    BY(MPI_File_read_all##C, void *, COUNT, MPI_Status, st, blocking, false, true, AT_POINTER);    \
    BY(MPI_File_write_all##C, const void *, COUNT, MPI_Status, st, blocking, true, true,           \
       AT_POINTER);                                                                                \
    BY(MPI_File_iread##C, void *, COUNT, MPI_Request, rq, nonblocking, false, false, AT_POINTER);  \
    BY(MPI_File_iwrite##C, const void *, COUNT, MPI_Request, rq, nonblocking, true, false,         \
       AT_POINTER);                                                                                \
    BY(MPI_File_iread_all##C, void *, COUNT, MPI_Request, rq, nonblocking, false, true,            \
       AT_POINTER);                                                                                \
    BY(MPI_File_iwrite_all##C, const void *, COUNT, MPI_Request, rq, nonblocking, true, true,      \
       AT_POINTER);                                                                                \
    BY(MPI_File_read_shared##C, void *, COUNT, MPI_Status, st, blocking, false, false, AT_SHARED); \
    BY(MPI_File_write_shared##C, const void *, COUNT, MPI_Status, st, blocking, true, false,       \
       AT_SHARED);                                                                                 \
    BY(MPI_File_iread_shared##C, void *, COUNT, MPI_Request, rq, nonblocking, false, false,        \
       AT_SHARED);                                                                                 \
    BY(MPI_File_iwrite_shared##C, const void *, COUNT, MPI_Request, rq, nonblocking, true, false,  \
       AT_SHARED);                                                                                 \
    BY(MPI_File_read_ordered##C, void *, COUNT, MPI_Status, st, blocking, false, true,             \
       AT_ORDERED);                                                                                \
    BY(MPI_File_write_ordered##C, const void *, COUNT, MPI_Status, st, blocking, true, true,       \
       AT_ORDERED);                                                                                \
    AT_BEGIN(MPI_File_read_at_all_begin##C, void *, COUNT, false);                                 \
    AT_BEGIN(MPI_File_write_at_all_begin##C, const void *, COUNT, true);                           \
    BEGIN(MPI_File_read_all_begin##C, void *, COUNT, false, AT_POINTER);                           \
    BEGIN(MPI_File_write_all_begin##C, const void *, COUNT, true, AT_POINTER);                     \
    BEGIN(MPI_File_read_ordered_begin##C, void *, COUNT, false, AT_ORDERED);                       \
    BEGIN(MPI_File_write_ordered_begin##C, const void *, COUNT, true, AT_ORDERED)

FUNCTIONS(, int);
#ifdef MPICH
FUNCTIONS(_c, MPI_Count); /* MPI 4 */
#endif

END(MPI_File_read_at_all_end, void *, false);
END(MPI_File_write_at_all_end, const void *, true);
END(MPI_File_read_all_end, void *, false);
END(MPI_File_write_all_end, const void *, true);
END(MPI_File_read_ordered_end, void *, false);
END(MPI_File_write_ordered_end, const void *, true);
