/* Turns on AVX-512 for the functions from here to target_end.h. Without an include guard: it is for
 * the place where it is included. */
#if defined(__clang__)
#pragma clang attribute push(                                                                      \
    __attribute__((                                                                                \
        target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vbmi,"      \
               "avx512vbmi2,gfni"))),                                                              \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target(                                                                                \
    "avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vbmi,avx512vbmi2,gfni,prefer-vector-width=512")
#endif
