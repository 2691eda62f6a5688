/* A libnvidia-ml.so.1 with one GPU, at 0000:1B:00.0, for tests of measure/gpu_sensors.h. Its sensors
   show fixed values: 612.345 W, 1755 MHz of the multiprocessors (others 1 MHz), 64 degrees, 5 GiB of
   8 in use, lowered clocks for power (hardware and software) and not for heat. With
   -DFAKE_NVML_OLD it is of a driver that has but a few functions, under former names. */
#include <string.h>

static int started = 0;
static int gpu = 0;

enum { success = 0, uninitialized = 1, invalid_argument = 2, not_supported = 3, not_found = 6 };

static int fault(const void* device) {
    if (!started) return uninitialized;
    return device == &gpu ? success : invalid_argument;
}

int nvmlInit_v2(void) {
    ++started;
    return success;
}

int nvmlShutdown(void) {
    --started;
    return success;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
    if (!started) return uninitialized;
    if (strcmp(bus_id, "0000:1B:00.0") != 0) return not_found;
    *device = &gpu;
    return success;
}

int nvmlDeviceGetPowerUsage(void* device, unsigned int* milliwatts) {
#ifdef FAKE_NVML_OLD
    (void)device;
    *milliwatts = 7;
    return not_supported;
#else
    *milliwatts = 612345;
    return fault(device);
#endif
}

#ifdef FAKE_NVML_OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
    *reasons = 0x40 | 0x1;
    return fault(device);
}
#else
int nvmlDeviceGetClockInfo(void* device, int type, unsigned int* mhz) {
    *mhz = type == 1 ? 1755 : 1;
    return fault(device);
}

int nvmlDeviceGetTemperature(void* device, int sensor, unsigned int* celsius) {
    *celsius = 64;
    return sensor == 0 ? fault(device) : invalid_argument;
}

int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
    total_free_used[0] = 8ULL << 30;
    total_free_used[1] = 3ULL << 30;
    total_free_used[2] = 5ULL << 30;
    return fault(device);
}

int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
    *reasons = 0x4 | 0x80 | 0x8;
    return fault(device);
}
#endif
