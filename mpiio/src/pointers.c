/* Views and pointers of a file: set_view, seek, positions. */
#include "internal.h"
#include "pass.h"

#include <errno.h>
#include <string.h>

static int set_view(struct file *f, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                    const char *datarep, MPI_Info info) {
    struct view *v = NULL, *old;
    int rc = MPI_SUCCESS;
    int64_t end = 0;
    if (disp == MPI_DISPLACEMENT_CURRENT) {
        if (f->amode & MPI_MODE_SEQUENTIAL)
            rc = shared_byte(f, &end);
        else
            rc = MPI_ERR_ARG;
        disp = end;
    }
    jobs_wait(f);
    if (rc == MPI_SUCCESS)
        rc = view_new(disp, etype, filetype, datarep, !(f->amode & MPI_MODE_RDONLY), &v);
    rc = agree(f, rc); /* nobody has the new view if somebody cannot */
    if (rc != MPI_SUCCESS) {
        view_put(v);
        return rc;
    }
    file_set_hints(f, info);
    pthread_mutex_lock(&f->mu);
    old = f->view;
    f->view = v;
    f->position = 0;
    pthread_mutex_unlock(&f->mu);
    view_put(old);
    if (f->rank == 0)
        rc = shared_set(f, 0);
    return collective_view(f, rc);
}

int MPI_File_set_view(MPI_File fh, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype,
                      const char *datarep, MPI_Info info) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_set_view)(fh, disp, etype, filetype, datarep, info);
    return fail(f, set_view(f, disp, etype, filetype, datarep, info));
}
EXPORT(MPI_File_set_view);

int MPI_File_get_view(MPI_File fh, MPI_Offset *disp, MPI_Datatype *etype, MPI_Datatype *filetype,
                      char *datarep) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_get_view)(fh, disp, etype, filetype, datarep);
    struct view *v = f->view;
    *disp = v->disp;
    strcpy(datarep, v->datarep);
    int rc = type_keep(v->etype, etype);
    return fail(f, rc == MPI_SUCCESS ? type_keep(v->filetype, filetype) : rc);
}
EXPORT(MPI_File_get_view);

/* The file's end as a position of the view's stream, in whole etypes: the first that is behind it.
 */
static int end_position(struct file *f, const struct view *v, int64_t *out) {
    struct sluice_stat st;
    errno = 0;
    if (sluice.fstat(f->handle, &st) != 0)
        return class_of(errno ? errno : EIO, "stat", f->path);
    int64_t n = shape_position(v->shape, st.size), e = v->etype_size;
    *out = n / e * e + (n % e ? e : 0);
    return MPI_SUCCESS;
}

/* Where a seek goes, in bytes of the stream. */
static int target(struct file *f, MPI_Offset offset, int whence, int64_t now, int64_t *out) {
    int64_t base = 0;
    int rc = MPI_SUCCESS;
    if (whence == MPI_SEEK_CUR)
        base = now;
    else if (whence == MPI_SEEK_END)
        rc = end_position(f, f->view, &base);
    else if (whence != MPI_SEEK_SET)
        return MPI_ERR_ARG;
    if (rc != MPI_SUCCESS)
        return rc;
    if (__builtin_mul_overflow((int64_t)offset, f->view->etype_size, out) ||
        __builtin_add_overflow(*out, base, out) || *out < 0)
        return MPI_ERR_ARG;
    return MPI_SUCCESS;
}

int MPI_File_seek(MPI_File fh, MPI_Offset offset, int whence) {
    struct file *f = file_of(fh);
    int64_t to;
    if (!f)
        return NEXT(MPI_File_seek)(fh, offset, whence);
    if (f->amode & MPI_MODE_SEQUENTIAL)
        return fail(f, MPI_ERR_UNSUPPORTED_OPERATION);
    int rc = target(f, offset, whence, f->position, &to);
    if (rc == MPI_SUCCESS) {
        pthread_mutex_lock(&f->mu);
        f->position = to;
        pthread_mutex_unlock(&f->mu);
    }
    return fail(f, rc);
}
EXPORT(MPI_File_seek);

int MPI_File_get_position(MPI_File fh, MPI_Offset *offset) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_get_position)(fh, offset);
    if (f->amode & MPI_MODE_SEQUENTIAL)
        return fail(f, MPI_ERR_UNSUPPORTED_OPERATION);
    pthread_mutex_lock(&f->mu);
    *offset = f->position / f->view->etype_size;
    pthread_mutex_unlock(&f->mu);
    return MPI_SUCCESS;
}
EXPORT(MPI_File_get_position);

static int64_t note_offset(void *ctx, const struct run *r) {
    *(int64_t *)ctx = r->off;
    return run_bytes(r);
}

/* The byte of the file at a position of the stream. */
static int byte_at(const struct view *v, int64_t pos, int64_t *out) {
    if (pos < 0 || shape_walk(v->shape, pos, 1, note_offset, out) != 1)
        return MPI_ERR_ARG;
    return MPI_SUCCESS;
}

int shared_byte(struct file *f, int64_t *out) {
    int64_t pos;
    int rc = shared_add(f, 0, &pos);
    return rc == MPI_SUCCESS ? byte_at(f->view, pos, out) : rc;
}

int MPI_File_get_byte_offset(MPI_File fh, MPI_Offset offset, MPI_Offset *disp) {
    struct file *f = file_of(fh);
    int64_t pos, off = 0;
    if (!f)
        return NEXT(MPI_File_get_byte_offset)(fh, offset, disp);
    if (f->amode & MPI_MODE_SEQUENTIAL)
        return fail(f, MPI_ERR_UNSUPPORTED_OPERATION);
    if (__builtin_mul_overflow((int64_t)offset, f->view->etype_size, &pos))
        return fail(f, MPI_ERR_ARG);
    int rc = byte_at(f->view, pos, &off);
    *disp = off;
    return fail(f, rc);
}
EXPORT(MPI_File_get_byte_offset);

int MPI_File_seek_shared(MPI_File fh, MPI_Offset offset, int whence) {
    struct file *f = file_of(fh);
    int64_t now = 0, to, most[2];
    if (!f)
        return NEXT(MPI_File_seek_shared)(fh, offset, whence);
    if (f->amode & MPI_MODE_SEQUENTIAL)
        return fail(f, MPI_ERR_UNSUPPORTED_OPERATION);
    int64_t both[2] = {offset, -offset};
    int rc = PMPI_Allreduce(both, most, 2, MPI_INT64_T, MPI_MAX, f->comm);
    if (rc == MPI_SUCCESS && most[0] != -most[1])
        rc = MPI_ERR_NOT_SAME;
    if (rc == MPI_SUCCESS && f->rank == 0) {
        rc = shared_add(f, 0, &now);
        if (rc == MPI_SUCCESS)
            rc = target(f, offset, whence, now, &to);
        if (rc == MPI_SUCCESS)
            rc = shared_set(f, to);
    }
    return fail(f, agree(f, rc));
}
EXPORT(MPI_File_seek_shared);

int MPI_File_get_position_shared(MPI_File fh, MPI_Offset *offset) {
    struct file *f = file_of(fh);
    int64_t pos = 0;
    if (!f)
        return NEXT(MPI_File_get_position_shared)(fh, offset);
    if (f->amode & MPI_MODE_SEQUENTIAL)
        return fail(f, MPI_ERR_UNSUPPORTED_OPERATION);
    int rc = shared_add(f, 0, &pos);
    *offset = pos / f->view->etype_size;
    return fail(f, rc);
}
EXPORT(MPI_File_get_position_shared);
