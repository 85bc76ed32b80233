/* GPUs cut into MIG devices. */
#include "api.h"

struct attributes {
    unsigned int sms, copy_engines, decoders, encoders, jpegs, ofas, gi_slices, ci_slices;
    uint64_t memory_mib;
};

EXPORT int nvmlDeviceGetMigMode(struct device *device, unsigned int *current,
                                unsigned int *pending)
{
    ENTER(device);
    if (!current || !pending || device->parent)
        return INVALID_ARGUMENT;
    int result = get_uint(device, "mig.enabled", current);
    if (result == SUCCESS && get_uint(device, "mig.pending", pending) != SUCCESS)
        *pending = *current;
    return result;
}

/* 0 where MIG is not to be had, as the documentation says. */
EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned int *count)
{
    ENTER(device);
    if (!count)
        return INVALID_ARGUMENT;
    *count = mig_enabled(device) ? 7 : 0;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned int index,
                                               struct device **mig)
{
    ENTER(device);
    if (!mig || device->parent)
        return INVALID_ARGUMENT;
    if (!mig_enabled(device))
        return NOT_SUPPORTED;
    if (index >= device->migs_count)
        return NOT_FOUND;
    *mig = device->migs[index];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct device *mig, struct device **device)
{
    ENTER(mig);
    if (!device || !mig->parent)
        return INVALID_ARGUMENT;
    *device = mig->parent;
    return SUCCESS;
}

EXPORT int nvmlDeviceIsMigDeviceHandle(struct device *device, unsigned int *is_mig)
{
    ENTER(device);
    if (!is_mig)
        return INVALID_ARGUMENT;
    *is_mig = device->parent != NULL;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetGpuInstanceId(struct device *device, unsigned int *id)
{
    ENTER(device);
    if (!id)
        return INVALID_ARGUMENT;
    if (!device->parent)
        return NOT_SUPPORTED;
    *id = device->gi;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetComputeInstanceId(struct device *device, unsigned int *id)
{
    ENTER(device);
    if (!id)
        return INVALID_ARGUMENT;
    if (!device->parent)
        return NOT_SUPPORTED;
    *id = device->ci;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetAttributes_v2(struct device *device, struct attributes *out)
{
    ENTER(device);
    if (!out)
        return INVALID_ARGUMENT;
    *out = (struct attributes){0};
    int result = get_uint(device, "attributes.sms", &out->sms);
    if (result != SUCCESS)
        return result;
    get_uint(device, "attributes.gi_slices", &out->gi_slices);
    get_uint(device, "attributes.ci_slices", &out->ci_slices);
    if (get_u64(device, "memory.total", &out->memory_mib) == SUCCESS)
        out->memory_mib >>= 20;
    return SUCCESS;
}
