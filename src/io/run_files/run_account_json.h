#pragma once

#include <optional>
#include <vector>

#include "io/json_text.h"
#include "io/run_files/run_account.h"

namespace loratrain {

OrderedJson to_json(const RunAccount& account);
/// The account of a run (run_account.h) in JSON, as provenance.json has it.

/// None for what to_json() does not write.
std::optional<RunAccount> run_account_from_json(const OrderedJson& json);
/// Those that the starts in the contents of provenance.json have.
std::vector<RunAccount> accounts_in(const OrderedJson& provenance);

}  // namespace loratrain
