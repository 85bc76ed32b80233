/* The processes on a GPU, and how busy each keeps it. */
#include <stdio.h>
#include <string.h>

#include "api.h"

struct process_v1 {
    unsigned int pid;
    uint64_t memory;
};

struct process_v2 {
    unsigned int pid;
    uint64_t memory;
    unsigned int gi, ci;
};

struct process_detail {
    unsigned int pid;
    uint64_t memory;
    unsigned int gi, ci;
    uint64_t protected_memory;
};

struct detail_list {
    unsigned int version, mode, count;
    struct process_detail *processes;
};

struct sample {
    unsigned int pid;
    uint64_t at;
    unsigned int sm, memory, encoder, decoder;
};

struct sample_info {
    uint64_t at;
    unsigned int pid, sm, memory, encoder, decoder, jpeg, ofa;
};

struct samples_info {
    unsigned int version, count;
    uint64_t last_seen;
    struct sample_info *samples;
};

/* The driver takes a sample six times a second and keeps the last ones. */
enum { MAX_PROCESSES = 256, PERIOD_US = 166667, KEPT = 120, MAX_SAMPLES = 4096 };

static unsigned int pid_of(const struct process *process)
{
    unsigned int pid = 0;
    if (!process->pid_file)
        return process->pid;
    FILE *file = fopen(process->pid_file, "r");
    if (file) {
        if (fscanf(file, "%u", &pid) != 1)
            pid = 0;
        fclose(file);
    }
    return pid;
}

static bool alive(const struct process *process, const struct device *gpu, double t)
{
    double inside = tape_inside(tape(), gpu, t);
    return inside >= process->from && inside < process->to;
}

/* The processes of one kind that a GPU, or a MIG device, has now. */
static unsigned int list(const struct device *device, char type, struct process_detail *found)
{
    const struct device *gpu = device->parent ? device->parent : device;
    unsigned int count = 0;
    for (size_t i = 0; i < gpu->processes_count && count < MAX_PROCESSES; i++) {
        const struct process *process = &gpu->processes[i];
        if (!strchr(process->type, type) || !alive(process, gpu, tape_now()))
            continue;
        if (device->parent && (process->gi != device->gi || process->ci != device->ci))
            continue;
        unsigned int pid = pid_of(process);
        if (pid)
            found[count++] =
                (struct process_detail){pid, process->memory, process->gi, process->ci, 0};
    }
    return count;
}

/* The caller asks with too little room first, to learn how much it needs. */
static int list_into(const struct device *device, char type, unsigned int *count, const void *out,
                     struct process_detail *found)
{
    if (!count)
        return INVALID_ARGUMENT;
    unsigned int room = *count;
    *count = list(device, type, found);
    return *count > room || (*count && !out) ? INSUFFICIENT_SIZE : SUCCESS;
}

static int get_v1(const struct device *device, char type, unsigned int *count,
                  struct process_v1 *out)
{
    struct process_detail found[MAX_PROCESSES];
    int result = list_into(device, type, count, out, found);
    for (unsigned int i = 0; result == SUCCESS && i < *count; i++)
        out[i] = (struct process_v1){found[i].pid, found[i].memory};
    return result;
}

static int get_v2(const struct device *device, char type, unsigned int *count,
                  struct process_v2 *out)
{
    struct process_detail found[MAX_PROCESSES];
    int result = list_into(device, type, count, out, found);
    for (unsigned int i = 0; result == SUCCESS && i < *count; i++)
        out[i] = (struct process_v2){found[i].pid, found[i].memory, found[i].gi, found[i].ci};
    return result;
}

#define PROCESSES(FUNCTION, TYPE)                                                                 \
    EXPORT int FUNCTION(struct device *device, unsigned int *count, struct process_v1 *out)       \
    {                                                                                             \
        ENTER(device);                                                                            \
        return get_v1(device, TYPE, count, out);                                                  \
    }                                                                                             \
    EXPORT int FUNCTION##_v2(struct device *device, unsigned int *count, struct process_v2 *out)  \
    {                                                                                             \
        ENTER(device);                                                                            \
        return get_v2(device, TYPE, count, out);                                                  \
    }                                                                                             \
    EXPORT int FUNCTION##_v3(struct device *device, unsigned int *count, struct process_v2 *out)  \
    {                                                                                             \
        ENTER(device);                                                                            \
        return get_v2(device, TYPE, count, out);                                                  \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, 'C')
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, 'G')
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, 'M')

