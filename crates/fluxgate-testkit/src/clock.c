/* Shifts the wall clock of a process by the offset in a mapped file, and stops its
 * monotonic clock if the file says so, like a machine that sleeps does.
 *
 * libfaketime does the same, but it allocates on the first call, and jemalloc
 * reads the time on the first allocation: a server with jemalloc, such as
 * Debian's, never starts. This library only makes system calls. It does not
 * shift the monotonic clock, so timers run until it is stopped. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The offset in nanoseconds, and whether the monotonic clock is stopped; NULL until
 * the constructor has run. */
static volatile const int64_t *offset;
/* What a stopped clock shows, in nanoseconds; 0 while it runs. */
static int64_t stopped_at;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("FLUXGATE_CLOCK_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, 2 * sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED)
        offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int result = (int)syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t nanos = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + *offset;
        out->tv_sec = nanos / 1000000000;
        out->tv_nsec = nanos % 1000000000;
    }
    if (result == 0 && offset && offset[1] && clock == CLOCK_MONOTONIC) {
        int64_t nanos = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec, running = 0;
        if (!__atomic_compare_exchange_n(&stopped_at, &running, nanos, 0, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST))
            nanos = running;
        out->tv_sec = nanos / 1000000000;
        out->tv_nsec = nanos % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
