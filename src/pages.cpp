#include <fstream>
#include <iostream>
#include <string>

#include "config/pages.h"

/// Writes what the build installs beside the program: `pages DIR` makes DIR/loratrain.1 and
/// DIR/loratrain.bash. Needs no MPI, as the program itself does.
int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: pages DIR\n";
        return 2;
    }
    const std::string folder = argv[1];
    std::ofstream man(folder + "/loratrain.1");
    man << loratrain::man_page();
    std::ofstream completion(folder + "/loratrain.bash");
    completion << loratrain::bash_completion();
    man.close();
    completion.close();
    if (man && completion) return 0;
    std::cerr << "error: cannot write to " << folder << '\n';
    return 1;
}
