/* Files: which handles are ours, opening and closing them, their sizes and attributes. */
#include "internal.h"
#include "pass.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static const char name_prefix[] = "sluice:";

enum { STRIPING_FACTOR_MAX = 256 }; /* servers of a file; more are all that there are */

/* ---- which handles are ours ---- */

/* The handles that we gave out. An MPI_File that is not in here is never followed, so that those of
 * the MPI itself, and wrong ones, go on to it. */
static pthread_rwlock_t registry_mu = PTHREAD_RWLOCK_INITIALIZER;
static struct file **registry;
static int registry_size;

struct file *file_of(MPI_File fh) {
    struct file *f = NULL;
    pthread_rwlock_rdlock(&registry_mu);
    for (int i = 0; i < registry_size && !f; i++)
        if (registry[i] && (void *)registry[i] == (void *)fh)
            f = registry[i];
    pthread_rwlock_unlock(&registry_mu);
    return f;
}

static int enter(struct file *f) {
    int rc = MPI_SUCCESS, i = 0;
    pthread_rwlock_wrlock(&registry_mu);
    while (i < registry_size && registry[i])
        i++;
    if (i == registry_size) {
        int size = registry_size ? 2 * registry_size : 16;
        struct file **r = realloc(registry, (size_t)size * sizeof *r);
        if (r) {
            memset(r + registry_size, 0, (size_t)(size - registry_size) * sizeof *r);
            registry = r;
            registry_size = size;
        } else {
            rc = MPI_ERR_NO_MEM;
        }
    }
    if (rc == MPI_SUCCESS) {
        f->index = i;
        registry[i] = f;
    }
    pthread_rwlock_unlock(&registry_mu);
    return rc;
}

static void leave(struct file *f) {
    pthread_rwlock_wrlock(&registry_mu);
    registry[f->index] = NULL;
    pthread_rwlock_unlock(&registry_mu);
}

/* Fortran's handles are integers. Those of both MPIs are small, so ours begin far from them. */
enum { FORTRAN_BASE = 0x51000000, FORTRAN_MAX = 1 << 20 };

MPI_Fint MPI_File_c2f(MPI_File fh) {
    struct file *f = file_of(fh);
    return f ? FORTRAN_BASE + f->index : NEXT(MPI_File_c2f)(fh);
}
EXPORT(MPI_File_c2f);

MPI_File MPI_File_f2c(MPI_Fint n) {
    struct file *f = NULL;
    if (n < FORTRAN_BASE || n >= FORTRAN_BASE + FORTRAN_MAX)
        return NEXT(MPI_File_f2c)(n);
    pthread_rwlock_rdlock(&registry_mu);
    if (n - FORTRAN_BASE < registry_size)
        f = registry[n - FORTRAN_BASE];
    pthread_rwlock_unlock(&registry_mu);
    return f ? (MPI_File)f : MPI_FILE_NULL;
}
EXPORT(MPI_File_f2c);

/* ---- open and close ---- */

static const char *our_path(const char *name) {
    size_t n = sizeof name_prefix - 1;
    return name && strncmp(name, name_prefix, n) == 0 ? name + n : NULL;
}

static int check_amode(int amode) {
    int access = amode & (MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR);
    if (access != MPI_MODE_RDONLY && access != MPI_MODE_WRONLY && access != MPI_MODE_RDWR)
        return MPI_ERR_AMODE;
    if (access == MPI_MODE_RDONLY && (amode & (MPI_MODE_CREATE | MPI_MODE_EXCL)))
        return MPI_ERR_AMODE;
    if (access == MPI_MODE_RDWR && (amode & MPI_MODE_SEQUENTIAL))
        return MPI_ERR_AMODE;
    return MPI_SUCCESS;
}

static int posix_flags(const struct file *f, bool create) {
    int flags = f->amode & MPI_MODE_RDONLY   ? O_RDONLY
                : f->amode & MPI_MODE_WRONLY ? O_WRONLY
                                             : O_RDWR;
    if (create && (f->amode & MPI_MODE_CREATE))
        flags |= O_CREAT | (f->amode & MPI_MODE_EXCL ? O_EXCL : 0);
    return flags | (f->hints.direct ? O_DIRECT : 0);
}

/* What hints say of a layout, over what the file has. */
static void wish(const struct hints *h, struct sluice_layout *l) {
    if (h->striping_factor)
        l->width = h->striping_factor < 0 || h->striping_factor > STRIPING_FACTOR_MAX
                       ? SLUICE_WIDTH_ALL
                       : (uint32_t)h->striping_factor;
    if (h->striping_unit) /* or the next smaller power of two */
        l->unit = (uint64_t)1 << (63 - __builtin_clzll((uint64_t)h->striping_unit));
    if (*h->pool)
        memcpy(l->pool, h->pool, sizeof l->pool);
}

