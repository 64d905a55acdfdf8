/* Random views and accesses of several ranks against arrays of bytes.
 *
 *   mpiexec -n 4 model FILE FIRST-SEED SEEDS
 *
 * Every rank works out what all ranks do, keeps the whole file as an array, and compares what it
 * reads, and what each call says about how much there was. */
#include "types.h"

enum { FILE_MAX = 2 << 20, ROUNDS = 6 };

static int rank, ranks;
static uint64_t seed;
static unsigned char *model;
static int64_t model_size;

/* One rank's part in a round. */
struct part {
    struct type etype, file, mem;
    int64_t disp, offset, count, pos; /* offset in etypes; pos in bytes of the stream */
    int64_t bytes;
};

static int64_t stream_off(const struct part *p, int64_t i) {
    return p->disp + i / p->file.n * p->file.extent + p->file.off[i % p->file.n];
}

static void complain(const char *what, int64_t at, int64_t got, int64_t want) {
    fprintf(stderr, "seed %llu rank %d: %s: at %lld: %lld, want %lld\n", (unsigned long long)seed,
            rank, what, (long long)at, (long long)got, (long long)want);
    die(what);
}

static void equal(const char *what, int64_t got, int64_t want) {
    if (got != want)
        complain(what, 0, got, want);
}

/* An etype that divides the filetype: the smallest unit that both are made of is enough. */
static struct type byte_type(void) {
    struct type x = {.n = 1, .extent = 1, .off = calloc(1, sizeof(int64_t))};
    MPI_Type_dup(MPI_BYTE, &x.t);
    return x;
}

static struct type filetype_for(uint64_t *s) {
    for (int tries = 0; tries < 20; tries++) {
        struct type x = random_type(s, (int)pick(s, 1, 3), 1);
        if (good_filetype(&x) && x.extent < 40000)
            return x;
        type_free(&x);
    }
    return byte_type();
}

/* Memory: anything for a write; nothing twice for a read. */
static struct type memtype_for(uint64_t *s, int64_t count) {
    for (int tries = 0; tries < 20; tries++) {
        struct type x = random_type(s, (int)pick(s, 0, 3), 0);
        if (x.n > 0 && !overlaps(&x, count))
            return x;
        type_free(&x);
    }
    return byte_type();
}

/* The filetype with one slot for each rank: they are woven into each other and never overlap. */
static void weave(struct part *p, int r, const int64_t *slot) {
    MPI_Datatype t;
    int64_t before = 0, all = 0;
    for (int i = 0; i < ranks; i++) {
        before += i < r ? slot[i] : 0;
        all += slot[i];
    }
    MPI_Type_create_resized(p->file.t, 0, all, &t);
    MPI_Type_free(&p->file.t);
    p->file.t = t;
    p->file.extent = all;
    p->disp += before;
}

/* All parts of a round, the same at every rank. */
static void make_parts(struct part *p, int round, int64_t base, int write) {
    int64_t slot[64];
    for (int r = 0; r < ranks; r++) {
        uint64_t s = seeded(seed, (uint64_t)round * 64 + 7, (uint64_t)r);
        p[r] = (struct part){.disp = base};
        p[r].file = filetype_for(&s);
        p[r].count = pick(&s, 0, 9) ? pick(&s, 1, 6) : 0;
        p[r].mem = memtype_for(&s, p[r].count);
        p[r].etype = byte_type();
        p[r].bytes = p[r].count * p[r].mem.n;
        p[r].offset = p[r].pos = pick(&s, 0, 3) ? pick(&s, 0, 500) : 0;
        slot[r] = p[r].file.off[p[r].file.n - 1] + 1;
        if (slot[r] < p[r].file.extent)
            slot[r] = p[r].file.extent;
        if (p[r].etype.n == 1 && p[r].file.n % 4 == 0 && p[r].bytes % 4 == 0 && pick(&s, 0, 1)) {
            MPI_Type_free(&p[r].etype.t);
            MPI_Type_contiguous(4, MPI_BYTE, &p[r].etype.t);
            p[r].etype.n = 4;
            p[r].pos = p[r].offset * 4;
        }
    }
    if (write)
        for (int r = 0; r < ranks; r++)
            weave(&p[r], r, slot);
    for (int r = 0; r < ranks; r++) {
        MPI_Type_commit(&p[r].etype.t);
        MPI_Type_commit(&p[r].file.t);
        MPI_Type_commit(&p[r].mem.t);
        /* What would lie behind the model's end is not accessed. */
        while (p[r].bytes > 0 && stream_off(&p[r], p[r].pos + p[r].bytes - 1) >= FILE_MAX) {
            p[r].count--;
            p[r].bytes -= p[r].mem.n;
        }
        if (p[r].bytes % p[r].etype.n)
            p[r].count = p[r].bytes = 0;
    }
}

