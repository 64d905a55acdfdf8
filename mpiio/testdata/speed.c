/* How fast: the same accesses on any file that MPI can open.
 *
 *   mpiexec -n 4 speed FILE contiguous|tiles|columns|sweep [KEY=VALUE of a hint]...
 *
 * contiguous: each rank has 64 MiB of its own, in requests of 1 MiB.
 * tiles: an array of displays of 1024 x 768 elements of 24 bytes, one for each rank; 4 frames.
 * columns: elements of 4 bytes, dealt out in turn, 65536 of them or 8 MiB of each rank.
 * sweep: the same with elements of 4 bytes to 64 KiB.
 *
 * A line has MiB/s of all ranks together, from the first that begins to the last that ends: the
 * median of several rounds, and the least and the most. Reads follow writes, so that both are of
 * servers' caches, or of the kernel's. */
#include "types.h"

enum { ROUNDS = 7, MIB = 1 << 20 };

static int rank, ranks;
static MPI_Info info;

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *what, double *mibs) {
    qsort(mibs, ROUNDS, sizeof *mibs, by_size);
    if (rank == 0)
        printf("%-28s %8.0f MiB/s  (%.0f to %.0f)\n", what, mibs[ROUNDS / 2], mibs[0],
               mibs[ROUNDS - 1]);
}

struct pattern {
    const char *name;
    MPI_Datatype type; /* filetype */
    MPI_Offset disp;
    int64_t bytes; /* of a rank and round */
    int request;   /* bytes of one call */
    int all;       /* collective */
};

static void once(MPI_File fh, const struct pattern *p, char *buf, int write) {
    MPI_Status st;
    int n;
    for (int64_t at = 0; at < p->bytes; at += p->request) {
        int rc;
        if (p->all)
            rc = write ? MPI_File_write_at_all(fh, at, buf + at, p->request, MPI_BYTE, &st)
                       : MPI_File_read_at_all(fh, at, buf + at, p->request, MPI_BYTE, &st);
        else
            rc = write ? MPI_File_write_at(fh, at, buf + at, p->request, MPI_BYTE, &st)
                       : MPI_File_read_at(fh, at, buf + at, p->request, MPI_BYTE, &st);
        must(rc, write ? "write" : "read");
        MPI_Get_count(&st, MPI_BYTE, &n);
        if (n != p->request)
            die("less than asked for");
    }
}

static void fill(char *buf, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        buf[i] = (char)(i * 7 + rank * 13);
}

static void check(const char *buf, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (buf[i] != (char)(i * 7 + rank * 13))
            die("other bytes than were written");
}

static void measure(const char *name, const struct pattern *p) {
    MPI_File fh;
    double mibs[ROUNDS];
    char *buf = malloc((size_t)p->bytes), what[64];
    must(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &fh), "open");
    must(MPI_File_set_view(fh, p->disp, MPI_BYTE, p->type, "native", info), "view");
    fill(buf, p->bytes);
    for (int write = 1; write >= 0; write--) {
        for (int i = -1; i < ROUNDS; i++) { /* the first is not counted: it makes the file */
            if (!write)
                memset(buf, 0, (size_t)p->bytes);
            MPI_Barrier(MPI_COMM_WORLD);
            double begin = MPI_Wtime();
            once(fh, p, buf, write);
            MPI_Barrier(MPI_COMM_WORLD);
            if (i >= 0)
                mibs[i] = (double)p->bytes * ranks / MIB / (MPI_Wtime() - begin);
        }
        snprintf(what, sizeof what, "%s %s%s", p->name, write ? "write" : "read",
                 p->all ? ", collective" : "");
        report(what, mibs);
    }
    check(buf, p->bytes);
    must(MPI_File_close(&fh), "close");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        must(MPI_File_delete(name, MPI_INFO_NULL), "delete");
    free(buf);
}

static void contiguous(const char *name) {
    struct pattern p = {"contiguous 1 MiB", MPI_BYTE, (MPI_Offset)rank * 64 * MIB,
                        64 * MIB,           MIB,      0};
    measure(name, &p);
}

static void tiles(const char *name) {
    enum { WIDE = 1024 * 24, HIGH = 768 };
    int across = 1;
    while ((across + 1) * (across + 1) <= ranks || ranks % across)
        across++;
    int down = ranks / across, sizes[2] = {HIGH * down, WIDE * across}, sub[2] = {HIGH, WIDE};
    int start[2] = {rank / across * HIGH, rank % across * WIDE};
    struct pattern p = {.name = "tiles", .bytes = 4LL * WIDE * HIGH, .request = WIDE * HIGH};
    MPI_Type_create_subarray(2, sizes, sub, start, MPI_ORDER_C, MPI_BYTE, &p.type);
    MPI_Type_commit(&p.type);
    measure(name, &p);
    p.all = 1;
    measure(name, &p);
    MPI_Type_free(&p.type);
}

static void columns(const char *name, int element, int all) {
    char what[64];
    MPI_Datatype t;
    snprintf(what, sizeof what, "columns of %d", element);
    struct pattern p = {.name = what, .disp = (MPI_Offset)rank * element, .all = all};
    p.bytes = p.request = element < 128 ? element * 65536 : 8 * MIB;
    MPI_Type_contiguous(element, MPI_BYTE, &t);
    MPI_Type_create_resized(t, 0, (MPI_Aint)element * ranks, &p.type);
    MPI_Type_commit(&p.type);
    measure(name, &p);
    MPI_Type_free(&p.type);
    MPI_Type_free(&t);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3)
        die("usage: speed FILE contiguous|tiles|columns|sweep [KEY=VALUE]...");
    MPI_Info_create(&info);
    for (int i = 3; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            die("a hint is KEY=VALUE");
        *value++ = 0;
        MPI_Info_set(info, argv[i], value);
    }
    if (strcmp(argv[2], "contiguous") == 0)
        contiguous(argv[1]);
    else if (strcmp(argv[2], "tiles") == 0)
        tiles(argv[1]);
    else if (strcmp(argv[2], "columns") == 0)
        columns(argv[1], 4, 1);
    else
        for (int element = 4; element <= 64 << 10; element *= 4)
            columns(argv[1], element, 1);
    MPI_Finalize();
    return 0;
}
