/* Preloaded into loratrain by the system tests: a file system in trouble. Files whose path contains
   $LORATRAIN_FAILING_READS are not read (EIO); directories whose path ends with
   $LORATRAIN_FAILING_REMOVALS are not removed (ENOTEMPTY), as where a file in them is open on NFS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_failing(int descriptor) {
    const char* part = getenv("LORATRAIN_FAILING_READS");
    char link[64];
    char path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(link, path, sizeof(path) - 1);
    if (part == NULL || length < 0) return 0;
    path[length] = '\0';
    return strstr(path, part) != NULL;
}

ssize_t pread(int descriptor, void* target, size_t bytes, off_t offset) {
    ssize_t (*real)(int, void*, size_t, off_t) = dlsym(RTLD_NEXT, "pread");
    if (!is_failing(descriptor)) return real(descriptor, target, bytes, offset);
    errno = EIO;
    return -1;
}

static int is_kept(const char* path) {
    const char* end = getenv("LORATRAIN_FAILING_REMOVALS");
    if (end == NULL || strlen(path) < strlen(end)) return 0;
    return strcmp(path + strlen(path) - strlen(end), end) == 0;
}

int unlinkat(int directory, const char* path, int flags) {
    int (*real)(int, const char*, int) = dlsym(RTLD_NEXT, "unlinkat");
    if ((flags & AT_REMOVEDIR) == 0 || !is_kept(path)) return real(directory, path, flags);
    errno = ENOTEMPTY;
    return -1;
}

int remove(const char* path) {
    int (*real)(const char*) = dlsym(RTLD_NEXT, "remove");
    if (!is_kept(path)) return real(path);
    errno = ENOTEMPTY;
    return -1;
}
