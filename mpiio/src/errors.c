/* MPI's error classes, and the error handlers of files. */
#include "internal.h"
#include "pass.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int err, class;
} classes[] = {
    {ENOENT, MPI_ERR_NO_SUCH_FILE}, {EEXIST, MPI_ERR_FILE_EXISTS}, {EACCES, MPI_ERR_ACCESS},
    {EPERM, MPI_ERR_ACCESS},        {EROFS, MPI_ERR_READ_ONLY},    {ENOSPC, MPI_ERR_NO_SPACE},
    {EDQUOT, MPI_ERR_QUOTA},        {EINVAL, MPI_ERR_ARG},         {E2BIG, MPI_ERR_ARG},
    {EOVERFLOW, MPI_ERR_ARG},       {EFAULT, MPI_ERR_BUFFER},      {ENAMETOOLONG, MPI_ERR_BAD_FILE},
    {ENOTDIR, MPI_ERR_BAD_FILE},    {EISDIR, MPI_ERR_BAD_FILE},    {ELOOP, MPI_ERR_BAD_FILE},
    {EBUSY, MPI_ERR_FILE_IN_USE},   {EBADF, MPI_ERR_FILE},         {ENOMEM, MPI_ERR_NO_MEM},
};

/* An MPI error class has no room for the story: SLUICE_MPIIO_VERBOSE=1 prints it. */
static void tell(int err, const char *what, const char *object) {
    const char *v = getenv("SLUICE_MPIIO_VERBOSE");
    if (!v || !*v || strcmp(v, "0") == 0)
        return;
    const char *story = sluice.error ? sluice.error() : "";
    fprintf(stderr, "libsluice-mpiio: %s %s: %s\n", what, object, *story ? story : strerror(err));
}

int class_of(int err, const char *what, const char *object) {
    if (err == 0)
        return MPI_SUCCESS;
    tell(err, what, object);
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (classes[i].err == err)
            return classes[i].class;
    return MPI_ERR_IO;
}

/* MPI does not tell which function a handler calls, so we note it when one is made. A handler may
 * be freed while files have it: ours are counted here, and it is freed behind the last one. */
struct handler {
    MPI_Errhandler handle;
    MPI_File_errhandler_function *fn;
    int files, users;
    struct handler *next;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct handler *handlers;

static struct handler *find_locked(MPI_Errhandler h) {
    struct handler *p = handlers;
    while (p && p->handle != h)
        p = p->next;
    return p;
}

/* Forgets a handler that neither a file of ours nor the program has any more. */
static void drop_locked(struct handler *h) {
    if (h->files > 0 || h->users > 0)
        return;
    struct handler **p = &handlers;
    while (*p != h)
        p = &(*p)->next;
    *p = h->next;
    NEXT(MPI_Errhandler_free)(&h->handle);
    free(h);
}

static void change(MPI_Errhandler handle, int files, int users) {
    pthread_mutex_lock(&mu);
    struct handler *h = find_locked(handle);
    if (h) {
        h->files += files;
        h->users += users;
        drop_locked(h);
    }
    pthread_mutex_unlock(&mu);
}

void errhandler_open(struct file *f) {
    f->errhandler = MPI_ERRORS_RETURN;
    NEXT(MPI_File_get_errhandler)(MPI_FILE_NULL, &f->errhandler);
    change(f->errhandler, 1, 0);
}

void errhandler_close(struct file *f) {
    change(f->errhandler, -1, 0);
}

static bool fatal(MPI_Errhandler h) {
#ifdef MPI_ERRORS_ABORT
    if (h == MPI_ERRORS_ABORT)
        return true;
#endif
    return h == MPI_ERRORS_ARE_FATAL;
}

static void call(struct file *f, MPI_Errhandler h, int class) {
    MPI_File fh = f ? (MPI_File)f : MPI_FILE_NULL;
    if (fatal(h)) {
        char text[MPI_MAX_ERROR_STRING] = "";
        int len = 0;
        PMPI_Error_string(class, text, &len);
        fprintf(stderr, "libsluice-mpiio: fatal error on %s: %s\n", f ? f->path : "a file", text);
        PMPI_Abort(f ? f->comm : MPI_COMM_WORLD, class);
    }
    pthread_mutex_lock(&mu);
    struct handler *p = find_locked(h);
    MPI_File_errhandler_function *fn = p ? p->fn : NULL;
    pthread_mutex_unlock(&mu);
    if (fn)
        fn(&fh, &class);
}

int fail(struct file *f, int class) {
    if (class == MPI_SUCCESS)
        return class;
    MPI_Errhandler h = MPI_ERRORS_RETURN;
    if (f)
        h = f->errhandler;
    else
        NEXT(MPI_File_get_errhandler)(MPI_FILE_NULL, &h);
    call(f, h, class);
    return class;
}

int MPI_File_create_errhandler(MPI_File_errhandler_function *fn, MPI_Errhandler *out) {
    int rc = NEXT(MPI_File_create_errhandler)(fn, out);
    if (rc != MPI_SUCCESS)
        return rc;
    struct handler *h = calloc(1, sizeof *h);
    if (!h)
        return MPI_ERR_NO_MEM;
    *h = (struct handler){.handle = *out, .fn = fn, .users = 1};
    pthread_mutex_lock(&mu);
    h->next = handlers;
    handlers = h;
    pthread_mutex_unlock(&mu);
    return rc;
}
EXPORT(MPI_File_create_errhandler);

int MPI_Errhandler_free(MPI_Errhandler *h) {
    pthread_mutex_lock(&mu);
    struct handler *p = find_locked(*h);
    if (p) {
        p->users--;
        drop_locked(p);
        *h = MPI_ERRHANDLER_NULL;
    }
    pthread_mutex_unlock(&mu);
    return p ? MPI_SUCCESS : NEXT(MPI_Errhandler_free)(h);
}
EXPORT(MPI_Errhandler_free);

int MPI_File_set_errhandler(MPI_File fh, MPI_Errhandler h) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_set_errhandler)(fh, h);
    if (h == MPI_ERRHANDLER_NULL)
        return fail(f, MPI_ERR_ARG);
    change(h, 1, 0);
    change(f->errhandler, -1, 0);
    f->errhandler = h;
    return MPI_SUCCESS;
}
EXPORT(MPI_File_set_errhandler);

int MPI_File_get_errhandler(MPI_File fh, MPI_Errhandler *h) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_get_errhandler)(fh, h);
    change(f->errhandler, 0, 1); /* who gets one frees it */
    *h = f->errhandler;
    return MPI_SUCCESS;
}
EXPORT(MPI_File_get_errhandler);

int MPI_File_call_errhandler(MPI_File fh, int code) {
    struct file *f = file_of(fh);
    if (!f)
        return NEXT(MPI_File_call_errhandler)(fh, code);
    call(f, f->errhandler, code);
    return MPI_SUCCESS;
}
EXPORT(MPI_File_call_errhandler);
