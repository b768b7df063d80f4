/* Cores that may be used: what `threads auto` means.
 *
 * A container usually limits processor time by a quota of its control group and leaves the affinity
 * mask at all cores of the machine. One worker per core of the mask would then be throttled in the
 * middle of a batch, holding locks. So the smaller of both counts.
 *
 * Version 2: /proc/self/cgroup names the group in the line "0::/path"; cpu.max holds "quota period"
 * or "max period". Inside a container the path may be seen as "/". Every enclosing group may limit,
 * so all of them are read, up to the root. Version 1: cpu.cfs_quota_us and cpu.cfs_period_us.
 *
 * Whatever cannot be read does not limit. Called once at the start, on the main thread.
 *
 * Rejected: the number of online processors, which ignores both taskset and containers.
 */
#include "admin/cores.h"

#include "base/assert.h"
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP_PATH_MAX 1024

/* First bytes of a small file, terminated; false when it cannot be read. */
static bool read_small(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, out, size - 1);
    close(fd);
    if (len < 0)
        return false;
    out[len] = '\0';
    return true;
}

uint32_t kv_cores_of_quota(const char *text)
{
    long long quota, period;
    if (sscanf(text, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0)
        return UINT32_MAX;
    long long cores = quota / period + (quota % period != 0);
    return cores > UINT32_MAX ? UINT32_MAX : (uint32_t)cores;
}

static uint32_t limit_v2(void)
{
    char groups[GROUP_PATH_MAX], file[GROUP_PATH_MAX + 64], text[128];
    if (!read_small("/proc/self/cgroup", groups, sizeof(groups)))
        return UINT32_MAX;
    char *path = strstr(groups, "0::/");
    if (path == NULL)
        return UINT32_MAX;
    path += strlen("0::");
    path[strcspn(path, "\n")] = '\0';
    uint32_t limit = UINT32_MAX;
    for (;;) {
        snprintf(file, sizeof(file), "/sys/fs/cgroup%s/cpu.max", path);
        if (read_small(file, text, sizeof(text)))
            limit = KV_MIN(limit, kv_cores_of_quota(text));
        char *slash = strrchr(path, '/');
        if (slash == NULL)
            break;
        *slash = '\0';
    }
    return limit;
}

static uint32_t limit_v1(void)
{
    static const char *const folders[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
    char file[128], quota[32], period[32], pair[80];
    for (size_t i = 0; i < KV_ARRAY_LEN(folders); i++) {
        snprintf(file, sizeof(file), "%s/cpu.cfs_quota_us", folders[i]);
        if (!read_small(file, quota, sizeof(quota)))
            continue;
        snprintf(file, sizeof(file), "%s/cpu.cfs_period_us", folders[i]);
        if (!read_small(file, period, sizeof(period)))
            continue;
        snprintf(pair, sizeof(pair), "%s %s", quota, period);
        return kv_cores_of_quota(pair);
    }
    return UINT32_MAX;
}

uint32_t kv_cores_available(void)
{
    cpu_set_t set;
    uint32_t cores = 1;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        cores = (uint32_t)CPU_COUNT(&set);
    else {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        cores = online > 0 ? (uint32_t)online : 1;
    }
    cores = KV_MIN(cores, KV_MIN(limit_v2(), limit_v1()));
    KV_ASSERT(cores < UINT32_MAX);
    return KV_MAX(cores, 1u);
}
