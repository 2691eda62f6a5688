#pragma once

/// LORATRAIN_VECTOR_CODE marks a function whose loops are worth vector instructions. In a build for
/// any x86-64 processor (LORATRAIN_NATIVE off), GCC compiles the function three times, for x86-64,
/// for AVX2 with FMA (x86-64-v3) and for AVX-512 (x86-64-v4); the program picks one at its start.
///   - Empty in a build for one processor, and for compilers that cannot do this
///     (scripts/cmake/LoratrainTargets.cmake).
///   - The call goes through a pointer: mark functions of rows, not of single elements.
///   - Functions that are called inside are compiled in the same way only if they are inlined.
///   - Sums in vectors depend on the processor in their last bits, as on the compiler.
#if defined(LORATRAIN_TARGET_CLONES) && !defined(__clang__)  // which has none of templates
#define LORATRAIN_VECTOR_CODE \
    __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define LORATRAIN_VECTOR_CODE
#endif