/* Hints are wishes, so that they come behind the creation and never fail it: a file that asks for
 * more servers than there are has all of them, one whose pool nobody has made lies in that of its
 * directory, and one that has data keeps its layout. */
static void stripe(struct file *f, sluice_fs *fs) {
    struct sluice_layout has = {.size = sizeof has}, l;
    if (sluice.flayout(f->handle, &has) != 0)
        return;
    l = has;
    wish(&f->hints, &l);
    errno = 0;
    if (memcmp(&l, &has, sizeof l) == 0 || sluice.set_layout(fs, f->path, &l) == 0 ||
        errno == ENOTEMPTY)
        return;
    class_of(errno, "hints for", f->path); /* tells the story, if somebody wants it */
    if (*f->hints.pool) {
        memcpy(l.pool, has.pool, sizeof l.pool);
        sluice.set_layout(fs, f->path, &l);
    }
}

static int open_handle(struct file *f, bool create) {
    sluice_fs *fs;
    int err = backend_connect(&fs);
    if (err)
        return class_of(err, "connect", f->path);
    errno = 0;
    f->handle = sluice.open(fs, f->path, posix_flags(f, create), 0666);
    if (!f->handle)
        return class_of(errno ? errno : EIO, "open", f->path);
    if (create && (f->amode & MPI_MODE_CREATE))
        stripe(f, fs);
    return MPI_SUCCESS;
}

/* What the file has, for MPI_File_get_info and for collective buffering. */
static void learn_layout(struct file *f) {
    struct sluice_layout l = {.size = sizeof l};
    if (sluice.flayout(f->handle, &l) != 0)
        return;
    f->hints.striping_factor = l.width;
    f->hints.striping_unit = (int64_t)l.unit;
    memcpy(f->hints.pool, l.pool, sizeof f->hints.pool);
    if (f->hints.cb_nodes == 0)
        f->hints.cb_nodes = f->ranks < (int)l.width ? f->ranks : (int)l.width;
}

/* The worst of what the ranks say, for all of them. */
int agree(struct file *f, int class) {
    int worst = class, rc = PMPI_Allreduce(&class, &worst, 1, MPI_INT, MPI_MAX, f->comm);
    return rc == MPI_SUCCESS ? worst : class != MPI_SUCCESS ? class : MPI_ERR_OTHER;
}

/* Rank 0 makes the file; the others open what is there then. */
static int open_together(struct file *f) {
    int both[2] = {f->amode, -f->amode}, most[2], rc;
    rc = PMPI_Allreduce(both, most, 2, MPI_INT, MPI_MAX, f->comm);
    if (rc != MPI_SUCCESS)
        return rc;
    if (most[0] != -most[1])
        return MPI_ERR_NOT_SAME;
    rc = f->rank == 0 ? open_handle(f, true) : MPI_SUCCESS;
    int first = rc;
    if (PMPI_Bcast(&first, 1, MPI_INT, 0, f->comm) != MPI_SUCCESS)
        return MPI_ERR_OTHER;
    if (first != MPI_SUCCESS)
        return first;
    if (f->rank != 0)
        rc = open_handle(f, false);
    return agree(f, rc);
}

static int file_size(struct file *f, int64_t *size) {
    struct sluice_stat st;
    errno = 0;
    if (sluice.fstat(f->handle, &st) != 0)
        return class_of(errno ? errno : EIO, "stat", f->path);
    *size = st.size;
    return MPI_SUCCESS;
}

static void discard(struct file *f) {
    shared_close(f);
    if (f->handle)
        sluice.close(f->handle);
    view_put(f->view);
    if (f->comm != MPI_COMM_NULL)
        PMPI_Comm_free(&f->comm);
    if (f->pack)
        sluice.free(f->pack);
    pthread_mutex_destroy(&f->mu);
    pthread_mutex_destroy(&f->atomic_turn);
    pthread_mutex_destroy(&f->pack_turn);
    free(f->path);
    free(f);
}

static struct file *file_new(const char *path, int amode, MPI_Info info) {
    struct file *f = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(path))) {
        free(f);
        return NULL;
    }
    f->amode = amode;
    f->comm = MPI_COMM_NULL;
    pthread_mutex_init(&f->mu, NULL);
    pthread_mutex_init(&f->atomic_turn, NULL);
    pthread_mutex_init(&f->pack_turn, NULL);
    hints_default(&f->hints);
    hints_read(info, &f->hints);
    return f;
}

