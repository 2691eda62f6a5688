#include "base/warn_at_failure.h"

#include <exception>

#include "base/log.h"
#include "base/text.h"

namespace loratrain {

void warn_at_failure(const std::function<void()>& work, std::string_view what) {
    try {
        work();
    } catch (const std::exception& error) {
        log::warn(cat(what, error.what()));
    }
}

}  // namespace loratrain
