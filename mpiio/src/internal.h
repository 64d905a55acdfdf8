/* What the parts of libsluice-mpiio share. Read file.c first, then rw.c. */
#ifndef SLUICE_MPIIO_INTERNAL_H
#define SLUICE_MPIIO_INTERNAL_H

#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <sluice.h>

#include "shape.h"

/* Both MPIs export each function by two names. Fortran bindings call the one or the other, so both
 * are ours; what is not ours goes on to the next library that has it (see pass.h). */
#define EXPORT(name) extern __typeof__(name) P##name __attribute__((alias(#name)))

#pragma GCC visibility push(hidden)

/* ---- datatypes (flatten.c) ---- */

struct flat {
    int refs;
    struct arena arena;
    struct placed shape;
    int64_t size, lb, extent;
};
int flat_get(MPI_Datatype t, struct flat **out); /* an MPI error class or code */
void flat_put(struct flat *f);
bool type_predefined(MPI_Datatype t); /* such a type is never freed */

/* ---- views (view.c) ---- */

/* A view never changes: requests under way keep the one that they began with. */
struct view {
    int refs;
    MPI_Offset disp;
    MPI_Datatype etype, filetype;
    char datarep[MPI_MAX_DATAREP_STRING];
    struct arena arena;
    struct flat *flat; /* of the filetype */
    int64_t etype_size;
    struct placed shape; /* the filetype over and over from disp, to the end of all offsets */
    bool once;           /* there is only one tile, because the next would not lie behind it */
};
int view_new(MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char *datarep,
             bool writes, struct view **out);
struct view *view_ref(struct view *v);
void view_put(struct view *v);
int type_keep(MPI_Datatype t, MPI_Datatype *out); /* a handle that stays when t is freed */

/* ---- hints (hints.c) ---- */

enum cb_mode { CB_AUTOMATIC, CB_ENABLE, CB_DISABLE };

struct hints {
    int64_t striping_factor, striping_unit; /* 0: the cluster's choice */
    int64_t cb_buffer_size, cb_nodes;       /* cb_nodes 0: one for each server of the file */
    enum cb_mode cb_read, cb_write;
    bool rma;    /* the shared pointer by RMA even where all ranks share a host */
    bool direct; /* past the servers' caches */
    char pool[64];
};
void hints_default(struct hints *h);
void hints_read(MPI_Info info, struct hints *h); /* what it does not mention stays */
int hints_report(const struct hints *h, MPI_Info *out);

/* ---- files (file.c) ---- */

struct split { /* the split collective that has begun */
    bool active, write;
    const void *buf;
    struct job *job;
    int rc;
    int64_t bytes;
};

struct shared_pointer;

struct file {
    MPI_Comm comm; /* ours alone */
    int rank, ranks, amode, index;
    char *path;
    sluice_file *handle;
    struct hints hints;
    struct shared_pointer *shared;
    pthread_mutex_t atomic_turn; /* one atomic access of this process at a time */

    pthread_mutex_t pack_turn; /* held by who uses the buffer */
    char *pack;                /* PACK_BYTES for memory in small pieces; made when it is needed */

    pthread_mutex_t mu; /* guards what follows */
    struct view *view;
    int64_t position; /* bytes of the view's stream */
    bool atomic;
    struct split split;
    int jobs;        /* requests that threads have; guarded by async.c */
    bool gathers[2]; /* collective reads, collective writes: see collective.c */
    MPI_Errhandler errhandler;
};

struct file *file_of(MPI_File fh); /* NULL: not ours */
void file_set_hints(struct file *f, MPI_Info info);
int agree(struct file *f, int class); /* collective: the worst of all */

/* ---- the client (backend.c) ---- */

struct api {
    __typeof__(&sluice_error) error;
    __typeof__(&sluice_alloc) alloc;
    __typeof__(&sluice_free) free;
    __typeof__(&sluice_set_layout) set_layout;
    __typeof__(&sluice_open) open;
    __typeof__(&sluice_close) close;
    __typeof__(&sluice_pread) pread;
    __typeof__(&sluice_pwrite) pwrite;
    __typeof__(&sluice_read_list) read_list;
    __typeof__(&sluice_write_list) write_list;
    __typeof__(&sluice_sync) sync;
    __typeof__(&sluice_ftruncate) ftruncate;
    __typeof__(&sluice_reserve) reserve;
    __typeof__(&sluice_lock) lock;
    __typeof__(&sluice_unlock) unlock;
    __typeof__(&sluice_fstat) fstat;
    __typeof__(&sluice_flayout) flayout;
    __typeof__(&sluice_unlink) unlink;
};
extern struct api sluice;
int backend_connect(sluice_fs **fs); /* once for each process; an errno */

/* ---- errors (errors.c) ---- */

int class_of(int err, const char *what, const char *object); /* the MPI class of an errno */
int fail(struct file *f, int class); /* through the file's error handler; f NULL: the default one */
void errhandler_open(struct file *f); /* the default one */
void errhandler_close(struct file *f);

/* ---- moving data (rw.c, async.c, collective.c) ---- */

/* A request: len bytes of the view's stream from pos, and the memory for them. It calls no MPI, so
 * that any thread can carry it out. */
struct io {
    struct file *f;
    bool write;
    struct view *view; /* counted */
    struct flat *flat; /* counted: of the memory's datatype */
    struct arena arena;
    struct shape leaf; /* where memory is contiguous */
    struct placed mem; /* count elements, from base */
    char *base;
    int64_t pos, len;
    int64_t done; /* out: bytes */
    int err;      /* out: errno */
    bool atomic;
};
int io_prepare(struct io *io, struct file *f, bool write, struct view *v, void *buf, int64_t count,
               MPI_Datatype type);
void io_release(struct io *io);
void io_run(struct io *io);
void status_set(MPI_Status *status, int64_t bytes);
/* Copies len bytes of memory's stream from pos into packed, or back. */
void io_copy(const struct io *io, int64_t pos, int64_t len, char *packed, bool pack);

int job_start(struct io *io, struct job **out); /* takes io over; a thread runs it */
void job_wait(struct job *j);
struct io *job_io(struct job *j);
void job_free(struct job *j);                         /* when it is done */
void jobs_wait(struct file *f);                       /* for all of a file */
int job_request(struct io *io, MPI_Request *request); /* takes io over */

int collective_view(struct file *f, int rc); /* collective: looks at new views; agrees on rc */
bool collective_wanted(const struct file *f, bool write); /* the same at all ranks */
/* Collective: an MPI error class; io->done is set. rc: this rank has nothing but an error. */
int collective_run(struct io *io, int rc);

/* ---- the shared pointer (shared.c) ---- */

int shared_open(struct file *f);
void shared_close(struct file *f);
int shared_add(struct file *f, int64_t n, int64_t *before); /* bytes; alone */
int shared_set(struct file *f, int64_t at);
int shared_byte(struct file *f, int64_t *out); /* the byte of the file that it is at */

#pragma GCC visibility pop
#endif
