/* What a program sees besides data: errors and their handlers, hints, pointers, handles of Fortran,
 * views that MPI forbids, and files that are not ours.
 *
 *   mpiexec -n 4 calls FILE LOCAL-FILE
 */
#include "types.h"

#include <sys/resource.h>

static int rank, ranks;
static const char *name;

static void equal(const char *what, long long got, long long want) {
    if (got == want)
        return;
    fprintf(stderr, "rank %d: %s: %lld, want %lld\n", rank, what, got, want);
    die(what);
}

static void class_is(const char *what, int rc, int want) {
    int class = MPI_SUCCESS;
    MPI_Error_class(rc, &class);
    equal(what, class, want);
}

static MPI_File open_file(int amode) {
    MPI_File fh;
    must(MPI_File_open(MPI_COMM_WORLD, name, amode, MPI_INFO_NULL, &fh), "open");
    return fh;
}

static void remove_file(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        must(MPI_File_delete(name, MPI_INFO_NULL), "delete");
    MPI_Barrier(MPI_COMM_WORLD);
}

static void amodes(void) {
    MPI_File fh;
    int amode;
    char byte = 1;
    MPI_Status st;
    class_is("missing", MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &fh),
             MPI_ERR_NO_SUCH_FILE);
    equal("no handle", fh == MPI_FILE_NULL, 1);
    class_is("delete missing", MPI_File_delete(name, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
    class_is(
        "two ways",
        MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_WRONLY, MPI_INFO_NULL, &fh),
        MPI_ERR_AMODE);
    class_is(
        "create to read",
        MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &fh),
        MPI_ERR_AMODE);
    int mine = MPI_MODE_CREATE | (rank == ranks - 1 ? MPI_MODE_RDWR : MPI_MODE_WRONLY);
    class_is("not the same", MPI_File_open(MPI_COMM_WORLD, name, mine, MPI_INFO_NULL, &fh),
             ranks > 1 ? MPI_ERR_NOT_SAME : MPI_SUCCESS);
    fh = open_file(MPI_MODE_CREATE | MPI_MODE_WRONLY);
    must(MPI_File_get_amode(fh, &amode), "amode");
    equal("amode", amode, MPI_MODE_CREATE | MPI_MODE_WRONLY);
    class_is("read write-only", MPI_File_read_at(fh, 0, &byte, 1, MPI_BYTE, &st), MPI_ERR_ACCESS);
    must(MPI_File_write_at_all(fh, rank, &byte, 1, MPI_BYTE, &st), "write");
    must(MPI_File_close(&fh), "close");
    equal("closed", fh == MPI_FILE_NULL, 1);
    class_is("exists",
             MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR,
                           MPI_INFO_NULL, &fh),
             MPI_ERR_FILE_EXISTS);
    fh = open_file(MPI_MODE_RDONLY);
    class_is("write read-only", MPI_File_write_at(fh, 0, &byte, 1, MPI_BYTE, &st),
             MPI_ERR_READ_ONLY);
    class_is("cut read-only", MPI_File_set_size(fh, 0), MPI_ERR_READ_ONLY);
    must(MPI_File_close(&fh), "close");
    fh = open_file(MPI_MODE_RDWR | MPI_MODE_APPEND | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Offset at;
    must(MPI_File_get_position(fh, &at), "position");
    equal("append", at, ranks);
    must(MPI_File_get_position_shared(fh, &at), "shared position");
    equal("append, shared", at, ranks);
    must(MPI_File_close(&fh), "close");
    class_is("deleted", MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &fh),
             MPI_ERR_NO_SUCH_FILE);
}

static int handled;
static void handler(MPI_File *fh, int *code, ...) {
    (void)fh;
    MPI_Error_class(*code, &handled);
}

