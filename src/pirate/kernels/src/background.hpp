// Which parts of an image are exactly 0: one byte for each block of 8 x 8 x 8 cells.
#pragma once

#include <cstdint>
#include <vector>

#include "sampler.hpp"

namespace pirate::PIRATE_VARIANT {

constexpr int kBlock = 3;  // log2 of the side of a block

struct Background {
  int nj, nk;
  std::vector<std::uint8_t> occupied;  // 1: some corner of some cell of the block is not 0
  double total = 0;                    // sum of the image

  Background(const Shape& s, const float* image) {
    const int side = 1 << kBlock, ni = (s.i >> kBlock) + 1;
    nj = (s.j >> kBlock) + 1;
    nk = (s.k >> kBlock) + 1;
    occupied.assign(std::size_t(ni) * nj * nk, 0);
    std::vector<double> sums(ni, 0.0);
    parallel(ni, [&](int b) {
      for (int i = b * side; i <= b * side + side && i < s.i; ++i)
        for (int j = 0; j < s.j; ++j) {
          std::uint8_t* here = occupied.data() + (std::size_t(b) * nj + (j >> kBlock)) * nk;
          std::uint8_t* before = (j & (side - 1)) == 0 && j > 0 ? here - nk : here;
          const double row = mark(image + (std::size_t(i) * s.j + j) * s.k, s.k, here, before);
          if (i < (b + 1) * side) sums[b] += row;
        }
    });
    for (double v : sums) total += v;
  }

  // Whether all V cells, at b, read zeros only.
  template <int D>
  PIRATE_INLINE bool empty(const vi* b) const {
    vi block = (b[0] >> kBlock) * nj;
    if constexpr (D == 3) block += b[1] >> kBlock;
    block = block * nk + (b[D - 1] >> kBlock);
    alignas(64) std::int32_t at[V];
    spill(block, at);
    const std::uint8_t* flags = occupied.data();
    unsigned found = 0;
    for (int l = 0; l < V; ++l) found |= flags[at[l]];
    return found == 0;
  }

 private:
  // Marks the blocks that a row of n voxels touches: voxel k is a corner of the cells k - 1 and k.
  double mark(const float* row, int n, std::uint8_t* here, std::uint8_t* before) {
    const int side = 1 << kBlock;
    double sum_row = 0;
    for (int k = 0; k < n; k += side) {
      const int count = n - k < side ? n - k : side, b = k >> kBlock;
      vi found = {};
      vf part = {};
      for (int m = 0; m < count; m += V) {
        const vf v = load_first(row + k + m, count - m);
        found |= v != 0.f;
        part += v;
      }
      if (!any(found)) continue;
      here[b] = before[b] = 1;
      if (row[k] != 0.f && b > 0) here[b - 1] = before[b - 1] = 1;
      sum_row += sum(part);
    }
    return sum_row;
  }
};

}  // namespace pirate::PIRATE_VARIANT
