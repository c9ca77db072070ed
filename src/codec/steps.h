/* Floats that are multiples of a step, by which they were packed into integers and unpacked again:
 * the step that they have in common, and the scale and offset that give back their bits.
 *
 * Thread-safety: every function is re-entrant and holds no state. */
#ifndef GPUFI_CODEC_STEPS_H
#define GPUFI_CODEC_STEPS_H

#include "codec/probes.h"

/* The greatest step that the sorted probes have in common, about; 0 if there is none that is well
 * above what rounding moves them by. */
double gpufi_find_step(const gpufi_probes *probes, const double *sorted);

/* The parameters of transform linear or single for such values; false if they are not allowed. */
bool gpufi_fit_linear(const gpufi_probes *probes, const double *sorted, double step,
                      gpufi_numbers *numbers);

#endif
