#include "support/skip_code.h"

/// main() of a test program whose tests all need a GPU.
int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    const int result = RUN_ALL_TESTS();
    return result == 0 && loratrain::all_skipped() ? loratrain::skip_code : result;
}
