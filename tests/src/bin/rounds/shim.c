/* Preloaded into `vvm`. A file that this program maps says how far the wall clock is off, and
 * whether the disk is full: eight bytes of nanoseconds, and eight bytes that are 0 or 1. The
 * monotonic clock is not changed. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *faults;

__attribute__((constructor)) static void map_faults(void) {
    const char *path = getenv("ROUNDS_FAULTS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, 16, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) faults = at;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (failed == 0 && clock == CLOCK_REALTIME && faults) {
        int64_t nanos = time->tv_nsec + faults[0] % 1000000000;
        time->tv_sec += faults[0] / 1000000000;
        if (nanos < 0) nanos += 1000000000, time->tv_sec -= 1;
        if (nanos >= 1000000000) nanos -= 1000000000, time->tv_sec += 1;
        time->tv_nsec = nanos;
    }
    return (int)failed;
}

static int is_full(int fd) {
    struct stat file;
    return faults && faults[1] && fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
}

static int refuse(void) {
    errno = ENOSPC;
    return -1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    return is_full(fd) ? refuse() : syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return is_full(fd) ? refuse() : syscall(SYS_pwrite64, fd, bytes, count, at);
}

int ftruncate64(int fd, off64_t length) {
    return is_full(fd) ? refuse() : (int)syscall(SYS_ftruncate, fd, length);
}

int fallocate64(int fd, int mode, off64_t at, off64_t length) {
    return is_full(fd) ? refuse() : (int)syscall(SYS_fallocate, fd, mode, at, length);
}
