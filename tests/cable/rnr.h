/* How long a receiver that is not ready asks to wait: IBTA volume 1 table 45, written down once
 * more, for tests to compare with. */
#ifndef TESTS_CABLE_RNR_H
#define TESTS_CABLE_RNR_H

#include <stdint.h>

static inline uint64_t rnr_ns(uint32_t code)
{
	static const double ms[32] = {655.36, 0.01,  0.02,  0.03,   0.04,   0.06,   0.08,   0.12,
	                              0.16,   0.24,  0.32,  0.48,   0.64,   0.96,   1.28,   1.92,
	                              2.56,   3.84,  5.12,  7.68,   10.24,  15.36,  20.48,  30.72,
	                              40.96,  61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52};
	return (uint64_t)(ms[code & 31] * 1e6 + 0.5);
}

#endif
