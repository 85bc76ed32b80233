/* Finding devices, and what they are called. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api.h"

struct pci {
    char legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct pci_ext {
    unsigned int version, domain, bus, device, device_id, subsystem_id, class, subclass;
    char bus_id[32];
};

struct uuid {
    unsigned int version, type;
    char text[41];
};

/* Finding devices ------------------------------------------------------------------------------ */

EXPORT int nvmlDeviceGetCount_v2(unsigned int *count)
{
    ENTER_SYSTEM();
    if (!count)
        return INVALID_ARGUMENT;
    *count = (unsigned int)tape()->gpus_count;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct device **device)
{
    ENTER_SYSTEM();
    if (!device || index >= (unsigned int)tape()->gpus_count)
        return INVALID_ARGUMENT;
    *device = tape()->gpus[index];
    return fault_now(__func__, *device);
}

static bool has_text(const struct device *device, const char *key, const char *text)
{
    const char *own = tape_text(device, key);
    return own && strcasecmp(own, text) == 0;
}

static int find(const char *function, const char *key, const char *text, struct device **device)
{
    if (!text || !device)
        return INVALID_ARGUMENT;
    *device = NULL;
    for (int i = 0; i < tape()->gpus_count; i++) {
        struct device *gpu = tape()->gpus[i];
        if (has_text(gpu, key, text))
            *device = gpu;
        for (size_t j = 0; j < gpu->migs_count; j++)
            if (has_text(gpu->migs[j], key, text))
                *device = gpu->migs[j];
    }
    return *device ? fault_now(function, *device) : NOT_FOUND;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device)
{
    ENTER_SYSTEM();
    return find(__func__, "uuid", uuid, device);
}

EXPORT int nvmlDeviceGetHandleByUUIDV(const struct uuid *uuid, struct device **device)
{
    ENTER_SYSTEM();
    if (!uuid || uuid->type != 1) /* 1: ASCII */
        return INVALID_ARGUMENT;
    return find(__func__, "uuid", uuid->text, device);
}

EXPORT int nvmlDeviceGetHandleBySerial(const char *serial, struct device **device)
{
    ENTER_SYSTEM();
    return find(__func__, "serial", serial, device);
}

/* "00000000:19:00.0", with or without the domain */
static bool read_bus_id(const char *text, struct pci *pci)
{
    if (!text)
        return false;
    pci->domain = 0;
    return sscanf(text, "%x:%x:%x.", &pci->domain, &pci->bus, &pci->device) == 3 ||
           (pci->domain = 0, sscanf(text, "%x:%x.", &pci->bus, &pci->device) == 2);
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct device **device)
{
    ENTER_SYSTEM();
    struct pci wanted, own;
    if (!device || !read_bus_id(bus_id, &wanted))
        return INVALID_ARGUMENT;
    for (int i = 0; i < tape()->gpus_count; i++) {
        struct device *gpu = tape()->gpus[i];
        if (read_bus_id(tape_text(gpu, "pci_bus_id"), &own) && own.domain == wanted.domain &&
            own.bus == wanted.bus && own.device == wanted.device) {
            *device = gpu;
            return fault_now(__func__, gpu);
        }
    }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetIndex(struct device *device, unsigned int *index)
{
    ENTER(device);
    if (!index)
        return INVALID_ARGUMENT;
    *index = (unsigned int)device->index;
    return SUCCESS;
}

/* Names ---------------------------------------------------------------------------------------- */

EXPORT int nvmlDeviceGetName(struct device *device, char *out, unsigned int size)
{
    ENTER(device);
    char name[160];
    if (!device->parent)
        return put_text(tape_text(device, "name"), out, size);
    const char *gpu = tape_text(device->parent, "name"), *profile = tape_text(device, "profile");
    snprintf(name, sizeof name, "%s MIG %s", gpu ? gpu : "", profile ? profile : "");
    return put_text(name, out, size);
}

#define TEXT(FUNCTION, KEY)                                                     \
    EXPORT int FUNCTION(struct device *device, char *out, unsigned int size)    \
    {                                                                           \
        ENTER(device);                                                          \
        return put_text(tape_text(device, KEY), out, size);                     \
    }

TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetVbiosVersion, "vbios_version")
TEXT(nvmlDeviceGetBoardPartNumber, "part_number")

static int get_pci(const struct device *device, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    if (!read_bus_id(tape_text(device, "pci_bus_id"), pci))
        return NOT_SUPPORTED;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff,
             pci->device & 0xff);
    snprintf(pci->legacy, sizeof pci->legacy, "%04X:%02X:%02X.0", pci->domain & 0xffff,
             pci->bus & 0xff, pci->device & 0xff);
    get_uint(device, "pci.device_id", &pci->device_id);
    get_uint(device, "pci.subsystem_id", &pci->subsystem_id);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci *pci)
{
    ENTER(device);
    return pci ? get_pci(device, pci) : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetPciInfoExt(struct device *device, struct pci_ext *out)
{
    ENTER(device);
    struct pci pci;
    if (!out)
        return INVALID_ARGUMENT;
    if (out->version != (sizeof *out | 1 << 24))
        return VERSION_MISMATCH;
    int result = get_pci(device, &pci);
    if (result != SUCCESS)
        return result;
    *out = (struct pci_ext){out->version,  pci.domain,       pci.bus, pci.device,
                            pci.device_id, pci.subsystem_id, 3,       2,
                            {0}};
    memcpy(out->bus_id, pci.bus_id, sizeof out->bus_id);
    return SUCCESS;
}
