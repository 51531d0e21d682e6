/* Preloaded into `vvm`. A file that this program maps has four numbers of eight bytes: how far the
 * wall clock is off, in nanoseconds; a value of `space`, which says whether the disk is full; 1 if
 * the program has read a clock that is off; and 1 if the disk has refused something. The monotonic
 * clock is not changed.
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

enum { CLOCK, SPACE, CLOCK_WAS_READ, HAS_REFUSED, COUNT };

__attribute__((constructor)) static void map_faults(void) {
    const char *path = getenv("ROUNDS_FAULTS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, COUNT * sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) faults = at;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    int64_t off = clock == CLOCK_REALTIME && faults ? faults[CLOCK] : 0;
    if (failed == 0 && off != 0) {
        faults[CLOCK_WAS_READ] = 1;
        int64_t nanos = time->tv_nsec + off % 1000000000;
        time->tv_sec += off / 1000000000;
        if (nanos < 0) nanos += 1000000000, time->tv_sec -= 1;
        if (nanos >= 1000000000) nanos -= 1000000000, time->tv_sec += 1;
        time->tv_nsec = nanos;
    }
    return (int)failed;
}

/* What the disk still takes. */
enum space { TAKES_ALL, TAKES_NOTHING, TAKES_BLOCKS, TAKES_SIZES };

/* A file gets its space in blocks of at least this size. */
#define BLOCK 4096

static enum space space_for(int fd, struct stat *file) {
    enum space space = faults ? (enum space)faults[SPACE] : TAKES_ALL;
    int is_full = space != TAKES_ALL && fstat(fd, file) == 0 && S_ISREG(file->st_mode);
    return is_full ? space : TAKES_ALL;
}

static int refuse(void) {
    faults[HAS_REFUSED] = 1;
    errno = ENOSPC;
    return -1;
}

/* The end of the blocks that the file has from `at` on without a hole. `at` if it has none there.
 *
 * A second open file is asked: a position belongs to an open file, and a duplicate of `fd` would
 * share that of the node. The node's locks belong to its own open file, and stay. */
static off64_t end_of_blocks(int fd, off64_t size, off64_t at) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int other = open(path, O_RDONLY | O_CLOEXEC);
    if (other < 0) return at;
    /* Behind its end, a file has the rest of its last block. */
    off64_t from = at < size ? at : size - 1, end = at;
    if (from >= 0 && lseek64(other, from, SEEK_DATA) == from) {
        end = lseek64(other, from, SEEK_HOLE);
        end = (end + BLOCK - 1) / BLOCK * BLOCK;
    }
    close(other);
    return end > at ? end : at;
}

/* A full disk takes the bytes up to the end of the blocks. */
static ssize_t write_at(int fd, const void *bytes, size_t count, off64_t at) {
    struct stat file;
    enum space space = space_for(fd, &file);
    if (space != TAKES_ALL && count > 0) {
        off64_t end = space == TAKES_NOTHING ? at : end_of_blocks(fd, file.st_size, at);
        if (end == at) return refuse();
        if (end - at < (off64_t)count) count = end - at;
    }
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    return write_at(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return write_at(fd, bytes, count, at);
}

static int set_size(int fd, off64_t length) {
    struct stat file;
    enum space space = space_for(fd, &file);
    int takes = space == TAKES_ALL || space == TAKES_SIZES || length <= file.st_size;
    return takes ? (int)syscall(SYS_ftruncate, fd, length) : refuse();
}

int ftruncate64(int fd, off64_t length) { return set_size(fd, length); }

int ftruncate(int fd, off_t length) { return set_size(fd, length); }

static int allocate(int fd, int mode, off64_t at, off64_t length) {
    struct stat file;
    enum space space = space_for(fd, &file);
    int takes = space == TAKES_ALL || mode & FALLOC_FL_PUNCH_HOLE ||
                (space != TAKES_NOTHING && end_of_blocks(fd, file.st_size, at) >= at + length);
    return takes ? (int)syscall(SYS_fallocate, fd, mode, at, length) : refuse();
}

int fallocate64(int fd, int mode, off64_t at, off64_t length) {
    return allocate(fd, mode, at, length);
}

int fallocate(int fd, int mode, off_t at, off_t length) { return allocate(fd, mode, at, length); }

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
