#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/adapter_parts.h"
#include "train/eval_result.h"

namespace loratrain {

/// What ranks send to rank 0 of their worker.

/// A rank's answer to CheckAdditions.
struct AdditionsReport {
    std::vector<std::string> problems;  ///< per file, in order; "" = none
};

/// What a rank sends to rank 0 of its worker, which does not wait for it: values of an adapter,
/// results of evaluations, or problems of inbox files.
using Report = std::variant<AdapterPiece, std::vector<EvalResult>, AdditionsReport>;

/// Sends a report as bytes (base/wire.h): in one message, values of an adapter in several.
void send_as_messages(Report report, const std::function<void(std::string)>& send);
/// The report, or its piece, that was sent. Error for any other bytes.
Report report_from_bytes(std::string_view bytes);

}  // namespace loratrain
