/* Field values, and the driver's buffers of finer samples. */
#include <stdio.h>

#include "api.h"

union value {
    double real;
    unsigned int uint_;
    unsigned long ulong_;
    unsigned long long ullong_;
    long long llong_;
    int int_;
    unsigned short ushort_;
};

enum { DOUBLE, UINT, ULONG, ULLONG, LLONG, INT, USHORT };

struct field_value {
    unsigned int field, scope;
    int64_t at, latency_us;
    unsigned int type, result;
    union value value;
};

struct sample {
    unsigned long long at;
    union value value;
};

/* How many samples the driver keeps, and how far apart they are. */
enum { KEPT = 120, POWER_PERIOD_US = 20000, PERIOD_US = 166667 };

static unsigned int type_of(unsigned int field)
{
    for (size_t i = 0; i < tape()->field_types_count; i++)
        if (tape()->field_types[i].field == field)
            return tape()->field_types[i].type;
    switch (field) {
    case 1: case 2:                                 /* ECC mode */
    case 82:                                        /* memory temperature */
    case 90: case 91:                               /* NVLink speed, number of links */
    case 185: case 186:                             /* power */
    case 187: case 188: case 189: case 190: case 192: /* power limits */
        return UINT;
    case 193: case 194: case 195: case 196:         /* degrees left to a limit */
        return INT;
    default:
        return ULLONG;
    }
}

static union value convert(struct reading reading, unsigned int type)
{
    union value value = {.ullong_ = 0};
    switch (type) {
    case DOUBLE: value.real = reading.real; break;
    case UINT: value.uint_ = (unsigned int)reading.whole; break;
    case ULONG: value.ulong_ = reading.whole; break;
    case LLONG: value.llong_ = (long long)reading.whole; break;
    case INT: value.int_ = (int)reading.whole; break;
    case USHORT: value.ushort_ = (unsigned short)reading.whole; break;
    default: value.ullong_ = reading.whole; break;
    }
    return value;
}

/* "field.138.3" answers scope 3 alone, "field.138" every scope. */
static struct reading read_field(const struct device *device, const struct field_value *value)
{
    char key[64];
    snprintf(key, sizeof key, "field.%u.%u", value->field, value->scope);
    struct reading reading = now(device, key);
    if (reading.error != NOT_SUPPORTED)
        return reading;
    snprintf(key, sizeof key, "field.%u", value->field);
    return now(device, key);
}

EXPORT int nvmlDeviceGetFieldValues(struct device *device, int count, struct field_value *values)
{
    ENTER(device);
    if (count <= 0 || !values)
        return INVALID_ARGUMENT;
    for (int i = 0; i < count; i++) {
        uint64_t start = clock_microseconds();
        struct reading reading = read_field(device, &values[i]);
        values[i].at = (int64_t)start;
        values[i].latency_us = (int64_t)(clock_microseconds() - start);
        values[i].result = (unsigned int)reading.error;
        if (reading.error == SUCCESS) {
            values[i].type = type_of(values[i].field);
            values[i].value = convert(reading, values[i].type);
        }
    }
    return SUCCESS;
}

EXPORT int nvmlDeviceGetSamples(struct device *device, unsigned int kind,
                                unsigned long long last_seen, unsigned int *type,
                                unsigned int *count, struct sample *out)
{
    static const char *const keys[] = {
        "power.usage", "utilization.gpu", "utilization.memory", "encoder",
        "decoder", "clock.sm", "clock.mem", "power.module", "jpeg", "ofa",
    };
    ENTER(device);
    if (!type || !count || kind >= sizeof keys / sizeof *keys)
        return INVALID_ARGUMENT;
    struct reading reading = now(device, keys[kind]);
    if (reading.error != SUCCESS || mig_enabled(device))
        return reading.error ? reading.error : NOT_SUPPORTED;
    uint64_t period = kind == 0 ? POWER_PERIOD_US : PERIOD_US;
    uint64_t latest = clock_microseconds() / period;
    uint64_t slot = latest > KEPT ? latest - KEPT + 1 : 1;
    unsigned int found = 0, room = out ? *count : KEPT;
    if (slot <= last_seen / period)
        slot = last_seen / period + 1;
    for (; slot <= latest && found < room; slot++) {
        double t = tape_when(slot * period);
        if (t < 0)
            continue;
        reading = tape_at(tape(), device, keys[kind], t);
        if (reading.error != SUCCESS)
            continue;
        if (out)
            out[found] = (struct sample){slot * period, convert(reading, UINT)};
        found++;
    }
    *type = UINT;
    /* Without a buffer this is the room to bring, which the real library puts at all it keeps. */
    *count = out ? found : KEPT;
    return found || !out ? SUCCESS : NOT_FOUND;
}
