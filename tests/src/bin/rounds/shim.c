/* Preloaded into `vvm`. A file that this program maps says how far the wall clock is off, and
 * whether the disk is full: eight bytes of nanoseconds, and eight bytes that are 0 or 1. The
 * monotonic clock is not changed.
 *
 * A variable names servers, and a link to each: a connection to the server goes to the link. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
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

static struct {
    struct sockaddr_in server, link;
} links[16];
static int links_count;

static struct sockaddr_in address(const char *host, unsigned short port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
}

__attribute__((constructor)) static void read_links(void) {
    const char *text = getenv("ROUNDS_LINKS");
    char server[16], link[16];
    unsigned short server_port, link_port;
    int length;
    while (text && links_count < 16 &&
           sscanf(text, " %15[0-9.]:%hu=%15[0-9.]:%hu%n", server, &server_port, link, &link_port,
                  &length) == 4) {
        links[links_count].server = address(server, server_port);
        links[links_count].link = address(link, link_port);
        links_count += 1;
        text += length;
    }
}

int connect(int fd, const struct sockaddr *to, socklen_t length) {
    const struct sockaddr_in *server = (const struct sockaddr_in *)to;
    if (length >= sizeof *server && to->sa_family == AF_INET) {
        for (int i = 0; i < links_count; i++) {
            if (server->sin_port == links[i].server.sin_port &&
                server->sin_addr.s_addr == links[i].server.sin_addr.s_addr) {
                return (int)syscall(SYS_connect, fd, &links[i].link, sizeof links[i].link);
            }
        }
    }
    return (int)syscall(SYS_connect, fd, to, length);
}
