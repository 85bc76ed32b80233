/* The queries that read a track or two each. */
#include <stdio.h>

#include "api.h"

struct memory {
    uint64_t total, available, used;
};

struct memory_v2 {
    unsigned int version;
    uint64_t total, reserved, available, used;
};

struct temperature {
    unsigned int version, sensor;
    int celsius;
};

struct utilization {
    unsigned int gpu, memory;
};

static const char *const clocks[] = {"graphics", "sm", "mem", "video"};

/* One number each ------------------------------------------------------------------------------ */

#define NUMBER(FUNCTION, KEY)                                                   \
    EXPORT int FUNCTION(struct device *device, unsigned int *out)               \
    {                                                                           \
        ENTER(device);                                                          \
        return get_uint(device, KEY, out);                                      \
    }
#define LONG_NUMBER(FUNCTION, KEY)                                              \
    EXPORT int FUNCTION(struct device *device, uint64_t *out)                   \
    {                                                                           \
        ENTER(device);                                                          \
        return get_u64(device, KEY, out);                                       \
    }
#define TWO_NUMBERS(FUNCTION, FIRST, SECOND)                                    \
    EXPORT int FUNCTION(struct device *device, unsigned int *a, unsigned int *b) \
    {                                                                           \
        ENTER(device);                                                          \
        int result = get_uint(device, FIRST, a);                                \
        return result == SUCCESS ? get_uint(device, SECOND, b) : result;        \
    }

NUMBER(nvmlDeviceGetMinorNumber, "minor_number")
NUMBER(nvmlDeviceGetBrand, "brand")
NUMBER(nvmlDeviceGetArchitecture, "architecture")
NUMBER(nvmlDeviceGetNumGpuCores, "cores")
NUMBER(nvmlDeviceGetMemoryBusWidth, "memory.bus_width")
NUMBER(nvmlDeviceGetNumaNodeId, "numa_node")
NUMBER(nvmlDeviceGetPowerUsage, "power.usage")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power.limit")
NUMBER(nvmlDeviceGetPowerManagementLimit, "power.limit.management")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power.limit.default")
NUMBER(nvmlDeviceGetFanSpeed, "fan")
NUMBER(nvmlDeviceGetNumFans, "fan.count")
NUMBER(nvmlDeviceGetPerformanceState, "pstate")
NUMBER(nvmlDeviceGetPowerState, "pstate")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.gen")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.gen_max")
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.gen_max")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.width_max")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie.replays")
NUMBER(nvmlDeviceGetPcieSpeed, "pcie.speed")
NUMBER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER(nvmlDeviceGetPersistenceMode, "persistence_mode")
NUMBER(nvmlDeviceGetDisplayMode, "display_mode")
NUMBER(nvmlDeviceGetDisplayActive, "display_active")
NUMBER(nvmlDeviceGetPowerManagementMode, "power.management_mode")
LONG_NUMBER(nvmlDeviceGetTotalEnergyConsumption, "energy")
LONG_NUMBER(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event_reasons")
LONG_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event_reasons")
LONG_NUMBER(nvmlDeviceGetSupportedClocksEventReasons, "clocks_event_reasons.supported")
LONG_NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, "clocks_event_reasons.supported")
TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability, "capability.major", "capability.minor")
TWO_NUMBERS(nvmlDeviceGetPowerManagementLimitConstraints, "power.limit.min", "power.limit.max")
TWO_NUMBERS(nvmlDeviceGetEccMode, "ecc.mode", "ecc.mode.pending")
TWO_NUMBERS(nvmlDeviceGetDriverModel, "driver_model", "driver_model.pending")
TWO_NUMBERS(nvmlDeviceGetDriverModel_v2, "driver_model", "driver_model.pending")

/* The driver has one utilisation for a whole GPU, and none once it is cut up. */
static int get_share(const struct device *device, const char *key, unsigned int *out)
{
    return mig_enabled(device) ? NOT_SUPPORTED : get_uint(device, key, out);
}

EXPORT int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *out)
{
    ENTER(device);
    if (!out)
        return INVALID_ARGUMENT;
    int result = get_share(device, "utilization.gpu", &out->gpu);
    return result == SUCCESS ? get_share(device, "utilization.memory", &out->memory) : result;
}

#define ENGINE(FUNCTION, KEY)                                                               \
    EXPORT int FUNCTION(struct device *device, unsigned int *out, unsigned int *period_us)  \
    {                                                                                       \
        ENTER(device);                                                                      \
        if (!period_us)                                                                     \
            return INVALID_ARGUMENT;                                                        \
        *period_us = 166667;                                                                \
        return get_share(device, KEY, out);                                                 \
    }

ENGINE(nvmlDeviceGetEncoderUtilization, "encoder")
ENGINE(nvmlDeviceGetDecoderUtilization, "decoder")
ENGINE(nvmlDeviceGetJpgUtilization, "jpeg")
ENGINE(nvmlDeviceGetOfaUtilization, "ofa")

/* As the header has it: three features, of which a virtual GPU has one. */
struct licences {
    int supported;
    unsigned int count;
    struct {
        unsigned int code, state;
        char info[128], product[128];
        unsigned int enabled;
        uint32_t year;
        uint16_t month, day, hour, min, sec;
        uint8_t status;
    } features[3];
};

EXPORT int nvmlDeviceGetGridLicensableFeatures_v4(struct device *device, struct licences *out)
{
    ENTER(device);
    if (!out)
        return INVALID_ARGUMENT;
    *out = (struct licences){0};
    if (get_uint(device, "license", &out->features[0].state) == SUCCESS)
        out->supported = out->count = out->features[0].enabled = 1;
    return SUCCESS;
}

