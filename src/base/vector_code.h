#pragma once

/// In front of a function whose loops are worth vector instructions: where the build is for any
/// x86-64 processor (LORATRAIN_NATIVE off), GCC compiles it three times, for plain x86-64, for AVX2
/// with FMA (x86-64-v3) and for AVX-512 (x86-64-v4), and the program's start picks what the
/// processor has. Empty in a build for one processor, and where the compiler cannot do this
/// (scripts/cmake/LoratrainTargets.cmake). Functions called inside are compiled so only where they
/// are inlined; the call itself goes through a pointer: of use for rows, not for single elements.
/// Sums that are made in vectors depend on the processor in their last bits, as they do on the
/// compiler.
#if defined(LORATRAIN_TARGET_CLONES) && !defined(__clang__)  // which has none of templates
#define LORATRAIN_VECTOR_CODE \
    __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define LORATRAIN_VECTOR_CODE
#endif
