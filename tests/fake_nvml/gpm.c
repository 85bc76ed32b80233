/* GPU performance monitoring: what happened between two samples. */
#include <stdio.h>
#include <stdlib.h>

#include "api.h"

struct gpm_sample {
    const struct device *device;
    double t;
};

struct gpm_metric {
    unsigned int id, result;
    double value;
    const char *short_name, *long_name, *unit;
};

/* The array is as long as the caller's binding makes it, so only [0..count) may be touched. */
struct gpm_metrics {
    unsigned int version, count;
    struct gpm_sample *first, *second;
    struct gpm_metric metrics[];
};

struct gpm_support {
    unsigned int version, supported;
};

EXPORT int nvmlGpmQueryDeviceSupport(struct device *device, struct gpm_support *out)
{
    ENTER(device);
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != 1)
        return VERSION_MISMATCH;
    int result = get_uint(device, "gpm.supported", &out->supported);
    if (result != NOT_SUPPORTED)
        return result;
    out->supported = 0; /* an older GPU answers the question, with no */
    return SUCCESS;
}

EXPORT int nvmlGpmSampleAlloc(struct gpm_sample **out)
{
    ENTER_SYSTEM();
    if (!out)
        return INVALID_ARGUMENT;
    *out = calloc(1, sizeof **out);
    return SUCCESS;
}

EXPORT int nvmlGpmSampleFree(struct gpm_sample *sample)
{
    ENTER_SYSTEM();
    if (!sample)
        return INVALID_ARGUMENT;
    free(sample);
    return SUCCESS;
}

static int take(const struct device *device, struct gpm_sample *sample)
{
    unsigned int supported = 0;
    const struct device *gpu = device->parent ? device->parent : device;
    if (!sample)
        return INVALID_ARGUMENT;
    int result = get_uint(gpu, "gpm.supported", &supported);
    if (result != SUCCESS)
        return result;
    if (!supported)
        return NOT_SUPPORTED;
    *sample = (struct gpm_sample){device, tape_now()};
    return SUCCESS;
}

EXPORT int nvmlGpmSampleGet(struct device *device, struct gpm_sample *sample)
{
    ENTER(device);
    return take(device, sample);
}

EXPORT int nvmlGpmMigSampleGet(struct device *device, unsigned int gi, struct gpm_sample *sample)
{
    ENTER(device);
    for (size_t i = 0; i < device->migs_count; i++)
        if (device->migs[i]->gi == gi)
            return take(device->migs[i], sample);
    return INVALID_ARGUMENT;
}

static void name_metric(struct gpm_metric *metric)
{
    static const struct {
        unsigned int id;
        const char *name, *unit;
    } names[] = {
        {1, "GRAPHICS_UTIL", "%"},   {2, "SM_UTIL", "%"},      {3, "SM_OCCUPANCY", "%"},
        {4, "INTEGER_UTIL", "%"},    {5, "ANY_TENSOR_UTIL", "%"}, {7, "HMMA_TENSOR_UTIL", "%"},
        {10, "DRAM_BW_UTIL", "%"},   {11, "FP64_UTIL", "%"},   {12, "FP32_UTIL", "%"},
        {13, "FP16_UTIL", "%"},      {20, "PCIE_TX_PER_SEC", "MiB/s"},
        {21, "PCIE_RX_PER_SEC", "MiB/s"}, {60, "NVLINK_TOTAL_RX_PER_SEC", "MiB/s"},
        {61, "NVLINK_TOTAL_TX_PER_SEC", "MiB/s"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].id == metric->id) {
            metric->short_name = metric->long_name = names[i].name;
            metric->unit = names[i].unit;
        }
    }
}

EXPORT int nvmlGpmMetricsGet(struct gpm_metrics *get)
{
    ENTER_SYSTEM();
    if (!get || !get->first || !get->second || get->count == 0)
        return INVALID_ARGUMENT;
    if (get->version != 1)
        return VERSION_MISMATCH;
    const struct device *device = get->first->device;
    if (!device || get->second->device != device || get->second->t < get->first->t)
        return INVALID_ARGUMENT;
    int fault = fault_now(__func__, device);
    if (fault != SUCCESS)
        return fault;
    for (unsigned int i = 0; i < get->count; i++) {
        struct gpm_metric *metric = &get->metrics[i];
        char key[32];
        snprintf(key, sizeof key, "gpm.%u", metric->id);
        struct reading mean = tape_mean(tape(), device, key, get->first->t, get->second->t);
        metric->result = (unsigned int)mean.error;
        if (mean.error == SUCCESS)
            metric->value = mean.real;
        name_metric(metric);
    }
    return SUCCESS;
}