static void free_parts(struct part *p) {
    for (int r = 0; r < ranks; r++) {
        type_free(&p[r].etype);
        type_free(&p[r].file);
        type_free(&p[r].mem);
    }
}

/* Memory for a part, with room on both sides for negative offsets. */
static unsigned char *memory(const struct part *p, int64_t *zero, int64_t *size) {
    int64_t lo = 0, hi = 1;
    for (int64_t c = 0; c < p->count; c++)
        for (int64_t i = 0; i < p->mem.n; i++) {
            int64_t o = c * p->mem.extent + p->mem.off[i];
            lo = o < lo ? o : lo;
            hi = o >= hi ? o + 1 : hi;
        }
    *zero = 32 - lo;
    *size = hi - lo + 64;
    unsigned char *m = malloc((size_t)*size);
    memset(m, 0xee, (size_t)*size);
    return m;
}

static unsigned char content(int round, int r, int64_t i) {
    return (unsigned char)(seed * 31 + (uint64_t)round * 17 + (uint64_t)r * 101 + (uint64_t)i * 7 +
                           (uint64_t)(i >> 8));
}

enum how {
    AT,
    AT_ALL,
    POINTER,
    POINTER_ALL,
    IAT,
    IAT_ALL,
    IPOINTER,
    IPOINTER_ALL,
    SPLIT_AT,
    SPLIT,
    ORDERED,
    SPLIT_ORDERED,
    HOWS
};

static MPI_Offset seek_to(MPI_File fh, const struct part *p) {
    must(MPI_File_seek(fh, p->offset, MPI_SEEK_SET), "seek");
    return p->offset;
}