static void handlers(void) {
    MPI_File fh = open_file(MPI_MODE_CREATE | MPI_MODE_RDWR), back;
    MPI_Errhandler h, got;
    char byte = 0;
    MPI_Status st;
    must(MPI_File_get_errhandler(fh, &got), "errhandler");
    equal("files return errors", got == MPI_ERRORS_RETURN, 1);
    must(MPI_File_create_errhandler(handler, &h), "create handler");
    must(MPI_File_set_errhandler(fh, h), "set handler");
    MPI_Errhandler keep = h;
    must(MPI_Errhandler_free(&h), "free handler"); /* the file still has it */
    class_is("negative offset", MPI_File_write_at(fh, -1, &byte, 1, MPI_BYTE, &st), MPI_ERR_ARG);
    equal("handler was called", handled, MPI_ERR_ARG);
    must(MPI_File_get_errhandler(fh, &got), "errhandler");
    equal("the handler", got == keep, 1);
    must(MPI_Errhandler_free(&got), "free handler");
    must(MPI_File_call_errhandler(fh, MPI_ERR_QUOTA), "call handler");
    equal("handler was called", handled, MPI_ERR_QUOTA);
    class_is("negative count", MPI_File_read_at(fh, 0, &byte, -1, MPI_BYTE, &st), MPI_ERR_COUNT);
    class_is("no type", MPI_File_read_at(fh, 0, &byte, 1, MPI_DATATYPE_NULL, &st), MPI_ERR_TYPE);
    back = MPI_File_f2c(MPI_File_c2f(fh));
    equal("Fortran's handle", back == fh, 1);
    equal("Fortran's null", MPI_File_f2c(MPI_File_c2f(MPI_FILE_NULL)) == MPI_FILE_NULL, 1);
    MPI_Group group;
    int n;
    must(MPI_File_get_group(fh, &group), "group");
    MPI_Group_size(group, &n);
    equal("group", n, ranks);
    MPI_Group_free(&group);
    must(MPI_File_close(&fh), "close");
    remove_file();
}

static void hints(void) {
    MPI_Info info, used;
    MPI_File fh;
    char value[64];
    int found;
    MPI_Info_create(&info);
    MPI_Info_set(info, "striping_factor", "1");
    MPI_Info_set(info, "striping_unit", "131072");
    MPI_Info_set(info, "cb_buffer_size", "nonsense");
    MPI_Info_set(info, "romio_cb_write", "enable");
    must(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &fh), "open");
    must(MPI_File_get_info(fh, &used), "info");
    MPI_Info_get(used, "striping_factor", 63, value, &found);
    equal("striping_factor", found ? atoi(value) : -1, 1);
    MPI_Info_get(used, "striping_unit", 63, value, &found);
    equal("striping_unit", found ? atoi(value) : -1, 131072);
    MPI_Info_get(used, "cb_buffer_size", 63, value, &found);
    equal("cb_buffer_size", found ? atoi(value) : -1, 16 << 20);
    MPI_Info_get(used, "romio_cb_write", 63, value, &found);
    equal("romio_cb_write", found && strcmp(value, "enable") == 0, 1);
    MPI_Info_free(&used);
    MPI_Info_free(&info);
    must(MPI_File_close(&fh), "close");
    remove_file();
}

/* Hints that nobody can follow are no errors, and nothing waits for them. */
static void wishes(void) {
    static const char *const all[][2] = {
        {"striping_factor", "99"},     {"striping_factor", "65534"}, {"striping_factor", "-7"},
        {"striping_unit", "100000"},   {"striping_unit", "7"},       {"sluice_pool", "nobody-made-it"},
        {"sluice_pool", "bad/name"},   {"cb_nodes", "1000000"},      {"collective_buffering", "maybe"},
        {"collective_buffering", "false"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        MPI_Info info, used;
        MPI_File fh;
        char value[64], x[2] = {1, 2};
        int found;
        MPI_Status st;
        MPI_Info_create(&info);
        MPI_Info_set(info, all[i][0], all[i][1]);
        double begun = MPI_Wtime();
        must(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &fh),
             all[i][1]);
        equal("it waits for a wish", MPI_Wtime() - begun > 30, 0);
        must(MPI_File_get_info(fh, &used), "info");
        MPI_Info_get(used, "striping_factor", 63, value, &found);
        if (i < 2) /* as many as there are */
            equal(all[i][1], found ? atoi(value) : -1, 2);
        MPI_Info_get(used, "striping_unit", 63, value, &found);
        if (i == 3)
            equal(all[i][1], found ? atoi(value) : -1, 65536);
        MPI_Info_get(used, "sluice_pool", 63, value, &found);
        if (found)
            equal("a pool that there is not", strcmp(value, all[i][1]) == 0, 0);
        MPI_Info_get(used, "romio_cb_write", 63, value, &found);
        equal("collective buffering", found ? value[0] : 0, i == 9 ? 'd' : 'a');
        must(MPI_File_write_at_all(fh, 2 * rank, x, 2, MPI_BYTE, &st), "write");
        MPI_Info_free(&used);
        must(MPI_File_close(&fh), "close");
        /* A file that has data keeps its layout. */
        must(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &fh),
             "open again");
        must(MPI_File_close(&fh), "close");
        MPI_Info_free(&info);
        remove_file();
    }
}

