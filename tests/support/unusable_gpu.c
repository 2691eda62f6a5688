/* Preloaded into loratrain by the system tests: a driver whose GPU is taken by another program. */
int cudaDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}

int cudaGetDeviceCount(int* count) {
    *count = 0;
    return 46; /* cudaErrorDevicesUnavailable */
}
