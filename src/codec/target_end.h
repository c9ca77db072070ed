/* Turns off what target_avx2.h or target_avx512.h turned on. */
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
