/* Includes the file GPUFI_EACH_WIDTH, which is defined before this is included, once for each width
 * of value, with
 *   BITS       8, 16, 32 and 64
 *   T, S       the unsigned and the signed type of so many bits
 *   F(name)    name_8 to name_64
 * It has no include guard, for a source includes it again with another file. */
#define JOIN_(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define T JOIN(uint, BITS, _t)
#define S JOIN(int, BITS, _t)
#define F(name) JOIN(name, _, BITS)

#define BITS 8
#include GPUFI_EACH_WIDTH
#undef BITS
#define BITS 16
#include GPUFI_EACH_WIDTH
#undef BITS
#define BITS 32
#include GPUFI_EACH_WIDTH
#undef BITS
#define BITS 64
#include GPUFI_EACH_WIDTH
#undef BITS

#undef F
#undef S
#undef T
#undef JOIN
#undef JOIN_
#undef GPUFI_EACH_WIDTH
