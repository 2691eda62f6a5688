#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "base/error.h"

namespace loratrain {

void CpuBackend::choose_tokens(const ChooseTokens& op) {
    require_f32({&op.logits});
    LORATRAIN_CHECK(std::ssize(op.draws) == op.logits.rows, op.draws.size(), " draws for ",
                    op.logits.rows, " rows of logits");
    parallel_for(threads_, op.logits.rows, [&](std::int64_t row) {
        const auto* logits = static_cast<const float*>(op.logits.offset(row, 0));
        op.tokens[row] = choose_token({logits, static_cast<std::size_t>(op.logits.cols)},
                                      op.draws[static_cast<std::size_t>(row)]);
    });
}

}  // namespace loratrain