#define EITHER(name, ...)                                                                          \
    (write ? MPI_File_write##name(__VA_ARGS__) : MPI_File_read##name(__VA_ARGS__))
#define IEITHER(name, ...)                                                                         \
    (write ? MPI_File_iwrite##name(__VA_ARGS__) : MPI_File_iread##name(__VA_ARGS__))

static void access_file(MPI_File fh, const struct part *p, enum how how, int write, void *b,
                        MPI_Status *st) {
    MPI_Request rq = MPI_REQUEST_NULL;
    int n = (int)p->count, rc = MPI_SUCCESS;
    MPI_Datatype t = p->mem.t;
    if (how == POINTER || how == POINTER_ALL || how == IPOINTER || how == IPOINTER_ALL ||
        how == SPLIT)
        seek_to(fh, p);
    switch (how) {
    case AT: rc = EITHER(_at, fh, p->offset, b, n, t, st); break;
    case AT_ALL: rc = EITHER(_at_all, fh, p->offset, b, n, t, st); break;
    case POINTER: rc = EITHER(, fh, b, n, t, st); break;
    case POINTER_ALL: rc = EITHER(_all, fh, b, n, t, st); break;
    case IAT: rc = IEITHER(_at, fh, p->offset, b, n, t, &rq); break;
    case IAT_ALL: rc = IEITHER(_at_all, fh, p->offset, b, n, t, &rq); break;
    case IPOINTER: rc = IEITHER(, fh, b, n, t, &rq); break;
    case IPOINTER_ALL: rc = IEITHER(_all, fh, b, n, t, &rq); break;
    case SPLIT_AT:
        must(EITHER(_at_all_begin, fh, p->offset, b, n, t), "begin");
        rc = EITHER(_at_all_end, fh, b, st);
        break;
    case SPLIT:
        must(EITHER(_all_begin, fh, b, n, t), "begin");
        rc = EITHER(_all_end, fh, b, st);
        break;
    case ORDERED: rc = EITHER(_ordered, fh, b, n, t, st); break;
    default:
        must(EITHER(_ordered_begin, fh, b, n, t), "begin");
        rc = EITHER(_ordered_end, fh, b, st);
    }
    must(rc, write ? "write" : "read");
    if (rq != MPI_REQUEST_NULL)
        must(MPI_Wait(&rq, st), "wait");
}

/* Ordered accesses have one view for all, and places behind each other. */
static void order_parts(struct part *p) {
    int64_t at = p[0].offset;
    for (int r = 0; r < ranks; r++) {
        if (r > 0) {
            type_free(&p[r].file);
            type_free(&p[r].etype);
            MPI_Type_dup(p[0].file.t, &p[r].file.t);
            MPI_Type_dup(p[0].etype.t, &p[r].etype.t);
            p[r].file.n = p[0].file.n;
            p[r].file.extent = p[0].file.extent;
            p[r].file.off = malloc((size_t)p[0].file.n * sizeof(int64_t));
            memcpy(p[r].file.off, p[0].file.off, (size_t)p[0].file.n * sizeof(int64_t));
            p[r].etype.n = p[0].etype.n;
            p[r].etype.off = calloc(8, sizeof(int64_t));
        }
        p[r].disp = p[0].disp;
        p[r].offset = at;
        p[r].pos = at * p[0].etype.n;
        if (p[r].bytes % p[0].etype.n ||
            (p[r].bytes && stream_off(&p[r], p[r].pos + p[r].bytes - 1) >= FILE_MAX))
            p[r].count = p[r].bytes = 0;
        at += p[r].bytes / p[0].etype.n;
    }
}

static void write_round(MPI_File fh, int round, uint64_t *s, int64_t base) {
    struct part parts[64], *me = &parts[rank];
    enum how how = (enum how)pick(s, 0, HOWS - 1);
    int64_t zero, size;
    MPI_Status st;
    make_parts(parts, round, base, 1);
    if (how >= ORDERED)
        order_parts(parts);
    must(MPI_File_set_view(fh, me->disp, me->etype.t, me->file.t, "native", MPI_INFO_NULL), "view");
    if (how >= ORDERED)
        must(MPI_File_seek_shared(fh, parts[0].offset, MPI_SEEK_SET), "seek shared");
    unsigned char *m = memory(me, &zero, &size);
    for (int64_t i = 0; i < me->bytes; i++)
        m[zero + i / me->mem.n * me->mem.extent + me->mem.off[i % me->mem.n]] =
            content(round, rank, i);
    access_file(fh, me, how, 1, m + zero, &st);
    MPI_Count n;
    MPI_Get_elements_x(&st, MPI_BYTE, &n);
    equal("written", n, me->bytes);
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < parts[r].bytes; i++) {
            int64_t o = stream_off(&parts[r], parts[r].pos + i);
            model[o] = content(round, r, i);
            model_size = o >= model_size ? o + 1 : model_size;
        }
    free(m);
    free_parts(parts);
}

static void check_memory(const struct part *p, const unsigned char *m, int64_t zero, int64_t size,
                         int64_t valid) {
    unsigned char *mine = calloc(1, (size_t)size);
    for (int64_t i = 0; i < p->bytes; i++) {
        int64_t at = zero + i / p->mem.n * p->mem.extent + p->mem.off[i % p->mem.n];
        mine[at] = 1;
        if (i < valid && m[at] != model[stream_off(p, p->pos + i)])
            complain("read", i, m[at], model[stream_off(p, p->pos + i)]);
    }
    for (int64_t i = 0; i < size; i++) /* nothing beside it was touched */
        if (!mine[i] && m[i] != 0xee)
            complain("memory beside what was read", i, m[i], 0xee);
    free(mine);
}

/* Positions and offsets of the view, by its typemap. */
static void check_positions(MPI_File fh, const struct part *p, enum how how, int64_t valid) {
    MPI_Offset at, byte;
    if (how == POINTER || how == POINTER_ALL || how == SPLIT) {
        must(MPI_File_get_position(fh, &at), "position");
        if (valid == p->bytes)
            equal("position", at, p->offset + p->bytes / p->etype.n);
    }
    must(MPI_File_get_byte_offset(fh, p->offset, &byte), "byte offset");
    equal("byte offset", byte, stream_off(p, p->pos));
    int64_t end = 0;
    while (stream_off(p, end) < model_size)
        end++;
    must(MPI_File_seek(fh, 0, MPI_SEEK_END), "seek to the end");
    must(MPI_File_get_position(fh, &at), "position");
    equal("end", at, (end + p->etype.n - 1) / p->etype.n);
}

static void read_round(MPI_File fh, int round, uint64_t *s, int64_t base) {
    struct part parts[64], *me = &parts[rank];
    enum how how = (enum how)pick(s, 0, HOWS - 1);
    int64_t zero, size, valid = 0;
    MPI_Status st;
    make_parts(parts, round, base, (int)pick(s, 0, 1));
    if (how >= ORDERED)
        order_parts(parts);
    must(MPI_File_set_view(fh, me->disp, me->etype.t, me->file.t, "native", MPI_INFO_NULL), "view");
    if (how >= ORDERED)
        must(MPI_File_seek_shared(fh, parts[0].offset, MPI_SEEK_SET), "seek shared");
    unsigned char *m = memory(me, &zero, &size);
    access_file(fh, me, how, 0, m + zero, &st);
    while (valid < me->bytes && stream_off(me, me->pos + valid) < model_size)
        valid++;
    MPI_Count n;
    MPI_Get_elements_x(&st, MPI_BYTE, &n);
    equal("read count", n, valid);
    check_memory(me, m, zero, size, valid);
    check_positions(fh, me, how, valid);
    free(m);
    free_parts(parts);
}

/* The whole file by rank 0. */
static void check_file(MPI_File fh) {
    MPI_Offset size;
    must(MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "view");
    must(MPI_File_get_size(fh, &size), "size");
    equal("size", size, model_size);
    unsigned char *all = malloc((size_t)size + 1);
    MPI_Status st;
    int n;
    must(MPI_File_read_at(fh, 0, all, (int)size, MPI_BYTE, &st), "read all");
    MPI_Get_count(&st, MPI_BYTE, &n);
    equal("all", n, size);
    for (int64_t i = 0; i < size; i++)
        if (all[i] != model[i])
            complain("file", i, all[i], model[i]);
    free(all);
}

static MPI_Info hints(uint64_t *s) {
    static const char *const modes[] = {"automatic", "enable", "disable"};
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", modes[pick(s, 0, 2)]);
    MPI_Info_set(info, "romio_cb_read", modes[pick(s, 0, 2)]);
    MPI_Info_set(info, "cb_buffer_size", pick(s, 0, 1) ? "65536" : "1000000");
    MPI_Info_set(info, "striping_unit", "65536");
    if (pick(s, 0, 3) == 0)
        MPI_Info_set(info, "cb_nodes", "1");
    if (pick(s, 0, 5) == 0)
        MPI_Info_set(info, "sluice_shared_pointer", "rma");
    return info;
}

/* Others see what was written after this: MPI's rule. */
static void publish(MPI_File fh, uint64_t *s) {
    int atomic;
    MPI_File_get_atomicity(fh, &atomic);
    if (!atomic || pick(s, 0, 1))
        must(MPI_File_sync(fh), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    if (!atomic)
        must(MPI_File_sync(fh), "sync");
}

static void run_seed(const char *name) {
    uint64_t s = seeded(seed, 0, 0);
    MPI_Info info = hints(&s);
    MPI_File fh;
    memset(model, 0, FILE_MAX);
    model_size = 0;
    must(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_EXCL, info,
                       &fh),
         "open");
    MPI_Info_free(&info);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t base = pick(&s, 0, 2) ? pick(&s, 0, 300) : pick(&s, 0, 400000);
        if (pick(&s, 0, 4) == 0)
            must(MPI_File_set_atomicity(fh, (int)pick(&s, 0, 1)), "atomicity");
        write_round(fh, round, &s, base);
        publish(fh, &s);
        if (pick(&s, 0, 7) == 0) {
            int64_t size = pick(&s, 0, model_size + 1000);
            must(MPI_File_set_size(fh, size), "set size");
            if (size < model_size)
                memset(model + size, 0, (size_t)(model_size - size));
            model_size = size;
        }
        read_round(fh, 100 + round, &s, base);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    check_file(fh);
    must(MPI_File_close(&fh), "close");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        must(MPI_File_delete(name, MPI_INFO_NULL), "delete");
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    int level;
    MPI_Init_thread(&argc, &argv, getenv("MODEL_THREADS") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE,
                    &level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4 || ranks > 64)
        die("usage: model FILE FIRST-SEED SEEDS");
    uint64_t first = strtoull(argv[2], NULL, 10), seeds = strtoull(argv[3], NULL, 10);
    model = malloc(FILE_MAX);
    for (seed = first; seed < first + seeds; seed++) {
        if (rank == 0 && getenv("MODEL_VERBOSE"))
            fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        run_seed(argv[1]);
    }
    if (rank == 0)
        printf("ok: seeds %llu to %llu\n", (unsigned long long)first,
               (unsigned long long)(first + seeds - 1));
    MPI_Finalize();
    return 0;
}
