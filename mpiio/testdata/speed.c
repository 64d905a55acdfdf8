/* How fast: the same accesses on any file that MPI can open.
 *
 *   mpiexec -n 4 speed FILE PATTERN write|read|cold PASSES [KEY=VALUE of a hint]...
 *
 * contiguous: each rank has 64 MiB of its own, in requests of 1 MiB.
 * tiles: an array of displays of 1024 x 768 elements of 24 bytes, one for each rank; 4 frames.
 * tiles-all: the same by collective calls.
 * columns-N: elements of N bytes, dealt out in turn, 65536 of them or 8 MiB of each rank, by
 *   collective calls.
 * easy: records of 47008 bytes, each rank its own 256 of them in a row.
 * hard: the same records, dealt out in turn.
 *
 * write makes the file and leaves it there; read and cold want one that the same pattern has
 * written. cold is for file systems of the kernel, which drops its pages of the file before each
 * pass; those of servers stay in their caches.
 *
 * It prints MiB/s of all ranks together, from the first that begins to the last that ends: the
 * median of the passes. One more comes before them: it is checked, and does not count. */
#include "types.h"

#include <fcntl.h>
#include <unistd.h>

enum { MIB = 1 << 20, PASSES_MAX = 100 };

static int rank, ranks;
static MPI_Info info;

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct pattern {
    MPI_Datatype type; /* filetype */
    MPI_Offset disp;
    int64_t bytes; /* of a rank and pass */
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

/* What the kernel has of a file is written, and forgotten. */
static void drop(const char *name) {
    int fd = rank == 0 ? open(name, O_RDWR) : 0;
    if (rank == 0 && (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)))
        die("the kernel's pages cannot be dropped");
    if (rank == 0)
        close(fd);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void measure(const char *name, const struct pattern *p, const char *op, int passes) {
    MPI_File fh;
    double mibs[PASSES_MAX];
    int write = strcmp(op, "write") == 0, cold = strcmp(op, "cold") == 0;
    char *buf = malloc((size_t)p->bytes);
    must(MPI_File_open(MPI_COMM_WORLD, name,
                       write ? MPI_MODE_CREATE | MPI_MODE_RDWR : MPI_MODE_RDONLY, info, &fh),
         "open");
    must(MPI_File_set_view(fh, p->disp, MPI_BYTE, p->type, "native", info), "view");
    fill(buf, p->bytes);
    for (int i = -1; i < passes; i++) {
        if (!write)
            memset(buf, 0, (size_t)p->bytes);
        if (cold)
            drop(name);
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        once(fh, p, buf, write);
        MPI_Barrier(MPI_COMM_WORLD);
        if (i >= 0)
            mibs[i] = (double)p->bytes * ranks / MIB / (MPI_Wtime() - begin);
        else
            check(buf, p->bytes);
    }
    must(MPI_File_close(&fh), "close");
    qsort(mibs, (size_t)passes, sizeof *mibs, by_size);
    if (rank == 0)
        printf("%.1f MiB/s\n", mibs[passes / 2]);
    free(buf);
}

static struct pattern contiguous(void) {
    return (struct pattern){MPI_BYTE, (MPI_Offset)rank * 64 * MIB, 64 * MIB, MIB, 0};
}

static struct pattern tiles(int all) {
    enum { WIDE = 1024 * 24, HIGH = 768 };
    int across = 1;
    while ((across + 1) * (across + 1) <= ranks || ranks % across)
        across++;
    int down = ranks / across, sizes[2] = {HIGH * down, WIDE * across}, sub[2] = {HIGH, WIDE};
    int start[2] = {rank / across * HIGH, rank % across * WIDE};
    struct pattern p = {.bytes = 4LL * WIDE * HIGH, .request = WIDE * HIGH, .all = all};
    MPI_Type_create_subarray(2, sizes, sub, start, MPI_ORDER_C, MPI_BYTE, &p.type);
    MPI_Type_commit(&p.type);
    return p;
}

/* Elements that are dealt out in turn. */
static MPI_Datatype dealt(int element) {
    MPI_Datatype t, out;
    MPI_Type_contiguous(element, MPI_BYTE, &t);
    MPI_Type_create_resized(t, 0, (MPI_Aint)element * ranks, &out);
    MPI_Type_commit(&out);
    MPI_Type_free(&t);
    return out;
}

static struct pattern columns(int element) {
    int bytes = element < 128 ? element * 65536 : 8 * MIB / element * element;
    return (struct pattern){dealt(element), (MPI_Offset)rank * element, bytes, bytes, 1};
}

/* ior's patterns: one call for each record. */
enum { RECORD = 47008, RECORDS = 256 };

static struct pattern records(int hard) {
    int64_t bytes = RECORD * RECORDS;
    if (hard)
        return (struct pattern){dealt(RECORD), (MPI_Offset)rank * RECORD, bytes, RECORD, 0};
    return (struct pattern){MPI_BYTE, rank * bytes, bytes, RECORD, 0};
}

static struct pattern pattern_of(const char *name) {
    if (strcmp(name, "contiguous") == 0)
        return contiguous();
    if (strncmp(name, "tiles", 5) == 0)
        return tiles(strcmp(name, "tiles-all") == 0);
    if (strncmp(name, "columns-", 8) == 0 && atoi(name + 8) > 0)
        return columns(atoi(name + 8));
    if (strcmp(name, "easy") != 0 && strcmp(name, "hard") != 0)
        die("there is no such pattern");
    return records(strcmp(name, "hard") == 0);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int passes = argc < 5 ? 0 : atoi(argv[4]);
    if (passes < 1 || passes > PASSES_MAX)
        die("usage: speed FILE PATTERN write|read|cold PASSES [KEY=VALUE]...");
    MPI_Info_create(&info);
    for (int i = 5; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            die("a hint is KEY=VALUE");
        *value++ = 0;
        MPI_Info_set(info, argv[i], value);
    }
    struct pattern p = pattern_of(argv[2]);
    measure(argv[1], &p, argv[3], passes);
    if (p.type != MPI_BYTE)
        MPI_Type_free(&p.type);
    MPI_Finalize();
    return 0;
}
