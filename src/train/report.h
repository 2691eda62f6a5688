#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "train/adapter_parts.h"
#include "train/eval_result.h"
#include "train/orders/additions_report.h"

namespace loratrain {

/// What ranks of a worker tell its rank 0, which does not wait for it: some of the values that they
/// have of an adapter, what evaluations came to, or what is wrong with files of the inbox.
using Report = std::variant<AdapterPiece, std::vector<EvalResult>, AdditionsReport>;

/// Sends texts of a message each: one, or several of an adapter's values.
void send_as_texts(Report report, const std::function<void(std::string)>& send);
/// Reading what was sent gives the same report, or a piece of it; any other text is an Error.
Report report_from_text(const std::string& text);

}  // namespace loratrain