/* Views that MPI forbids, and a billion pieces. */
/* A filetype whose tiles would lie in each other, as HDF5 makes them: it can be used once. */
static void one_tile(MPI_File fh) {
    MPI_Datatype v, t;
    MPI_Status st;
    int x[2] = {17, 42}, n;
    MPI_Type_vector(2, 1, 2, MPI_INT, &v);
    MPI_Type_create_resized(v, 0, sizeof(int), &t);
    MPI_Type_commit(&t);
    MPI_Offset disp = 1000 + 100 * rank, byte;
    must(MPI_File_set_view(fh, disp, MPI_INT, t, "native", MPI_INFO_NULL), "short extent");
    must(MPI_File_write_at_all(fh, 0, x, 2, MPI_INT, &st), "write the tile");
    x[0] = x[1] = 0;
    must(MPI_File_read_at(fh, 0, x, 2, MPI_INT, &st), "read the tile");
    MPI_Get_count(&st, MPI_INT, &n);
    equal("read of the tile", n, 2);
    equal("the tile", x[0] * 100 + x[1], 1742);
    must(MPI_File_get_byte_offset(fh, 1, &byte), "byte offset");
    equal("byte offset", byte, disp + 2 * (MPI_Offset)sizeof(int));
    class_is("write behind the tile", MPI_File_write_at(fh, 1, x, 2, MPI_INT, &st), MPI_ERR_ARG);
    class_is("read behind the tile", MPI_File_read_at(fh, 1, x, 2, MPI_INT, &st), MPI_ERR_ARG);
    MPI_Type_free(&t);
    MPI_Type_free(&v);
}

/* A struct of many types, as HDF5 makes it of a dataset's chunks. */
static void many_types(MPI_File fh) {
    enum { N = 5000 };
    MPI_Datatype t, *part = malloc(N * sizeof *part);
    MPI_Aint *disp = malloc(N * sizeof *disp);
    int *lens = malloc(N * sizeof *lens);
    char *data = malloc(2 * N), *back = calloc(2, N);
    MPI_Status st;
    for (int i = 0; i < N; i++) {
        MPI_Type_contiguous(2, MPI_BYTE, &part[i]);
        disp[i] = 5 * (MPI_Aint)i;
        lens[i] = 1;
        data[2 * i] = (char)i;
        data[2 * i + 1] = (char)(i >> 8);
    }
    MPI_Type_create_struct(N, lens, disp, part, &t);
    MPI_Type_commit(&t);
    must(MPI_File_set_view(fh, (MPI_Offset)rank << 20, MPI_BYTE, t, "native", MPI_INFO_NULL),
         "many types");
    must(MPI_File_write_at(fh, 0, data, 2 * N, MPI_BYTE, &st), "write by many types");
    must(MPI_File_read_at(fh, 0, back, 2 * N, MPI_BYTE, &st), "read by many types");
    equal("what many types write", memcmp(data, back, 2 * N), 0);
    MPI_Type_free(&t);
    for (int i = 0; i < N; i++)
        MPI_Type_free(&part[i]);
    free(part);
    free(disp);
    free(lens);
    free(data);
    free(back);
}