static int open_file(struct file *f, MPI_Comm comm) {
    int64_t end = 0;
    int rc = PMPI_Comm_dup(comm, &f->comm);
    if (rc != MPI_SUCCESS)
        return rc;
    /* A rank that died is an error of the call and not the end of the program. */
    PMPI_Comm_set_errhandler(f->comm, MPI_ERRORS_RETURN);
    PMPI_Comm_rank(f->comm, &f->rank);
    PMPI_Comm_size(f->comm, &f->ranks);
    rc = agree(f, view_new(0, MPI_BYTE, MPI_BYTE, "native", true, &f->view));
    if (rc == MPI_SUCCESS)
        rc = open_together(f);
    if (rc != MPI_SUCCESS)
        return rc;
    learn_layout(f);
    rc = shared_open(f);
    if (rc == MPI_SUCCESS && (f->amode & MPI_MODE_APPEND)) {
        rc = file_size(f, &end);
        f->position = end;
        if (rc == MPI_SUCCESS && f->rank == 0)
            rc = shared_set(f, end);
    }
    return collective_view(f, rc);
}

int MPI_File_open(MPI_Comm comm, const char *name, int amode, MPI_Info info, MPI_File *fh) {
    const char *path = our_path(name);
    if (!path)
        return NEXT(MPI_File_open)(comm, name, amode, info, fh);
    *fh = MPI_FILE_NULL;
    int rc = check_amode(amode);
    if (rc != MPI_SUCCESS)
        return fail(NULL, rc);
    struct file *f = file_new(path, amode, info);
    if (!f)
        return fail(NULL, MPI_ERR_NO_MEM);
    rc = open_file(f, comm);
    if (rc == MPI_SUCCESS)
        rc = enter(f);
    if (rc != MPI_SUCCESS) {
        discard(f);
        return fail(NULL, rc);
    }
    errhandler_open(f);
    *fh = (MPI_File)f;
    return MPI_SUCCESS;
}
EXPORT(MPI_File_open);

static int delete_path(const char *path) {
    sluice_fs *fs;
    int err = backend_connect(&fs);
    errno = 0;
    if (!err && sluice.unlink(fs, path) != 0)
        err = errno ? errno : EIO;
    return class_of(err, "delete", path);
}

int MPI_File_close(MPI_File *fh) {
    struct file *f = file_of(*fh);
    if (!f)
        return NEXT(MPI_File_close)(fh);
    if (f->split.active)
        return fail(f, MPI_ERR_OTHER);
    jobs_wait(f);
    errno = 0;
    int rc = sluice.close(f->handle) == 0 ? MPI_SUCCESS
                                          : class_of(errno ? errno : EIO, "close", f->path);
    f->handle = NULL;
    rc = agree(f, rc);
    if (f->amode & MPI_MODE_DELETE_ON_CLOSE) {
        int gone = f->rank == 0 ? delete_path(f->path) : MPI_SUCCESS;
        gone = agree(f, gone);
        rc = rc == MPI_SUCCESS ? gone : rc;
    }
    leave(f);
    *fh = MPI_FILE_NULL;
    if (rc != MPI_SUCCESS)
        fail(f, rc);
    errhandler_close(f);
    discard(f);
    return rc;
}
EXPORT(MPI_File_close);

int MPI_File_delete(const char *name, MPI_Info info) {
    const char *path = our_path(name);
    if (!path)
        return NEXT(MPI_File_delete)(name, info);
    return fail(NULL, delete_path(path));
}
EXPORT(MPI_File_delete);

/* ---- sizes ---- */

static int same(struct file *f, int64_t n) {
    int64_t both[2] = {n, -n}, most[2];
    if (PMPI_Allreduce(both, most, 2, MPI_INT64_T, MPI_MAX, f->comm) != MPI_SUCCESS)
        return MPI_ERR_OTHER;
    return most[0] == -most[1] ? MPI_SUCCESS : MPI_ERR_NOT_SAME;
}

/* Truncate, or reserve, at rank 0, and nobody goes on before it is done. */
static int resize(struct file *f, MPI_Offset size, bool reserve) {
    if (size < 0)
        return MPI_ERR_ARG;
    if (f->amode & MPI_MODE_RDONLY)
        return MPI_ERR_READ_ONLY;
    int rc = same(f, size);
    if (rc != MPI_SUCCESS)
        return rc;
    if (f->rank == 0) {
        errno = 0;
        int r = !reserve ? sluice.ftruncate(f->handle, size)
                : size   ? sluice.reserve(f->handle, 0, size)
                         : 0;
        rc = r == 0 ? MPI_SUCCESS : class_of(errno ? errno : EIO, "resize", f->path);
    }
    rc = agree(f, rc);
    /* A client hears of another one's truncation by and by, unless it asks. */
    int64_t now;
    int asked = file_size(f, &now);
    return rc == MPI_SUCCESS ? asked : rc;
}