EXPORT int nvmlDeviceGetRunningProcessDetailList(struct device *device, struct detail_list *out)
{
    ENTER(device);
    struct process_detail found[MAX_PROCESSES];
    if (!out || out->mode > 2)
        return INVALID_ARGUMENT;
    if (out->version != (sizeof *out | 1 << 24))
        return VERSION_MISMATCH;
    unsigned int room = out->count;
    out->count = list(device, "CGM"[out->mode], found);
    if (out->count > room || (out->count && !out->processes))
        return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < out->count; i++)
        out->processes[i] = found[i];
    return SUCCESS;
}

EXPORT int nvmlSystemGetProcessName(unsigned int pid, char *out, unsigned int size)
{
    ENTER_SYSTEM();
    char path[64], name[1024] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return NOT_FOUND;
    size_t length = fread(name, 1, sizeof name - 1, file);
    fclose(file);
    name[length] = '\0';
    return put_text(name, out, size);
}

/* One sample of one process at one time; a process that did nothing has none. */
static bool sample(const struct process *process, const struct device *gpu, uint64_t at,
                   struct sample *out)
{
    const unsigned int *use = process->use;
    if (!process->has_use || !alive(process, gpu, tape_when(at)))
        return false;
    if (!use[0] && !use[1] && !use[2] && !use[3])
        return false;
    *out = (struct sample){pid_of(process), at, use[0], use[1], use[2], use[3]};
    return out->pid != 0;
}

/* The samples newer than last_seen, oldest first. */
static unsigned int samples_since(const struct device *gpu, uint64_t last_seen,
                                  struct sample *found)
{
    uint64_t latest = clock_microseconds() / PERIOD_US;
    uint64_t slot = latest > KEPT ? latest - KEPT + 1 : 1;
    unsigned int count = 0;
    if (slot <= last_seen / PERIOD_US)
        slot = last_seen / PERIOD_US + 1;
    for (; slot <= latest; slot++) {
        uint64_t at = slot * PERIOD_US;
        if (tape_when(at) < 0)
            continue;
        for (size_t i = 0; i < gpu->processes_count && count < MAX_SAMPLES; i++)
            if (sample(&gpu->processes[i], gpu, at, &found[count]))
                count++;
    }
    return count;
}

static bool has_process_use(const struct device *gpu)
{
    for (size_t i = 0; i < gpu->processes_count; i++)
        if (gpu->processes[i].has_use)
            return true;
    return gpu->processes_count == 0;
}

static int get_samples(const struct device *device, uint64_t last_seen, struct sample *found,
                       unsigned int *count)
{
    if (device->parent || mig_enabled(device) || !has_process_use(device))
        return NOT_SUPPORTED;
    *count = samples_since(device, last_seen, found);
    return *count ? SUCCESS : NOT_FOUND;
}

/* Room is asked for with some to spare: more samples may come before the second call. */
static unsigned int ask(const struct device *device, unsigned int count)
{
    return count + (unsigned int)device->processes_count;
}

EXPORT int nvmlDeviceGetProcessUtilization(struct device *device, struct sample *out,
                                           unsigned int *count, unsigned long long last_seen)
{
    ENTER(device);
    static _Thread_local struct sample found[MAX_SAMPLES];
    unsigned int room = count ? *count : 0, had;
    if (!count)
        return INVALID_ARGUMENT;
    int result = get_samples(device, last_seen, found, &had);
    if (result != SUCCESS)
        return result;
    if (!out || room < had) {
        *count = ask(device, had);
        return INSUFFICIENT_SIZE;
    }
    memcpy(out, found, had * sizeof *out);
    *count = had;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetProcessesUtilizationInfo(struct device *device, struct samples_info *out)
{
    ENTER(device);
    static _Thread_local struct sample found[MAX_SAMPLES];
    unsigned int had;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != (sizeof *out | 1 << 24))
        return VERSION_MISMATCH;
    int result = get_samples(device, out->last_seen, found, &had);
    if (result != SUCCESS)
        return result;
    if (!out->samples || out->count < had) {
        out->count = ask(device, had);
        return INSUFFICIENT_SIZE;
    }
    for (unsigned int i = 0; i < had; i++)
        out->samples[i] = (struct sample_info){found[i].at,      found[i].pid,
                                               found[i].sm,      found[i].memory,
                                               found[i].encoder, found[i].decoder,
                                               0,                0};
    out->count = had;
    return SUCCESS;
}
