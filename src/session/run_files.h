#pragma once

#include <string>
#include <vector>

namespace loratrain {

/// Names of what a run leaves in its directory besides its log and what holds for the machine
/// (GEMM algorithms, costs): what a start from the beginning moves aside.
std::vector<std::string> files_of_former_run();

/// InputError, with all of them, where what the program writes or reads in a run directory is not
/// what it makes there: a symbolic link, pipe, socket or device, a folder in place of a file or a
/// file in place of a folder. What lies there under other names is nobody's business.
void check_run_files(const std::string& dir);

/// Removes what writers that died have left under temporary names in files and folders of a run.
void remove_unfinished(const std::string& dir);

}  // namespace loratrain
