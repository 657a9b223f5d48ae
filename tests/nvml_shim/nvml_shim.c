/* A libnvidia-ml.so.1 without a GPU, for black-box tests of the node-agent.
 *
 * The file $DRAY_NVML_SHIM says what there is, and is read again at each call, so that tests change
 * it while the agent runs. One line per fact, words separated by tabs:
 *
 *   driver   VERSION
 *   gpu      INDEX UUID NAME MEMORY_MIB BUS_ID
 *   mig      INDEX UUID NAME MEMORY_MIB|gone GPU_INSTANCE COMPUTE_INSTANCE SLICES
 *   link     INDEX LINK switch|BUS_ID
 *   ecc      INDEX UNCORRECTED
 *   remap    INDEX FAILED
 *   lost     INDEX
 *   fails    INDEX FUNCTION|all STATUS   (all: but for the handle and the UUID)
 *   used     INDEX MEMORY_MIB GPU_PERCENT MEMORY_PERCENT TEMPERATURE POWER_MW
 *   process  INDEX PID MEMORY_MIB
 *   event    NUMBER INDEX XID
 *   hang     FUNCTION
 *
 * Built with -DOLD_DRIVER it lacks the symbols that drivers of 2020 lack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, GPU_IS_LOST = 15,
};
enum { MOST = 64, LINES = 512, WORDS = 10, WORD = 128 };
enum { WATCH_MS = 5 };

typedef struct { int index, mig; } Device; /* mig: position among the card's, or -1 */
typedef struct { char words[WORDS][WORD]; int count; } Line;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} PciInfo;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} Process;
typedef struct {
    void *device;
    unsigned long long eventType, eventData;
    unsigned int gpuInstanceId, computeInstanceId;
} Event;
typedef struct {
    unsigned int multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount,
        sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} Attributes;

static Device devices[MOST][MOST + 1];
static int events_seen, watched[MOST]; /* watched: cards of the newest event set */

static int load(Line *lines)
{
    const char *path = getenv("DRAY_NVML_SHIM");
    FILE *file = path ? fopen(path, "r") : NULL;
    char text[1024];
    int count = 0;
    while (file && count < LINES && fgets(text, sizeof text, file)) {
        Line *line = &lines[count];
        line->count = 0;
        for (char *rest, *word = strtok_r(text, "\t\n", &rest); word && line->count < WORDS;
             word = strtok_r(NULL, "\t\n", &rest))
            snprintf(line->words[line->count++], WORD, "%s", word);
        count += line->count > 0;
    }
    if (file)
        fclose(file);
    return count;
}

/* The n-th line that begins with these words; second may be NULL. */
static int find(const char *first, const char *second, int n, Line *found)
{
    static __thread Line lines[LINES];
    int count = load(lines);
    for (int i = 0; i < count; i++) {
        if (strcmp(lines[i].words[0], first) || (second && strcmp(lines[i].words[1], second)))
            continue;
        if (n-- == 0) {
            *found = lines[i];
            return 1;
        }
    }
    return 0;
}

static int of_card(const char *what, int index, int n, Line *found)
{
    char text[16];
    snprintf(text, sizeof text, "%d", index);
    return find(what, text, n, found);
}

/* Blocks while the file says that this function hangs. */
static void enter(const char *function)
{
    Line line;
    while (find("hang", function, 0, &line))
        usleep(WATCH_MS * 1000);
}

static Device *device(int index, int mig)
{
    Device *found = &devices[index][mig + 1];
    found->index = index;
    found->mig = mig;
    return found;
}

/* What the file says of a device; SUCCESS, or why it does not answer. */
static int describe(void *handle, Line *line)
{
    Device *one = handle;
    if (of_card("lost", one->index, 0, line))
        return GPU_IS_LOST;
    if (one->mig >= 0 && of_card("mig", one->index, one->mig, line) && !strcmp(line->words[4], "gone"))
        return NOT_FOUND;
    return of_card(one->mig < 0 ? "gpu" : "mig", one->index, one->mig < 0 ? 0 : one->mig, line)
               ? SUCCESS : GPU_IS_LOST;
}

/* What a function answers for a card: SUCCESS, or as the file says. */
static int failure(void *handle, const char *function)
{
    Line line;
    for (int i = 0; of_card("fails", ((Device *)handle)->index, i, &line); i++)
        if (!strcmp(line.words[2], function)
            || (!strcmp(line.words[2], "all") && strcmp(function, "nvmlDeviceGetUUID")))
            return atoi(line.words[3]);
    return SUCCESS;
}

