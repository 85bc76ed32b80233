/* Init, time, the entry of every call, and the log of calls. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api.h"

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static struct tape *loaded;
static atomic_int users;
static double epoch = -1;

static _Atomic(struct call *) calls;
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
static _Atomic double written = -1;

const struct tape *tape(void)
{
    return loaded;
}

static double monotonic(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

uint64_t clock_microseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

double tape_now(void)
{
    double elapsed = monotonic() - epoch;
    return elapsed > 0 ? elapsed * loaded->speed : 0;
}

double tape_when(uint64_t microseconds)
{
    return tape_now() - ((double)clock_microseconds() - (double)microseconds) / 1e6 * loaded->speed;
}

void sleep_seconds(double seconds)
{
    if (!(seconds > 0))
        return;
    if (seconds > 1e9) /* "inf" */
        seconds = 1e9;
    struct timespec left = {.tv_sec = (time_t)seconds};
    left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
    while (nanosleep(&left, &left) != 0)
        ;
}

/* Written beside and renamed, so that a reader never sees half a table. */
static void write_calls(void)
{
    const char *path = getenv("WHYIDLE_NVML_CALLS");
    char beside[4096];
    if (!path || pthread_mutex_trylock(&writing) != 0)
        return;
    written = monotonic();
    snprintf(beside, sizeof beside, "%s.new", path);
    FILE *file = fopen(beside, "w");
    if (file) {
        for (struct call *call = calls; call; call = call->next)
            fprintf(file, "%s %lu\n", call->name, atomic_load(&call->count));
        fclose(file);
        rename(beside, path);
    }
    pthread_mutex_unlock(&writing);
}

__attribute__((destructor)) static void at_exit(void)
{
    write_calls();
}

static void list_call(struct call *call)
{
    for (size_t i = 0; i < loaded->latencies_count; i++)
        if (tape_names(loaded->latencies[i].function, call->name))
            call->microseconds = loaded->latencies[i].microseconds;
    call->next = calls;
    while (!atomic_compare_exchange_weak(&calls, &call->next, call))
        ;
}

static void count_call(struct call *call)
{
    if (!atomic_exchange(&call->listed, true))
        list_call(call);
    atomic_fetch_add(&call->count, 1);
    if (monotonic() - written >= 1)
        write_calls();
    sleep_seconds(call->microseconds / 1e6);
}

int fault_now(const char *function, const struct device *device)
{
    const struct device *gpu = device && device->parent ? device->parent : device;
    double t = tape_now();
    for (size_t i = 0; i < loaded->faults_count; i++) {
        const struct fault *fault = &loaded->faults[i];
        bool here = fault->gpu < 0 || (gpu && fault->gpu == gpu->index);
        if (!here || t < fault->from || t >= fault->to || !tape_names(fault->function, function))
            continue;
        sleep_seconds(fault->hang);
        if (fault->error)
            return fault->error;
    }
    return SUCCESS;
}

static bool known(const struct device *device)
{
    for (int i = 0; i < loaded->gpus_count; i++) {
        const struct device *gpu = loaded->gpus[i];
        if (gpu == device)
            return true;
        for (size_t j = 0; j < gpu->migs_count; j++)
            if (gpu->migs[j] == device)
                return true;
    }
    return false;
}

int enter_system(struct call *call)
{
    if (users <= 0)
        return UNINITIALIZED;
    count_call(call);
    return fault_now(call->name, NULL);
}

int enter_device(struct call *call, const struct device *device)
{
    if (users <= 0)
        return UNINITIALIZED;
    count_call(call);
    if (!known(device))
        return INVALID_ARGUMENT;
    return fault_now(call->name, device);
}

struct reading now(const struct device *device, const char *key)
{
    return tape_at(loaded, device, key, tape_now());
}

int get_uint(const struct device *device, const char *key, unsigned int *out)
{
    struct reading reading = now(device, key);
    if (!out)
        return INVALID_ARGUMENT;
    if (reading.error == SUCCESS)
        *out = (unsigned int)reading.whole;
    return reading.error;
}

int get_u64(const struct device *device, const char *key, uint64_t *out)
{
    struct reading reading = now(device, key);
    if (!out)
        return INVALID_ARGUMENT;
    if (reading.error == SUCCESS)
        *out = reading.whole;
    return reading.error;
}

int put_text(const char *text, char *out, unsigned int size)
{
    if (!text)
        return NOT_SUPPORTED;
    if (!out)
        return INVALID_ARGUMENT;
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

bool mig_enabled(const struct device *device)
{
    struct reading mode = now(device, "mig.enabled");
    return mode.error == SUCCESS && mode.whole == 1;
}

/* The tape is read once; time zero is the first attempt, unless the environment says otherwise. */
static int load(void)
{
    if (loaded)
        return SUCCESS;
    loaded = tape_load(getenv("WHYIDLE_NVML_TAPE"));
    const char *start = getenv("WHYIDLE_NVML_EPOCH");
    epoch = start ? strtod(start, NULL) : monotonic();
    return loaded ? SUCCESS : UNKNOWN;
}

static int start(struct call *call)
{
    pthread_mutex_lock(&starting);
    int result = load();
    pthread_mutex_unlock(&starting);
    if (result != SUCCESS)
        return result;
    count_call(call);
    const char *error = tape_setting(loaded, "init_error");
    if (error && atoi(error) != SUCCESS)
        return atoi(error);
    result = fault_now(call->name, NULL);
    if (result == SUCCESS)
        users++;
    return result;
}

EXPORT int nvmlInitWithFlags(unsigned int flags)
{
    static struct call call = {.name = __func__};
    (void)flags;
    return start(&call);
}

EXPORT int nvmlInit_v2(void)
{
    static struct call call = {.name = __func__};
    return start(&call);
}

EXPORT int nvmlInit(void)
{
    static struct call call = {.name = __func__};
    return start(&call);
}

EXPORT int nvmlShutdown(void)
{
    ENTER_SYSTEM();
    users--;
    write_calls();
    return SUCCESS;
}

EXPORT const char *nvmlErrorString(int result)
{
    static const char *const sentences[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
        "GPU requires restart",
        "The operating system has blocked the request.",
        "RM has detected an NVML/RM version mismatch.",
        "Operation cannot be performed because the GPU is currently in use",
        "Insufficient Memory",
        "No data",
        "The requested vgpu operation is not available on target device, because ECC is enabled",
        "Insufficient Resources",
        "The requested frequency is not supported",
        "Argument version mismatch",
        "Deprecated",
        "Not Ready",
        "GPU not found",
        "Invalid state",
    };
    if (result >= 0 && (size_t)result < sizeof sentences / sizeof *sentences)
        return sentences[result];
    return "Unknown Error";
}

static int setting(const char *key, char *out, unsigned int size)
{
    return put_text(tape_setting(loaded, key), out, size);
}

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned int size)
{
    ENTER_SYSTEM();
    return setting("driver_version", out, size);
}

EXPORT int nvmlSystemGetNVMLVersion(char *out, unsigned int size)
{
    ENTER_SYSTEM();
    return setting("nvml_version", out, size);
}

static int cuda_version(int *out)
{
    const char *version = tape_setting(loaded, "cuda_driver_version");
    if (!out)
        return INVALID_ARGUMENT;
    if (!version)
        return NOT_SUPPORTED;
    *out = atoi(version);
    return SUCCESS;
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *out)
{
    ENTER_SYSTEM();
    return cuda_version(out);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    ENTER_SYSTEM();
    return cuda_version(out);
}