int MPI_File_set_size(MPI_File fh, MPI_Offset size) {
    struct file *f = file_of(fh);
    return f ? fail(f, resize(f, size, false)) : NEXT(MPI_File_set_size)(fh, size);
}
EXPORT(MPI_File_set_size);

int MPI_File_preallocate(MPI_File fh, MPI_Offset size) {
    struct file *f = file_of(fh);
    return f ? fail(f, resize(f, size, true)) : NEXT(MPI_File_preallocate)(fh, size);
}
EXPORT(MPI_File_preallocate);

int MPI_File_get_size(MPI_File fh, MPI_Offset *size) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_get_size)(fh, size);
    int64_t n = 0;
    int rc = file_size(f, &n);
    *size = n;
    return fail(f, rc);
}
EXPORT(MPI_File_get_size);

int MPI_File_sync(MPI_File fh) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_sync)(fh);
    errno = 0;
    int rc =
        sluice.sync(f->handle) == 0 ? MPI_SUCCESS : class_of(errno ? errno : EIO, "sync", f->path);
    return fail(f, agree(f, rc));
}
EXPORT(MPI_File_sync);

/* ---- attributes ---- */

int MPI_File_get_group(MPI_File fh, MPI_Group *group) {
    struct file *f = file_of(fh);
    return f ? fail(f, PMPI_Comm_group(f->comm, group)) : NEXT(MPI_File_get_group)(fh, group);
}
EXPORT(MPI_File_get_group);

int MPI_File_get_amode(MPI_File fh, int *amode) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_get_amode)(fh, amode);
    *amode = f->amode;
    return MPI_SUCCESS;
}
EXPORT(MPI_File_get_amode);

int MPI_File_set_info(MPI_File fh, MPI_Info info) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_set_info)(fh, info);
    file_set_hints(f, info);
    return fail(f, collective_view(f, MPI_SUCCESS));
}
EXPORT(MPI_File_set_info);

/* Only what can change while a file is open: it keeps its layout. */
void file_set_hints(struct file *f, MPI_Info info) {
    struct hints h = f->hints;
    hints_read(info, &h);
    f->hints.cb_buffer_size = h.cb_buffer_size;
    f->hints.cb_nodes = h.cb_nodes;
    f->hints.cb_read = h.cb_read;
    f->hints.cb_write = h.cb_write;
}

int MPI_File_get_info(MPI_File fh, MPI_Info *info) {
    struct file *f = file_of(fh);
    return f ? fail(f, hints_report(&f->hints, info)) : NEXT(MPI_File_get_info)(fh, info);
}
EXPORT(MPI_File_get_info);

int MPI_File_set_atomicity(MPI_File fh, int flag) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_set_atomicity)(fh, flag);
    int rc = same(f, flag != 0);
    if (rc == MPI_SUCCESS) {
        pthread_mutex_lock(&f->mu);
        f->atomic = flag != 0;
        pthread_mutex_unlock(&f->mu);
    }
    return fail(f, rc);
}
EXPORT(MPI_File_set_atomicity);

int MPI_File_get_atomicity(MPI_File fh, int *flag) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_get_atomicity)(fh, flag);
    *flag = f->atomic;
    return MPI_SUCCESS;
}
EXPORT(MPI_File_get_atomicity);

int MPI_File_get_type_extent(MPI_File fh, MPI_Datatype type, MPI_Aint *extent) {
    struct file *f = file_of(fh);
    MPI_Aint lb;
    if (!f)
        return NEXT(MPI_File_get_type_extent)(fh, type, extent);
    return fail(f, PMPI_Type_get_extent(type, &lb, extent) == MPI_SUCCESS ? MPI_SUCCESS
                                                                          : MPI_ERR_TYPE);
}
EXPORT(MPI_File_get_type_extent);

#ifdef MPICH
int MPI_File_get_type_extent_c(MPI_File fh, MPI_Datatype type, MPI_Count *extent) {
    struct file *f = file_of(fh);
    MPI_Count lb;
    if (!f)
        return NEXT(MPI_File_get_type_extent_c)(fh, type, extent);
    int rc = PMPI_Type_get_extent_c(type, &lb, extent);
    return fail(f, rc == MPI_SUCCESS ? rc : MPI_ERR_TYPE);
}
EXPORT(MPI_File_get_type_extent_c);
#endif
