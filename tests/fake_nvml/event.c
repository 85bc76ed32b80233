/* Events: the XID errors of the tape, each delivered once to a set that waits for them. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "api.h"

enum { XID_EVENT = 8, MAX_WATCHED = 64 };

struct event {
    const struct device *device;
    uint64_t type, data;
    unsigned int gi, ci;
};

struct event_v1 {
    const struct device *device;
    uint64_t type, data;
};

struct watch {
    const struct device *device;
    uint64_t types;
    size_t next; /* of the device's XID events */
};

struct event_set {
    pthread_mutex_t lock; /* never held while waiting */
    size_t count;
    struct watch watches[MAX_WATCHED];
};

EXPORT int nvmlEventSetCreate(struct event_set **out)
{
    ENTER_SYSTEM();
    if (!out)
        return INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    return SUCCESS;
}

EXPORT int nvmlEventSetFree(struct event_set *set)
{
    ENTER_SYSTEM();
    if (!set)
        return INVALID_ARGUMENT;
    pthread_mutex_destroy(&set->lock);
    free(set);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetSupportedEventTypes(struct device *device, uint64_t *types)
{
    ENTER(device);
    return get_u64(device, "events", types);
}

EXPORT int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types,
                                    struct event_set *set)
{
    ENTER(device);
    uint64_t supported;
    if (!set || device->parent || set->count == MAX_WATCHED)
        return INVALID_ARGUMENT;
    int result = get_u64(device, "events", &supported);
    if (result != SUCCESS)
        return result;
    if (types & ~supported)
        return NOT_SUPPORTED;
    struct watch watch = {.device = device, .types = types};
    while (watch.next < device->xids_count && device->xids[watch.next].t < tape_now())
        watch.next++; /* what came before is not told */
    pthread_mutex_lock(&set->lock);
    set->watches[set->count++] = watch;
    pthread_mutex_unlock(&set->lock);
    return SUCCESS;
}

/* Takes an event that has come; else says in *next when the first is due, in tape time. */
static bool take(struct event_set *set, struct event *out, double *next)
{
    bool found = false;
    *next = INFINITY;
    pthread_mutex_lock(&set->lock);
    for (size_t i = 0; i < set->count && !found; i++) {
        struct watch *watch = &set->watches[i];
        if (!(watch->types & XID_EVENT) || watch->next >= watch->device->xids_count)
            continue;
        const struct xid *xid = &watch->device->xids[watch->next];
        if (xid->t > tape_now()) {
            *next = xid->t < *next ? xid->t : *next;
            continue;
        }
        *out = (struct event){watch->device, XID_EVENT, xid->code, NO_ID, NO_ID};
        watch->next++;
        found = true;
    }
    pthread_mutex_unlock(&set->lock);
    return found;
}

static int wait_event(struct event_set *set, struct event *out, unsigned int timeout_ms)
{
    if (!set || !out)
        return INVALID_ARGUMENT;
    uint64_t deadline = clock_microseconds() + (uint64_t)timeout_ms * 1000;
    double next;
    while (!take(set, out, &next)) {
        uint64_t time = clock_microseconds();
        if (time >= deadline)
            return TIMEOUT;
        double left = (double)(deadline - time) / 1e6;
        double due = (next - tape_now()) / tape()->speed + 1e-4;
        sleep_seconds(due < left ? due : left);
    }
    return SUCCESS;
}

EXPORT int nvmlEventSetWait_v2(struct event_set *set, struct event *out, unsigned int timeout_ms)
{
    ENTER_SYSTEM();
    return wait_event(set, out, timeout_ms);
}

EXPORT int nvmlEventSetWait(struct event_set *set, struct event_v1 *out, unsigned int timeout_ms)
{
    ENTER_SYSTEM();
    struct event event;
    int result = out ? wait_event(set, &event, timeout_ms) : INVALID_ARGUMENT;
    if (result == SUCCESS)
        *out = (struct event_v1){event.device, event.type, event.data};
    return result;
}