/* Slow on purpose, as the real one is: it counts bytes for 20 ms. See the latency in README.md. */
EXPORT int nvmlDeviceGetPcieThroughput(struct device *device, unsigned int counter,
                                       unsigned int *out)
{
    static struct call call = {.name = __func__, .microseconds = 20000};
    int entered = enter_device(&call, device);
    if (entered != SUCCESS)
        return entered;
    return get_uint(device, counter == 0 ? "pcie.throughput.tx" : "pcie.throughput.rx", out);
}

/* Memory --------------------------------------------------------------------------------------- */

static int get_memory(const struct device *device, struct memory_v2 *memory)
{
    int result = get_u64(device, "memory.total", &memory->total);
    if (result == SUCCESS)
        result = get_u64(device, "memory.used", &memory->used);
    if (result != SUCCESS)
        return result;
    if (get_u64(device, "memory.reserved", &memory->reserved) != SUCCESS)
        memory->reserved = 0;
    uint64_t taken = memory->used + memory->reserved;
    memory->available = taken < memory->total ? memory->total - taken : 0;
    return SUCCESS;
}

/* The first version counts what the driver reserved as used. */
EXPORT int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *out)
{
    ENTER(device);
    struct memory_v2 memory;
    if (!out)
        return INVALID_ARGUMENT;
    int result = get_memory(device, &memory);
    if (result == SUCCESS)
        *out = (struct memory){memory.total, memory.available, memory.used + memory.reserved};
    return result;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *out)
{
    ENTER(device);
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != (sizeof *out | 2 << 24))
        return VERSION_MISMATCH;
    return get_memory(device, out);
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(struct device *device, struct memory *out)
{
    ENTER(device);
    if (!out)
        return INVALID_ARGUMENT;
    int result = get_u64(device, "bar1.total", &out->total);
    if (result == SUCCESS)
        result = get_u64(device, "bar1.used", &out->used);
    if (result == SUCCESS)
        out->available = out->total > out->used ? out->total - out->used : 0;
    return result;
}

/* Heat, clocks, links, errors ------------------------------------------------------------------ */

EXPORT int nvmlDeviceGetTemperature(struct device *device, unsigned int sensor, unsigned int *out)
{
    ENTER(device);
    return sensor == 0 ? get_uint(device, "temperature", out) : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetTemperatureV(struct device *device, struct temperature *out)
{
    ENTER(device);
    if (!out || out->sensor != 0)
        return INVALID_ARGUMENT;
    if (out->version != (sizeof *out | 1 << 24))
        return VERSION_MISMATCH;
    return get_uint(device, "temperature", (unsigned int *)&out->celsius);
}

EXPORT int nvmlDeviceGetTemperatureThreshold(struct device *device, unsigned int kind,
                                             unsigned int *out)
{
    ENTER(device);
    char key[64];
    snprintf(key, sizeof key, "temperature.threshold.%u", kind);
    return get_uint(device, key, out);
}

static int get_clock(const struct device *device, const char *kind, unsigned int type,
                     unsigned int *out)
{
    char key[64];
    if (type >= sizeof clocks / sizeof *clocks)
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "%s.%s", kind, clocks[type]);
    return get_uint(device, key, out);
}

EXPORT int nvmlDeviceGetClockInfo(struct device *device, unsigned int type, unsigned int *out)
{
    ENTER(device);
    return get_clock(device, "clock", type, out);
}

EXPORT int nvmlDeviceGetMaxClockInfo(struct device *device, unsigned int type, unsigned int *out)
{
    ENTER(device);
    return get_clock(device, "clock.max", type, out);
}

EXPORT int nvmlDeviceGetApplicationsClock(struct device *device, unsigned int type,
                                          unsigned int *out)
{
    ENTER(device);
    return get_clock(device, "clock.application", type, out);
}

EXPORT int nvmlDeviceGetClock(struct device *device, unsigned int type, unsigned int id,
                              unsigned int *out)
{
    static const char *const kinds[] = {"clock", "clock.application", "clock.application_default",
                                        "clock.boost_max"};
    ENTER(device);
    return id < 4 ? get_clock(device, kinds[id], type, out) : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetNvLinkState(struct device *device, unsigned int link, unsigned int *out)
{
    ENTER(device);
    char key[64];
    snprintf(key, sizeof key, "nvlink.%u.active", link);
    return get_uint(device, key, out);
}

static const char *ecc_key(char *key, size_t size, unsigned int error, unsigned int counter)
{
    snprintf(key, size, "ecc.%s.%s", error == 0 ? "corrected" : "uncorrected",
             counter == 0 ? "volatile" : "aggregate");
    return key;
}

EXPORT int nvmlDeviceGetTotalEccErrors(struct device *device, unsigned int error,
                                       unsigned int counter, uint64_t *out)
{
    ENTER(device);
    char key[64];
    return get_u64(device, ecc_key(key, sizeof key, error, counter), out);
}

EXPORT int nvmlDeviceGetMemoryErrorCounter(struct device *device, unsigned int error,
                                           unsigned int counter, unsigned int location,
                                           uint64_t *out)
{
    ENTER(device);
    char key[64], located[96];
    snprintf(located, sizeof located, "%s.%u", ecc_key(key, sizeof key, error, counter), location);
    return get_u64(device, located, out);
}
