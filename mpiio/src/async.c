/* Requests that go on while the program does something else: a few threads carry them out, and an
 * MPI request tells when they are done.
 *
 * The threads never call MPI, with one exception. MPICH polls generalized requests, so that the
 * program's own thread completes them. Open MPI does not: there a thread of ours completes them if
 * the program has asked for MPI_THREAD_MULTIPLE; otherwise nobody may, and the request is carried
 * out before the call returns. */
#include "internal.h"

#include <stdlib.h>

enum { THREADS_MAX = 8 }; /* requests of one process that are under way at the same time */

struct job {
    struct io io;
    bool done, completes; /* completes: the thread tells MPI */
    MPI_Request request;
    struct job *next;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and done */
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, fewer = PTHREAD_COND_INITIALIZER;
static struct job *head, **tail = &head;
static int threads, idle;

static struct job *take_locked(void) {
    while (!head) {
        idle++;
        pthread_cond_wait(&more, &mu);
        idle--;
    }
    struct job *j = head;
    head = j->next;
    if (!head)
        tail = &head;
    return j;
}

static void *work(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&mu);
        struct job *j = take_locked();
        pthread_mutex_unlock(&mu);
        io_run(&j->io);
        pthread_mutex_lock(&mu);
        struct file *f = j->io.f;
        bool completes = j->completes;
        MPI_Request request = j->request;
        j->done = true; /* from here on the job may be gone, unless we are to complete it */
        f->jobs--;
        pthread_cond_broadcast(&fewer);
        pthread_mutex_unlock(&mu);
        if (completes)
            PMPI_Grequest_complete(request);
    }
    return NULL;
}

/* Where no thread can be started the caller does the work. */
static bool staff_locked(void) {
    pthread_t t;
    if (idle > 0 || threads == THREADS_MAX)
        return true;
    if (pthread_create(&t, NULL, work, NULL) != 0)
        return threads > 0;
    pthread_detach(t);
    threads++;
    return true;
}

static struct job *job_new(struct io *io) {
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->io = *io;
    if (io->mem.n == &io->leaf)
        j->io.mem.n = &j->io.leaf;
    j->request = MPI_REQUEST_NULL;
    return j;
}

static void start(struct job *j) {
    pthread_mutex_lock(&mu);
    bool queued = staff_locked();
    if (queued) {
        j->io.f->jobs++;
        *tail = j;
        tail = &j->next;
        pthread_cond_signal(&more);
    }
    pthread_mutex_unlock(&mu);
    if (!queued) {
        io_run(&j->io);
        j->done = true;
        if (j->completes)
            PMPI_Grequest_complete(j->request);
    }
}

int job_start(struct io *io, struct job **out) {
    struct job *j = job_new(io);
    if (!j) {
        io_release(io);
        return MPI_ERR_NO_MEM;
    }
    start(j);
    *out = j;
    return MPI_SUCCESS;
}

void job_wait(struct job *j) {
    pthread_mutex_lock(&mu);
    while (!j->done)
        pthread_cond_wait(&fewer, &mu);
    pthread_mutex_unlock(&mu);
}

struct io *job_io(struct job *j) {
    return &j->io;
}

void job_free(struct job *j) {
    io_release(&j->io);
    free(j);
}

void jobs_wait(struct file *f) {
    pthread_mutex_lock(&mu);
    while (f->jobs > 0)
        pthread_cond_wait(&fewer, &mu);
    pthread_mutex_unlock(&mu);
}

/* ---- generalized requests ---- */

static int query(void *extra, MPI_Status *status) {
    struct job *j = extra;
    status_set(status, j->io.done);
    status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
    status->MPI_ERROR = class_of(j->io.err, j->io.write ? "write" : "read", "");
    return status->MPI_ERROR;
}

static int release(void *extra) {
    job_free(extra);
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete) { /* what has begun is carried out */
    (void)extra, (void)complete;
    return MPI_SUCCESS;
}

#ifdef MPICH
static bool job_done(struct job *j) {
    pthread_mutex_lock(&mu);
    bool done = j->done;
    pthread_mutex_unlock(&mu);
    return done;
}

static int poll(void *extra, MPI_Status *status) {
    struct job *j = extra;
    (void)status;
    if (job_done(j) && j->request != MPI_REQUEST_NULL) {
        MPI_Request r = j->request;
        j->request = MPI_REQUEST_NULL;
        return PMPI_Grequest_complete(r);
    }
    return MPI_SUCCESS;
}

static int wait(int count, void **extra, double timeout, MPI_Status *status) {
    (void)timeout;
    for (int i = 0; i < count; i++) {
        job_wait(extra[i]);
        int rc = poll(extra[i], status);
        if (rc != MPI_SUCCESS)
            return rc;
    }
    return MPI_SUCCESS;
}

static int launch(struct job *j) {
    int rc = MPIX_Grequest_start(query, release, cancel, poll, wait, j, &j->request);
    if (rc == MPI_SUCCESS)
        start(j);
    return rc;
}
#else
static int launch(struct job *j) {
    int level = MPI_THREAD_SINGLE, rc;
    PMPI_Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE) {
        io_run(&j->io);
        j->done = true;
    }
    rc = PMPI_Grequest_start(query, release, cancel, j, &j->request);
    if (rc != MPI_SUCCESS)
        return rc;
    if (j->done)
        return PMPI_Grequest_complete(j->request);
    j->completes = true;
    start(j);
    return MPI_SUCCESS;
}
#endif

int job_request(struct io *io, MPI_Request *request) {
    struct job *j = job_new(io);
    if (!j) {
        io_release(io);
        return MPI_ERR_NO_MEM;
    }
    int rc = launch(j);
    if (rc != MPI_SUCCESS) {
        job_free(j);
        return MPI_ERR_OTHER;
    }
    *request = j->request;
    return rc;
}
