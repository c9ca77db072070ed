/* Prediction for the four widths of value: line_impl.h, for each. Included once by an instruction
 * set, with v8 to v64 its vectors, prefix_8 to prefix_64 and last_8 to last_64. */

#define T uint8_t
#define BITS 8
#define V v8
#define F(name) name##_8
#define PREFIX prefix_8
#define LAST last_8
#include "codec/line_impl.h"

#define T uint16_t
#define BITS 16
#define V v16
#define F(name) name##_16
#define PREFIX prefix_16
#define LAST last_16
#include "codec/line_impl.h"

#define T uint32_t
#define BITS 32
#define V v32
#define F(name) name##_32
#define PREFIX prefix_32
#define LAST last_32
#include "codec/line_impl.h"

#define T uint64_t
#define BITS 64
#define V v64
#define F(name) name##_64
#define PREFIX prefix_64
#define LAST last_64
#include "codec/line_impl.h"