static void views(void) {
    MPI_File fh = open_file(MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_Datatype t;
    int lens[2] = {1, 1}, back[2] = {4, 0}, twice[2] = {0, 0};
    MPI_Type_indexed(2, lens, back, MPI_INT, &t);
    MPI_Type_commit(&t);
    class_is("falling", MPI_File_set_view(fh, 0, MPI_INT, t, "native", MPI_INFO_NULL),
             MPI_ERR_TYPE);
    MPI_Type_free(&t);
    MPI_Type_indexed(2, lens, twice, MPI_INT, &t);
    MPI_Type_commit(&t);
    class_is("twice", MPI_File_set_view(fh, 0, MPI_INT, t, "native", MPI_INFO_NULL), MPI_ERR_TYPE);
    MPI_Type_free(&t);
    MPI_Type_vector(3, 1, -2, MPI_INT, &t);
    MPI_Type_commit(&t);
    class_is("negative", MPI_File_set_view(fh, 0, MPI_INT, t, "native", MPI_INFO_NULL),
             MPI_ERR_TYPE);
    MPI_Type_free(&t);
    class_is("etype", MPI_File_set_view(fh, 0, MPI_DOUBLE, MPI_INT, "native", MPI_INFO_NULL),
             MPI_ERR_TYPE);
    class_is("displacement", MPI_File_set_view(fh, -1, MPI_INT, MPI_INT, "native", MPI_INFO_NULL),
             MPI_ERR_ARG);
    class_is("datarep", MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL),
             MPI_ERR_UNSUPPORTED_DATAREP);
    one_tile(fh);
    many_types(fh);
    MPI_Type_contiguous(0, MPI_INT, &t);
    MPI_Type_commit(&t);
    must(MPI_File_set_view(fh, 0, MPI_INT, t, "native", MPI_INFO_NULL), "empty view");
    MPI_Status st;
    int x[1024], n;
    must(MPI_File_write(fh, x, 4, MPI_INT, &st), "write into nothing");
    MPI_Get_count(&st, MPI_INT, &n);
    equal("written into nothing", n, 0);
    MPI_Type_free(&t);
    /* Every other int of eight thousand million bytes: its description is one vector. */
    MPI_Type_vector(1000000000, 1, 2, MPI_INT, &t);
    MPI_Type_commit(&t);
    must(MPI_File_set_view(fh, 0, MPI_INT, t, "native", MPI_INFO_NULL), "a billion pieces");
    for (int i = 0; i < 1024; i++)
        x[i] = i;
    if (rank == 0)
        must(MPI_File_write_at(fh, 999999000, x, 1000, MPI_INT, &st), "write at the end of it");
    MPI_Barrier(MPI_COMM_WORLD);
    memset(x, 0xff, sizeof x);
    must(MPI_File_read_at(fh, 999999500, x, 600, MPI_INT, &st), "read past the end");
    MPI_Get_count(&st, MPI_INT, &n);
    equal("read past the end", n, 500);
    equal("read", x[499], 999);
    MPI_Type_free(&t);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    if (u.ru_maxrss > 1 << 20)
        equal("KiB of memory", u.ru_maxrss, 1 << 20);
    must(MPI_File_close(&fh), "close");
    remove_file();
}

