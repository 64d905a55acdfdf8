/* A library that nobody here wrote: parallel HDF5 writes the same datasets to a file of ours and to
 * a local one, collectively and independently, contiguous and in chunks; the files must be equal
 * byte by byte, and what HDF5 reads back must be what was written.
 *
 *   mpiexec -n 4 hdf5 FILE LOCAL-FILE
 */
#include "types.h"

#include <hdf5.h>

enum { ROWS = 96, COLS = 200 };

static int rank, ranks;

static hid_t good(hid_t x, const char *what) {
    if (x < 0)
        die(what);
    return x;
}

static hid_t parallel(void) {
    hid_t p = good(H5Pcreate(H5P_FILE_ACCESS), "access list");
    good(H5Pset_fapl_mpio(p, MPI_COMM_WORLD, MPI_INFO_NULL), "mpio");
    return p;
}

static hid_t transfer(int all) {
    hid_t p = good(H5Pcreate(H5P_DATASET_XFER), "transfer list");
    good(H5Pset_dxpl_mpio(p, all ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT), "mode");
    return p;
}

/* Columns rank, rank + ranks, ... : pieces of four bytes, woven into those of the others. */
static hid_t columns(hid_t space, hsize_t *n) {
    hsize_t start[2] = {0, (hsize_t)rank}, stride[2] = {1, (hsize_t)ranks};
    hsize_t count[2] = {ROWS, (hsize_t)(COLS - rank + ranks - 1) / (hsize_t)ranks};
    good(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, NULL), "hyperslab");
    *n = count[0] * count[1];
    return good(H5Screate_simple(1, n, NULL), "memory space");
}

static void dataset(hid_t file, const char *name, int chunked, int all) {
    hsize_t dims[2] = {ROWS, COLS}, chunk[2] = {16, 50}, n;
    hid_t space = good(H5Screate_simple(2, dims, NULL), "space");
    hid_t make = good(H5Pcreate(H5P_DATASET_CREATE), "creation list");
    good(H5Pset_obj_track_times(make, 0), "times");
    good(H5Pset_alloc_time(make, H5D_ALLOC_TIME_EARLY), "allocation");
    if (chunked)
        good(H5Pset_chunk(make, 2, chunk), "chunks");
    hid_t d =
        good(H5Dcreate2(file, name, H5T_STD_I32LE, space, H5P_DEFAULT, make, H5P_DEFAULT), name);
    hid_t memory = columns(space, &n), how = transfer(all);
    int32_t *x = malloc(n * sizeof *x), *y = calloc(n, sizeof *y);
    for (hsize_t i = 0; i < n; i++)
        x[i] = (int32_t)(i * 31 + (hsize_t)rank * 7919);
    good(H5Dwrite(d, H5T_NATIVE_INT32, memory, space, how, x), "write");
    MPI_Barrier(MPI_COMM_WORLD);
    good(H5Dread(d, H5T_NATIVE_INT32, memory, space, how, y), "read");
    if (memcmp(x, y, n * sizeof *x) != 0)
        die("HDF5 reads something else than it has written");
    free(x);
    free(y);
    H5Pclose(how);
    H5Sclose(memory);
    H5Dclose(d);
    H5Pclose(make);
    H5Sclose(space);
}

static void write_file(const char *name) {
    hid_t access = parallel();
    hid_t f = good(H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access), name);
    dataset(f, "contiguous-collective", 0, 1);
    dataset(f, "contiguous-independent", 0, 0);
    dataset(f, "chunked-collective", 1, 1);
    dataset(f, "chunked-independent", 1, 0);
    good(H5Fclose(f), "close");
    H5Pclose(access);
}

static char *whole(const char *name, MPI_Offset *size) {
    MPI_File fh;
    MPI_Status st;
    must(MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &fh), "open");
    must(MPI_File_get_size(fh, size), "size");
    char *all = malloc((size_t)*size + 1);
    must(MPI_File_read_at(fh, 0, all, (int)*size, MPI_BYTE, &st), "read");
    must(MPI_File_close(&fh), "close");
    must(MPI_File_delete(name, MPI_INFO_NULL), "delete");
    return all;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3)
        die("usage: hdf5 FILE LOCAL-FILE");
    write_file(argv[1]);
    write_file(argv[2]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Offset n, m;
        char *ours = whole(argv[1], &n), *theirs = whole(argv[2], &m);
        if (n != m || memcmp(ours, theirs, (size_t)n) != 0)
            die("the files differ");
        printf("ok: %lld bytes of HDF5 are equal\n", (long long)n);
    }
    MPI_Finalize();
    return 0;
}
