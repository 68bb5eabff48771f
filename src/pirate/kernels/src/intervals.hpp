// One interval of k for every row (i, j): where a stage of a pipeline has work to do.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "simd.hpp"
#include "shape.hpp"

namespace pirate::PIRATE_VARIANT {

constexpr int align(int k) { return k & ~(V - 1); }  // down to a multiple of V, also below 0

constexpr int kNever = 1 << 28;  // lo > hi: nothing

struct Intervals {
  int ni, nj;
  std::vector<int> lo, hi;  // [i][j]
  Intervals(int ni, int nj) : ni(ni), nj(nj), lo(std::size_t(ni) * nj, kNever), hi(std::size_t(ni) * nj, -kNever) {}
  int at(int i, int j) const { return i * nj + j; }
  bool empty(int x) const { return lo[x] >= hi[x]; }

  // Hull of the intervals of the rows i - r..i + r.
  Intervals over_i(int r) const {
    Intervals out(ni, nj);
    for (int i = 0; i < ni; ++i)
      for (int m = std::max(0, i - r); m <= std::min(ni - 1, i + r); ++m) out.join(at(i, 0), *this, at(m, 0), nj);
    return out;
  }
  Intervals over_j(int r) const {
    Intervals out(ni, nj);
    for (int i = 0; i < ni; ++i)
      for (int m = -r; m <= r; ++m) {
        const int j0 = std::max(0, -m), j1 = std::min(nj, nj - m);
        if (j0 < j1) out.join(at(i, j0), *this, at(i, j0 + m), j1 - j0);
      }
    return out;
  }
  // Wider by r at both ends, between least and most; begins at whole vectors, so that loads do not straddle lines.
  Intervals& widen(int r, int least, int most) {
    for (std::size_t x = 0; x < lo.size(); ++x) {
      if (empty(x)) continue;
      lo[x] = std::max(align(lo[x] - r), least);
      hi[x] = std::min(hi[x] + r, most);
    }
    return *this;
  }
  // What both have.
  Intervals& meet(const Intervals& other) {
    for (std::size_t x = 0; x < lo.size(); ++x) {
      lo[x] = std::max(lo[x], other.lo[x]);
      hi[x] = std::min(hi[x], other.hi[x]);
      if (empty(x)) lo[x] = kNever, hi[x] = -kNever;
    }
    return *this;
  }
  Intervals& join(const Intervals& other) {
    join(0, other, 0, lo.size());
    return *this;
  }

 private:
  void join(int x, const Intervals& from, int y, int n) {
    int *l = lo.data() + x, *h = hi.data() + x;
    const int *fl = from.lo.data() + y, *fh = from.hi.data() + y;
    for (int m = 0; m < n; ++m) l[m] = l[m] < fl[m] ? l[m] : fl[m];
    for (int m = 0; m < n; ++m) h[m] = h[m] > fh[m] ? h[m] : fh[m];
  }
};

// Where the image is not 0.
inline Intervals foreground(const Shape& s, const float* image) {
  Intervals out(s.i, s.j);
  parallel(s.i, [&](int i) {
    for (int j = 0; j < s.j; ++j) {
      const float* row = image + (std::size_t(i) * s.j + j) * s.k;
      const int x = out.at(i, j);
      auto found = [&](int k) { return any(load_first(row + k, std::min(V, s.k - k)) != 0.f); };
      int first = 0, last = (s.k - 1) / V * V;
      while (first < s.k && !found(first)) first += V;
      if (first >= s.k) continue;
      while (!found(last)) last -= V;
      int lo = first, hi = std::min(last + V, s.k);
      while (row[lo] == 0.f) ++lo;
      while (row[hi - 1] == 0.f) --hi;
      out.lo[x] = lo;
      out.hi[x] = hi;
    }
  });
  return out;
}

}  // namespace pirate::PIRATE_VARIANT
