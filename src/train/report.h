#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/adapter_parts.h"
#include "train/eval_result.h"

namespace loratrain {

/// What a rank has found of inbox files that others train beside (CheckAdditions).
struct AdditionsReport {
    std::vector<std::string> problems;  ///< per file, in order; "" = none
};

/// What ranks of a worker tell its rank 0, which does not wait for it: some of the values that they
/// have of an adapter, what evaluations came to, or what is wrong with files of the inbox.
using Report = std::variant<AdapterPiece, std::vector<EvalResult>, AdditionsReport>;

/// Sends messages of bytes (base/wire.h): one, or several of an adapter's values.
void send_as_messages(Report report, const std::function<void(std::string)>& send);
/// Reading what was sent gives the same report, or a piece of it; any other bytes are an Error.
Report report_from_bytes(std::string_view bytes);

}  // namespace loratrain
