/* Preloaded: a signal, LORATRAIN_EARLY_SIGNAL, comes to loratrain while its libraries are initialised. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void strike(void) {
    const char* number = getenv("LORATRAIN_EARLY_SIGNAL");
    if (number != NULL && strcmp(program_invocation_short_name, "loratrain") == 0) kill(getpid(), atoi(number));
}
