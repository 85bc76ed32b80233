/* What every call shares: NVML's return codes, and how a call is entered. */
#ifndef API_H
#define API_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tape.h"

#define EXPORT __attribute__((visibility("default")))

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

/* "No GPU instance", "no compute instance". */
#define NO_ID 0xFFFFFFFFu

/* One exported function: its name, how often it was called, and what a call costs. */
struct call {
    const char *name;
    atomic_ulong count;
    atomic_bool listed;
    double microseconds;
    struct call *next;
};

/* The first line of an exported function. It counts the call and leaves with the error that the
 * real library, or a fault in the tape, would give. */
#define ENTER(device)                                             \
    do {                                                          \
        static struct call call = {.name = __func__};             \
        int entered = enter_device(&call, device);                \
        if (entered != SUCCESS)                                   \
            return entered;                                       \
    } while (0)
#define ENTER_SYSTEM()                                            \
    do {                                                          \
        static struct call call = {.name = __func__};             \
        int entered = enter_system(&call);                        \
        if (entered != SUCCESS)                                   \
            return entered;                                       \
    } while (0)

int enter_device(struct call *call, const struct device *device);
int enter_system(struct call *call);
/* The fault that the tape has now for this function on this GPU; waits if it is a hang. */
int fault_now(const char *function, const struct device *device);

const struct tape *tape(void);
double tape_now(void);
uint64_t clock_microseconds(void); /* since 1970 */
/* The tape time at which the clock showed this. */
double tape_when(uint64_t microseconds);
void sleep_seconds(double seconds);

/* The device's track now, or NOT_SUPPORTED. */
struct reading now(const struct device *device, const char *key);
int get_uint(const struct device *device, const char *key, unsigned int *out);
int get_u64(const struct device *device, const char *key, uint64_t *out);
int put_text(const char *text, char *out, unsigned int size);
bool mig_enabled(const struct device *device);

#endif