#define DESCRIBED(handle)                        \
    Line line;                                   \
    enter(__func__);                             \
    int status = describe(handle, &line);        \
    if (status == SUCCESS)                       \
        status = failure(handle, __func__);      \
    if (status != SUCCESS)                       \
        return status

int nvmlInit_v2(void) { enter(__func__); return SUCCESS; }
int nvmlInitWithFlags(unsigned int flags) { (void)flags; enter(__func__); return SUCCESS; }
int nvmlShutdown(void) { enter(__func__); return SUCCESS; }

const char *nvmlErrorString(int status)
{
    return status == GPU_IS_LOST ? "GPU is lost" : "error of the shim";
}

int nvmlSystemGetDriverVersion(char *text, unsigned int length)
{
    Line line;
    enter(__func__);
    snprintf(text, length, "%s", find("driver", NULL, 0, &line) ? line.words[1] : "0");
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    Line line;
    enter(__func__);
    for (*count = 0; find("gpu", NULL, *count, &line); (*count)++)
        ;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{
    Line line;
    enter(__func__);
    if (!find("gpu", NULL, index, &line))
        return INVALID_ARGUMENT;
    *handle = device(atoi(line.words[1]), -1);
    return describe(*handle, &line);
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned int length)
{
    DESCRIBED(handle);
    snprintf(text, length, "%s", line.words[2]);
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned int length)
{
    DESCRIBED(handle);
    snprintf(text, length, "%s", line.words[3]);
    return SUCCESS;
}

int nvmlDeviceGetMinorNumber(void *handle, unsigned int *minor)
{
    DESCRIBED(handle);
    *minor = ((Device *)handle)->index;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, PciInfo *pci)
{
    DESCRIBED(handle);
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "%.31s", line.words[5]);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory)
{
    DESCRIBED(handle);
    Line used;
    Device *one = handle;
    memory->total = strtoull(line.words[4], NULL, 10) << 20;
    memory->used = 0;
    if (one->mig < 0 && of_card("used", one->index, 0, &used))
        memory->used = strtoull(used.words[2], NULL, 10) << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor)
{
    (void)handle;
    *major = 8, *minor = 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned int *clock)
{
    (void)handle, (void)kind;
    *clock = 1410;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned int link, int *active)
{
    Line found;
    *active = 0;
    for (int i = 0; of_card("link", ((Device *)handle)->index, i, &found); i++)
        *active |= (unsigned int)atoi(found.words[2]) == link;
    return SUCCESS;
}

static int far_end(void *handle, unsigned int link, Line *found)
{
    for (int i = 0; of_card("link", ((Device *)handle)->index, i, found); i++)
        if ((unsigned int)atoi(found->words[2]) == link)
            return 1;
    return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned int link, int *kind)
{
    Line found;
    if (!far_end(handle, link, &found))
        return INVALID_ARGUMENT;
    *kind = strcmp(found.words[3], "switch") ? 0 : 2;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned int link, PciInfo *pci)
{
    Line found;
    if (!far_end(handle, link, &found))
        return INVALID_ARGUMENT;
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "%.31s", found.words[3]);
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *count)
{
    Line found;
    DESCRIBED(handle);
    (void)counter;
    *count = kind == 1 && of_card("ecc", ((Device *)handle)->index, 0, &found)
                 ? strtoull(found.words[2], NULL, 10) : 0;
    return SUCCESS;
}

int nvmlDeviceGetEccMode(void *handle, int *current, int *pending)
{
    DESCRIBED(handle);
    *current = *pending = 1;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *rates)
{
    Line used;
    DESCRIBED(handle);
    if (!of_card("used", ((Device *)handle)->index, 0, &used))
        return NOT_SUPPORTED;
    rates->gpu = atoi(used.words[3]);
    rates->memory = atoi(used.words[4]);
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *degrees)
{
    Line used;
    DESCRIBED(handle);
    (void)sensor;
    if (!of_card("used", ((Device *)handle)->index, 0, &used))
        return NOT_SUPPORTED;
    *degrees = atoi(used.words[5]);
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned int *power_mw)
{
    Line used;
    DESCRIBED(handle);
    if (!of_card("used", ((Device *)handle)->index, 0, &used))
        return NOT_SUPPORTED;
    *power_mw = atoi(used.words[6]);
    return SUCCESS;
}