/* What is read into the same memory: the last of it is there. */
static void same_memory(void) {
    enum { TIMES = 5, BLOCK = 1 << 18 };
    MPI_File fh = open_file(MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_Datatype t;
    MPI_Status st;
    char *x = malloc(TIMES * BLOCK);
    int n;
    for (int i = 0; i < TIMES * BLOCK; i++)
        x[i] = (char)(i / BLOCK + 1);
    MPI_Offset at = (MPI_Offset)rank * TIMES * BLOCK;
    must(MPI_File_write_at(fh, at, x, TIMES * BLOCK, MPI_BYTE, &st), "write");
    MPI_Type_create_hvector(TIMES, BLOCK, 0, MPI_BYTE, &t);
    MPI_Type_commit(&t);
    must(MPI_File_read_at(fh, at, x, 1, t, &st), "read into the same memory");
    MPI_Get_count(&st, MPI_BYTE, &n);
    equal("read into the same memory", n, TIMES * BLOCK);
    for (int i = 0; i < BLOCK; i++)
        equal("the last of it", x[i], TIMES);
    MPI_Type_free(&t);
    free(x);
    must(MPI_File_close(&fh), "close");
    remove_file();
}

/* Each rank adds records by the shared pointer; all of them are there, each once. */
static void shared(const char *how) {
    MPI_Info info;
    MPI_File fh;
    MPI_Status st;
    enum { RECORDS = 10 };
    int record[2], *all = malloc(sizeof record * RECORDS * (size_t)ranks), *seen, n;
    MPI_Info_create(&info);
    MPI_Info_set(info, "sluice_shared_pointer", how);
    must(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &fh), "open");
    MPI_Info_free(&info);
    must(MPI_File_set_view(fh, 16, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), "view");
    for (int i = 0; i < RECORDS; i++) {
        record[0] = rank;
        record[1] = i;
        must(MPI_File_write_shared(fh, record, 2, MPI_INT, &st), "write shared");
    }
    must(MPI_File_sync(fh), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    must(MPI_File_read_at(fh, 0, all, 2 * RECORDS * ranks, MPI_INT, &st), "read");
    MPI_Get_count(&st, MPI_INT, &n);
    equal("records", n, 2 * RECORDS * ranks);
    seen = calloc((size_t)ranks, sizeof *seen);
    for (int i = 0; i < RECORDS * ranks; i++)
        equal("records of a rank are in order", all[2 * i + 1], seen[all[2 * i]]++);
    must(MPI_File_seek_shared(fh, -2, MPI_SEEK_END), "seek shared");
    must(MPI_File_read_ordered(fh, record, rank == ranks - 1 ? 2 : 0, MPI_INT, &st),
         "read ordered");
    if (rank == ranks - 1)
        equal("the last record", record[1], all[2 * RECORDS * ranks - 1]);
    free(seen);
    free(all);
    must(MPI_File_close(&fh), "close");
    remove_file();
}

/* Atomic mode: ranks write the same strided bytes; each reader sees those of one rank. */
static void atomic(void) {
    enum { BLOCKS = 200, BLOCK = 512 };
    MPI_File fh = open_file(MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_Datatype t;
    MPI_Status st;
    char *mine = malloc(BLOCKS * BLOCK);
    MPI_Type_vector(BLOCKS, BLOCK, 2 * BLOCK, MPI_BYTE, &t);
    MPI_Type_commit(&t);
    must(MPI_File_set_view(fh, 0, MPI_BYTE, t, "native", MPI_INFO_NULL), "view");
    must(MPI_File_set_atomicity(fh, 1), "atomic");
    if (rank == 0) {
        memset(mine, 1, BLOCKS * BLOCK);
        must(MPI_File_write_at(fh, 0, mine, BLOCKS * BLOCK, MPI_BYTE, &st), "write");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 8; i++) {
        if ((i + rank) % 2) {
            memset(mine, 1 + rank, BLOCKS * BLOCK);
            must(MPI_File_write_at(fh, 0, mine, BLOCKS * BLOCK, MPI_BYTE, &st), "write");
            continue;
        }
        must(MPI_File_read_at(fh, 0, mine, BLOCKS * BLOCK, MPI_BYTE, &st), "read");
        for (int b = 1; b < BLOCKS * BLOCK; b++)
            equal("all bytes are of one writer", mine[b], mine[0]);
    }
    free(mine);
    MPI_Type_free(&t);
    must(MPI_File_close(&fh), "close");
    remove_file();
}

/* Files that are not ours go to the MPI itself, beside one that is. */
static void others(const char *local) {
    MPI_File mine = open_file(MPI_MODE_CREATE | MPI_MODE_RDWR), theirs;
    MPI_Status st;
    int x = 1000 + rank, y = 0;
    must(MPI_File_open(MPI_COMM_WORLD, local, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL,
                       &theirs),
         "open a local file");
    must(MPI_File_write_at_all(theirs, rank * 4, &x, 1, MPI_INT, &st), "write locally");
    x = 2000 + rank;
    must(MPI_File_write_at_all(mine, rank * 4, &x, 1, MPI_INT, &st), "write");
    must(MPI_File_sync(theirs), "sync locally"); /* another rank may have written it for us */
    MPI_Barrier(MPI_COMM_WORLD);
    must(MPI_File_read_at(theirs, rank * 4, &y, 1, MPI_INT, &st), "read locally");
    equal("local", y, 1000 + rank);
    must(MPI_File_read_at(mine, rank * 4, &y, 1, MPI_INT, &st), "read");
    equal("ours", y, 2000 + rank);
    must(MPI_File_close(&theirs), "close");
    must(MPI_File_close(&mine), "close");
    remove_file();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        FILE *f = fopen(local, "r");
        equal("the local file is there", f != NULL && fread(&y, 4, 1, f) == 1, 1);
        fclose(f);
        equal("its bytes", y, 1000);
        must(MPI_File_delete(local, MPI_INFO_NULL), "delete locally");
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 3)
        die("usage: calls FILE LOCAL-FILE");
    name = argv[1];
    amodes();
    handlers();
    hints();
    wishes();
    views();
    same_memory();
    shared("automatic");
    shared("rma");
    atomic();
    others(argv[2]);
    if (rank == 0)
        printf("ok: calls\n");
    MPI_Finalize();
    return 0;
}
