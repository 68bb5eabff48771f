// Correlation with symmetric taps along each axis in turn, the border voxel repeated outside:
//     out(x) = h_0 u(x) + sum over m = 1..R of h_m (u(x - m) + u(x + m)).
// All three axes in one sweep over memory: a tile of rows walks along i, so that its 2 R + 1 planes stay in
// the cache; the rows of the tile pass through i, then j (a ring of rows), then k (one padded row).
#include <vector>

#include "kernels.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

constexpr int kTile = 32;   // rows of a tile
constexpr int kTasks = 16;  // at least so many, if there are planes enough

struct Taps {
  const float* h;  // h_0 .. h_R
  int radius;      // -1: leave the axis alone
};

int clip(int x, int n) { return x < 0 ? 0 : x < n ? x : n - 1; }

// out[k] = h_0 rows[R][k] + sum of h_m (rows[R - m][k] + rows[R + m][k]). A cache line of each row at a time:
// rows of planes that lie a multiple of 4 kB apart push one another out of the first cache.
template <int Fixed>
void combine(const float* const* rows, Taps taps, int n, float* out) {
  const int radius = Fixed >= 0 ? Fixed : taps.radius;
  const float *row[Fixed >= 0 ? 2 * Fixed + 1 : 1], *const* at = rows;
  vf h[Fixed >= 0 ? Fixed + 1 : 1];
  if constexpr (Fixed >= 0) {
    for (int m = 0; m <= 2 * Fixed; ++m) row[m] = rows[m];
    for (int m = 0; m <= Fixed; ++m) h[m] = set(taps.h[m]);
    at = row;
  }
  auto tap = [&](int m) PIRATE_BODY { return Fixed >= 0 ? h[Fixed >= 0 ? m : 0] : set(taps.h[m]); };
  int k = 0;
  for (; k + 2 * V <= n; k += 2 * V) {
    const float* centre = at[radius] + k;
    vf v = tap(0) * load(centre), w = tap(0) * load(centre + V);
    for (int m = 1; m <= radius; ++m) {
      const float *p = at[radius - m] + k, *q = at[radius + m] + k;
      v += tap(m) * (load(p) + load(q));
      w += tap(m) * (load(p + V) + load(q + V));
    }
    store(out + k, v);
    store(out + k + V, w);
  }
  vectors(k, n, [&](int x, auto part) PIRATE_BODY {
    vf v = tap(0) * part.load(at[radius] + x);
    for (int m = 1; m <= radius; ++m) v += tap(m) * (part.load(at[radius - m] + x) + part.load(at[radius + m] + x));
    part.store(out + x, v);
  });
}

void combine_rows(const float* const* rows, Taps taps, int n, float* out) {
  switch (taps.radius) {
    case 1: return combine<1>(rows, taps, n, out);
    case 2: return combine<2>(rows, taps, n, out);
    case 3: return combine<3>(rows, taps, n, out);
    case 4: return combine<4>(rows, taps, n, out);
    case 5: return combine<5>(rows, taps, n, out);
    default: return combine<-1>(rows, taps, n, out);
  }
}

struct Task {
  const Shape& s;
  Taps i, j, k;
  const float* x;
  float* out;

  // Output rows j0..j1-1 of planes i0..i1-1 of one channel.
  void operator()(int i0, int i1, int j0, int j1) const {
    const int ri = i.radius < 0 ? 0 : i.radius, rj = j.radius < 0 ? 0 : j.radius, rk = k.radius < 0 ? 0 : k.radius;
    const int ring = 2 * rj + 1, pitch = (s.k + 15) / 16 * 16;
    const int pad = (rk + 15) / 16 * 16;
    float* lines = static_cast<float*>(scratch(sizeof(float) * (std::size_t(ring) * pitch + pitch + 2 * pad)));
    float* padded = lines + std::size_t(ring) * pitch + pad;
    std::vector<const float*> held(ring), planes(2 * ri + 1), window(2 * rj + 1), shifts(2 * rk + 1);
    const int first = clip(j0 - rj, s.j);
    for (int m = 0; m <= 2 * rk; ++m) shifts[m] = padded + m - rk;
    for (int p = i0; p < i1; ++p) {
      int ready = first - 1;  // rows up to this one have passed i
      for (int q = j0; q < j1; ++q) {
        for (; ready < clip(q + rj, s.j);) {
          ++ready;
          for (int m = 0; m <= 2 * ri; ++m) planes[m] = source(clip(p + m - ri, s.i), ready);
          float* line = lines + std::size_t(ready % ring) * pitch;
          if (i.radius >= 0) combine_rows(planes.data(), i, s.k, line);
          held[ready % ring] = i.radius >= 0 ? line : planes[0];
        }
        for (int m = 0; m <= 2 * rj; ++m) window[m] = held[clip(q + m - rj, s.j) % ring];
        float* target = out + (std::size_t(p) * s.j + q) * s.k;
        if (k.radius < 0) {
          along_j(window, target);
          continue;
        }
        along_j(window, padded);
        for (int m = 1; m <= rk; ++m) {
          padded[-m] = padded[0];
          padded[s.k - 1 + m] = padded[s.k - 1];
        }
        combine_rows(shifts.data(), k, s.k, target);
      }
    }
  }

 private:
  const float* source(int p, int q) const { return x + (std::size_t(p) * s.j + q) * s.k; }
  void along_j(const std::vector<const float*>& window, float* target) const {
    if (j.radius >= 0)
      combine_rows(window.data(), j, s.k, target);
    else
      std::memcpy(target, window[0], sizeof(float) * s.k);
  }
};

}  // namespace

// taps_a holds n_a = R + 1 weights h_0..h_R; n_a = 0 leaves the axis alone.
void correlate(const Shape& s, int channels, const float* x, const float* taps_i, int n_i, const float* taps_j,
               int n_j, const float* taps_k, int n_k, float* out) {
  const int tiles = (s.j + kTile - 1) / kTile;
  int blocks = (kTasks + channels * tiles - 1) / (channels * tiles);
  const int height = (s.i + blocks - 1) / blocks;
  blocks = (s.i + height - 1) / height;
  parallel(channels * tiles * blocks, [&](int task) {
    const std::size_t channel = task / (tiles * blocks) * s.size();
    const int tile = task / blocks % tiles, block = task % blocks;
    const Task go{s, {taps_i, n_i - 1}, {taps_j, n_j - 1}, {taps_k, n_k - 1}, x + channel, out + channel};
    auto end = [](int start, int step, int n) { return start + step < n ? start + step : n; };
    go(block * height, end(block * height, height, s.i), tile * kTile, end(tile * kTile, kTile, s.j));
  });
}

}  // namespace pirate::PIRATE_VARIANT
