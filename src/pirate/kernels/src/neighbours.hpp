// Neighbours along the contiguous axis.
#pragma once

#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {

// u(k - 1) and u(k + 1) of the V voxels from k on; outside the row of n the border is repeated.
struct Sides {
  vf low, high;
};
PIRATE_INLINE Sides along_k(const float* row, int k, int n) {
  if (__builtin_expect(k > 0 && k + V < n, 1)) return {load(row + k - 1), load(row + k + 1)};
  if (k + V <= n) {  // first or last vector of the row
    const vi up = lanes_int() - 1, down = lanes_int() + 1;
    const vf here = load(row + k);
    return {k > 0 ? load(row + k - 1) : permute(here, up < 0 ? vi{} : up),
            k + V < n ? load(row + k + 1) : permute(here, down < V ? down : vi{} + (V - 1))};
  }
  alignas(64) float low[V], high[V];
  for (int l = 0; l < V; ++l) {
    const int x = k + l < n ? k + l : n - 1;
    low[l] = row[x > 0 ? x - 1 : 0];
    high[l] = row[x + 1 < n ? x + 1 : n - 1];
  }
  return {load(low), load(high)};
}

}  // namespace pirate::PIRATE_VARIANT
