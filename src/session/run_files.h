#pragma once

#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// The names of all files in a run directory, and checks of them.

/// Names of the files of a run that a start from the beginning moves aside: all except the log and
/// those that hold for the machine (GEMM algorithms, costs).
std::vector<std::string> files_of_former_run();

/// Checks the kinds of all files and folders that the program uses in a run directory. InputError
/// that lists each symbolic link, pipe, socket, device, folder in place of a file, and file in
/// place of a folder. Other names are ignored.
void check_run_files(const std::string& dir);
/// The same for the job's run.dir, before it exists too; a problem of run.dir itself, such as a
/// file in its place, names the key and its line.
void check_run_directory(const Job& job);

/// Removes files with temporary names that a process which died has left in a run directory.
void remove_unfinished(const std::string& dir);

}  // namespace loratrain
