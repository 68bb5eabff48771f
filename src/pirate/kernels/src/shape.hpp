// The grid that a kernel works on. Three axes i, j, k; k is contiguous in memory.
#pragma once

#include <cstddef>

namespace pirate {

// A 2-D grid (a, b) is stored as (a, 1, b), so that the slow axis can be shared among threads; the two
// channels of its fields belong to axes i and k.
struct Shape {
  int i, j, k;
  int d;  // 2 or 3: number of channels of a field
  std::size_t plane() const { return std::size_t(j) * k; }
  std::size_t size() const { return std::size_t(i) * j * k; }
  int rows() const { return i * j; }
};

}  // namespace pirate
