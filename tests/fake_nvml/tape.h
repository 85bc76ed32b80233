/* What a tape holds, and how it is played. Nothing here changes once the tape is loaded, so calls
 * in different threads read it without a lock. */
#ifndef TAPE_H
#define TAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_GPUS = 64, MAX_MIGS = 16 };

/* One value, or the NVML error that takes its place. Whole keeps all 64 bits, which sentinels need
 * and a double would round. */
struct reading {
    int error;
    double real;
    uint64_t whole;
};

struct point {
    double t;
    struct reading value;
};

enum shape {
    STEPS, /* holds until the next point */
    LINE,  /* straight between points, then holds */
    RAMP,  /* a counter: straight between points, then goes on; a loop adds to it */
};

struct track {
    char *key;
    enum shape shape;
    uint64_t wrap; /* the counter restarts from 0 here; 0: never */
    size_t count;
    struct point *points;
};

struct text {
    char *key;
    char *value;
};

struct process {
    unsigned int pid;
    char *pid_file; /* read at each call when set; the process is absent until it has a number */
    double from, to;
    uint64_t memory;
    unsigned int use[4]; /* sm, memory, encoder, decoder */
    bool has_use;
    char *type; /* letters: C compute, G graphics, M MPS */
    unsigned int gi, ci;
};

struct xid {
    double t;
    uint64_t code;
};

struct device {
    int index;             /* of the GPU, or of the MIG device in its GPU */
    struct device *parent; /* the GPU of a MIG device; NULL for a GPU */
    double shift;          /* this GPU plays the tape so many seconds ahead */
    unsigned int gi, ci;
    size_t tracks_count, texts_count, processes_count, xids_count, migs_count;
    struct track *tracks;
    struct text *texts;
    struct process *processes;
    struct xid *xids;
    struct device *migs[MAX_MIGS];
};

struct fault {
    int gpu; /* -1: every one, and calls that name no GPU */
    char *function;
    double from, to;
    int error;
    double hang;
};

struct latency {
    char *function;
    double microseconds;
};

struct field_type {
    unsigned int field;
    unsigned int type;
};

struct tape {
    double loop, speed;
    int gpus_count;
    struct device *gpus[MAX_GPUS];
    size_t settings_count, faults_count, latencies_count, field_types_count;
    struct text *settings;
    struct fault *faults;
    struct latency *latencies;
    struct field_type *field_types;
};

/* NULL, and a sentence on stderr, if the tape cannot be read. */
struct tape *tape_load(const char *path);

const char *tape_setting(const struct tape *tape, const char *key);
const char *tape_text(const struct device *device, const char *key);

/* The value at tape time t, or over [from, to]; NOT_SUPPORTED if the tape has no such track. */
struct reading tape_at(const struct tape *tape, const struct device *device, const char *key,
                       double t);
struct reading tape_mean(const struct tape *tape, const struct device *device, const char *key,
                         double from, double to);
/* Where in its loop the device is at tape time t. */
double tape_inside(const struct tape *tape, const struct device *device, double t);
/* Whether a name in the tape means this function: nvmlX in a tape also stands for nvmlX_v2. */
bool tape_names(const char *name, const char *function);

#endif
