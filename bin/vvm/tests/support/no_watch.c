/* Preloaded into `vvm`: both services take their ports, and then the system refuses to watch their
 * sockets, as it does when the user has reached `fs.epoll.max_user_watches`. */

#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event) {
    static int watched = 0;
    int listens = 0;
    socklen_t size = sizeof listens;
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
    if (op == EPOLL_CTL_ADD && listens && ++watched > 2) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_epoll_ctl, epoll, op, fd, event);
}
