/* Preloaded into loratrain by the system tests: a file system without locks. */
#include <errno.h>
#include <sys/file.h>

int flock(int descriptor, int operation) {
    (void)descriptor;
    (void)operation;
    errno = ENOSYS;
    return -1;
}
