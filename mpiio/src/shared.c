/* The shared file pointer: one number that all ranks of a file add to. Where all of them are on one
 * host it lies in shared memory and is added to by the processor; elsewhere it lies at rank 0, in a
 * window that the others reach by MPI's one-sided operations. */
#include "internal.h"

#include <stdlib.h>

struct shared_pointer {
    MPI_Win window;
    int64_t *memory; /* shared by all ranks, or NULL */
};

static int all_on_one_host(struct file *f, bool *yes) {
    MPI_Comm host;
    int n = 0, mine, all, rc;
    rc = PMPI_Comm_split_type(f->comm, MPI_COMM_TYPE_SHARED, f->rank, MPI_INFO_NULL, &host);
    if (rc != MPI_SUCCESS)
        return rc;
    PMPI_Comm_size(host, &n);
    PMPI_Comm_free(&host);
    mine = n == f->ranks && !f->hints.rma;
    rc = PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, f->comm);
    *yes = all != 0;
    return rc;
}

static int open_memory(struct file *f, struct shared_pointer *s) {
    MPI_Aint size;
    int unit, rc;
    int64_t *mine;
    rc = PMPI_Win_allocate_shared(f->rank == 0 ? sizeof *mine : 0, sizeof *mine, MPI_INFO_NULL,
                                  f->comm, &mine, &s->window);
    if (rc == MPI_SUCCESS)
        rc = PMPI_Win_shared_query(s->window, 0, &size, &unit, &s->memory);
    return rc;
}

static int open_window(struct file *f, struct shared_pointer *s) {
    int64_t *mine;
    int rc = PMPI_Win_allocate(f->rank == 0 ? sizeof *mine : 0, sizeof *mine, MPI_INFO_NULL,
                               f->comm, &mine, &s->window);
    if (rc != MPI_SUCCESS)
        return rc;
    if (f->rank == 0) {
        PMPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, s->window);
        *mine = 0;
        PMPI_Win_unlock(0, s->window);
    }
    PMPI_Barrier(f->comm);
    return PMPI_Win_lock_all(0, s->window);
}

/* Collective. */
int shared_open(struct file *f) {
    struct shared_pointer *s = calloc(1, sizeof *s);
    bool one;
    if (!s)
        return MPI_ERR_NO_MEM;
    int rc = all_on_one_host(f, &one);
    if (rc == MPI_SUCCESS)
        rc = one ? open_memory(f, s) : open_window(f, s);
    if (rc != MPI_SUCCESS) {
        free(s);
        return rc;
    }
    if (s->memory && f->rank == 0)
        __atomic_store_n(s->memory, 0, __ATOMIC_SEQ_CST);
    f->shared = s;
    return PMPI_Barrier(f->comm);
}

/* Collective. */
void shared_close(struct file *f) {
    struct shared_pointer *s = f->shared;
    if (!s)
        return;
    if (!s->memory)
        PMPI_Win_unlock_all(s->window);
    PMPI_Win_free(&s->window);
    free(s);
    f->shared = NULL;
}

static int one_sided(struct file *f, MPI_Op op, int64_t value, int64_t *before) {
    MPI_Win w = f->shared->window;
    int rc = PMPI_Fetch_and_op(&value, before, MPI_INT64_T, 0, 0, op, w);
    return rc == MPI_SUCCESS ? PMPI_Win_flush(0, w) : rc;
}

int shared_add(struct file *f, int64_t n, int64_t *before) {
    if (!f->shared->memory)
        return one_sided(f, MPI_SUM, n, before);
    *before = __atomic_fetch_add(f->shared->memory, n, __ATOMIC_SEQ_CST);
    return MPI_SUCCESS;
}

int shared_set(struct file *f, int64_t at) {
    int64_t before;
    if (!f->shared->memory)
        return one_sided(f, MPI_REPLACE, at, &before);
    __atomic_store_n(f->shared->memory, at, __ATOMIC_SEQ_CST);
    return MPI_SUCCESS;
}
