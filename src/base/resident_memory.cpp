#include "base/resident_memory.h"

#include "base/system.h"

namespace loratrain {

ResidentMemory resident_memory() {
    const char* file = "/proc/self/status";
    const std::uint64_t code = proc_value(file, "RssFile");
    return {proc_value(file, "VmRSS") - code, proc_value(file, "VmHWM") - code};
}

}  // namespace loratrain
