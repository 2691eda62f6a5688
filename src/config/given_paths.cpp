#include "config/given_paths.h"

namespace loratrain {

namespace {

bool lies_in(const std::string& where, const std::string& path) {
    if (!where.starts_with(path)) return false;
    return where.size() == path.size() || where[path.size()] == '/' || path.ends_with('/');
}

}  // namespace

Problems with_keys(const Problems& problems, const GivenPaths& paths) {
    Problems named;
    for (const Problem& problem : problems.list()) {
        std::size_t longest = 0;
        std::string where = problem.where;
        for (const auto& [path, key] : paths) {
            if (path.size() < longest || !lies_in(problem.where, path)) continue;
            longest = path.size();
            where = cat(key, ": ", problem.where);
        }
        named.add(where, problem.what, problem.hint);
    }
    return named;
}

}  // namespace loratrain