int nvmlEventSetCreate(void **set)
{
    *set = memset(watched, 0, sizeof watched);
    return SUCCESS;
}

int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }

int nvmlDeviceGetSupportedEventTypes(void *handle, unsigned long long *types)
{
    (void)handle;
    *types = 8 | 2; /* XID and double-bit ECC errors */
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set)
{
    (void)types, (void)set;
    Line line;
    int status = describe(handle, &line);
    watched[((Device *)handle)->index] |= status == SUCCESS;
    return status;
}

int nvmlEventSetWait_v2(void *set, Event *event, unsigned int wait_ms)
{
    Line line;
    char number[16];
    (void)set;
    for (unsigned int waited = 0; waited < wait_ms; waited += WATCH_MS) {
        for (int card = 0; card < MOST; card++)
            if (watched[card] && of_card("lost", card, 0, &line))
                return GPU_IS_LOST;
        snprintf(number, sizeof number, "%d", events_seen);
        if (find("event", number, 0, &line) && watched[atoi(line.words[2])]) {
            events_seen++;
            memset(event, 0, sizeof *event);
            event->device = device(atoi(line.words[2]), -1);
            event->eventType = 8;
            event->eventData = strtoull(line.words[3], NULL, 10);
            event->gpuInstanceId = line.count > 4 ? (unsigned int)atoi(line.words[4]) : 0xFFFFFFFF;
            event->computeInstanceId = 0xFFFFFFFF;
            return SUCCESS;
        }
        usleep(WATCH_MS * 1000);
    }
    return TIMEOUT;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetBrand(void *handle, int *brand) { DESCRIBED(handle); *brand = 14; return SUCCESS; }
int nvmlDeviceGetArchitecture(void *handle, unsigned int *architecture)
{
    DESCRIBED(handle);
    *architecture = 7;
    return SUCCESS;
}

int nvmlDeviceGetNumGpuCores(void *handle, unsigned int *cores)
{
    DESCRIBED(handle);
    *cores = 6912;
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned int *corrected, unsigned int *uncorrected,
                              unsigned int *pending, unsigned int *failed)
{
    Line found;
    DESCRIBED(handle);
    if (!of_card("remap", ((Device *)handle)->index, 0, &found))
        return NOT_SUPPORTED;
    *corrected = *uncorrected = *pending = 0;
    *failed = atoi(found.words[2]);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, Process *processes)
{
    Line found;
    DESCRIBED(handle);
    Device *one = handle;
    unsigned int there = 0;
    if (one->mig < 0)
        while (of_card("process", one->index, there, &found))
            there++;
    if (*count < there || (there && !processes)) {
        *count = there;
        return INSUFFICIENT_SIZE;
    }
    for (unsigned int i = 0; i < there; i++) {
        of_card("process", one->index, i, &found);
        processes[i].pid = atoi(found.words[2]);
        processes[i].usedGpuMemory = strtoull(found.words[3], NULL, 10) << 20;
        processes[i].gpuInstanceId = processes[i].computeInstanceId = 0xFFFFFFFF;
    }
    *count = there;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned int *current, unsigned int *pending)
{
    Line found;
    DESCRIBED(handle);
    *current = *pending = of_card("mig", ((Device *)handle)->index, 0, &found);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned int *count)
{
    DESCRIBED(handle);
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned int index, void **instance)
{
    Line found;
    DESCRIBED(handle);
    if (!of_card("mig", ((Device *)handle)->index, index, &found))
        return NOT_FOUND;
    *instance = device(((Device *)handle)->index, index);
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(void *handle, unsigned int *id)
{
    DESCRIBED(handle);
    *id = atoi(line.words[5]);
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(void *handle, unsigned int *id)
{
    DESCRIBED(handle);
    *id = atoi(line.words[6]);
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(void *handle, Attributes *attributes)
{
    DESCRIBED(handle);
    memset(attributes, 0, sizeof *attributes);
    attributes->memorySizeMB = strtoull(line.words[4], NULL, 10);
    attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = atoi(line.words[7]);
    attributes->multiprocessorCount = 14 * attributes->computeInstanceSliceCount;
    return SUCCESS;
}
#endif
