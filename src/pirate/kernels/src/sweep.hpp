// Correlation with symmetric taps along each axis in turn, the border voxel repeated outside:
//     out(x) = h_0 u(x) + sum over m = 1..R of h_m (u(x - m) + u(x + m)).
// All three axes in one sweep over memory: a tile of rows walks along i, two planes at a time, so that the planes
// it needs stay in the cache; rows pass through i, then j (a ring of rows), then k (one padded row).
// Stretches of 0 at the ends of rows, within the reach of the taps, are not computed: their result is 0.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "intervals.hpp"

namespace pirate::PIRATE_VARIANT {

struct Taps {
  const float* h;  // h_0 .. h_R
  int radius;
};
constexpr float kOne[] = {1.f};
inline Taps taps(const float* h, int n) { return n > 0 ? Taps{h, n - 1} : Taps{kOne, 0}; }

inline int clip(int x, int n) { return x < 0 ? 0 : x < n ? x : n - 1; }

// Voxels lo..hi-1 of a row, the rest of which is 0; lo and hi are multiples of V, so hi may pass the end.
struct Range {
  int lo = kNever, hi = 0;
  bool empty() const { return lo >= hi; }
  void join(Range o) { lo = std::min(lo, o.lo), hi = std::max(hi, o.hi); }
};

inline Range occupied(const float* row, int n) {
  auto found = [&](int k) { return any(load_first(row + k, std::min(V, n - k)) != 0.f); };
  int first = 0, last = (n - 1) / V * V;
  while (first < n && !found(first)) first += V;
  if (first >= n) return {};
  while (!found(last)) last -= V;
  return {first, last + V};
}

inline void clear(float* row, int lo, int hi, bool past_cache = false) {
  if (!past_cache) return std::fill(row + lo, row + std::max(lo, hi), 0.f);
  for (int k = lo; k < hi; k += V) stream(row + k, vf{});
}

// out[k] = h_0 rows[R][k] + sum of h_m (rows[R - m][k] + rows[R + m][k]).
template <int Fixed, bool Stream>
void combine(const float* const* rows, Taps taps, Range range, int n, float* out) {
  const int radius = Fixed >= 0 ? Fixed : taps.radius;
  const float *row[Fixed >= 0 ? 2 * Fixed + 1 : 1], *const* at = rows;
  vf h[Fixed >= 0 ? Fixed + 1 : 1];
  if constexpr (Fixed >= 0) {
    for (int m = 0; m <= 2 * Fixed; ++m) row[m] = rows[m];
    for (int m = 0; m <= Fixed; ++m) h[m] = set(taps.h[m]);
    at = row;
  }
  vectors(range.lo, std::min(range.hi, n), [&](int k, auto part) PIRATE_BODY {
    auto tap = [&](int m) PIRATE_BODY { return Fixed >= 0 ? h[Fixed >= 0 ? m : 0] : set(taps.h[m]); };
    vf v = tap(0) * part.load(at[radius] + k);
    for (int m = 1; m <= radius; ++m) v += tap(m) * (part.load(at[radius - m] + k) + part.load(at[radius + m] + k));
    if constexpr (Stream) stream(out + k, v);
    else part.store(out + k, v);
  });
}

// The same of rows[0..2R] and of rows[1..2R + 1], each row read once. The results are whole vectors.
// A cache line of each row at a time: rows of planes a multiple of 4 kB apart push one another out of the first cache.
template <int Fixed>
void combine_two(const float* const* rows, Taps taps, Range range, int n, float* const* out) {
  const int radius = Fixed >= 0 ? Fixed : taps.radius;
  const float *row[Fixed >= 0 ? 2 * Fixed + 2 : 1], *const* at = rows;
  vf h[Fixed >= 0 ? Fixed + 1 : 1];
  if constexpr (Fixed >= 0) {
    for (int m = 0; m < 2 * Fixed + 2; ++m) row[m] = rows[m];
    for (int m = 0; m <= Fixed; ++m) h[m] = set(taps.h[m]);
    at = row;
  }
  float *const first = out[0], *const second = out[1];
  auto body = [&](int k, auto part) PIRATE_BODY {
    auto tap = [&](int m) PIRATE_BODY { return Fixed >= 0 ? h[Fixed >= 0 ? m : 0] : set(taps.h[m]); };
    vf low = part.load(at[radius] + k), high = part.load(at[radius + 1] + k);
    vf a = tap(0) * low, b = tap(0) * high;
    for (int m = 1; m <= radius; ++m) {
      vf lower = part.load(at[radius - m] + k), higher = part.load(at[radius + 1 + m] + k);
      hold(lower), hold(higher);
      a += tap(m) * (lower + high);
      b += tap(m) * (low + higher);
      low = lower, high = higher;
    }
    store(first + k, a);
    store(second + k, b);
  };
  const int hi = std::min(range.hi, n);
  int k = range.lo;
  for (; k + 2 * V <= hi; k += 2 * V) {
    body(k, Whole{});
    body(k + V, Whole{});
  }
  vectors(k, hi, body);
}

// body(radius) with the radius as a constant of the compiler, -1 for a large one.
template <class Body>
PIRATE_INLINE void by_radius(int radius, Body body) {
  switch (radius) {
    case 0: return body(std::integral_constant<int, 0>{});
    case 1: return body(std::integral_constant<int, 1>{});
    case 2: return body(std::integral_constant<int, 2>{});
    case 3: return body(std::integral_constant<int, 3>{});
    case 4: return body(std::integral_constant<int, 4>{});
    case 5: return body(std::integral_constant<int, 5>{});
    default: return body(std::integral_constant<int, -1>{});
  }
}

// Output planes i0..i1-1, rows j0..j1-1.
struct Tile {
  int i0, i1, j0, j1;
  // Rows first..last-1 of the input are needed for output rows two by two.
  int first(Taps j, int n) const { return clip(j0 - j.radius, n); }
  int last(Taps j, int n) const { return clip(j0 + (j1 - j0 + 1) / 2 * 2 - 1 + j.radius, n) + 1; }
};

// Tiles of at most `rows` rows, and shorter ones along i if there were fewer than `tasks`: the same for any number
// of threads. body(tile, n) for each, n times `repeats` (channels).
template <class Body>
void over_tiles(const Shape& s, int rows, int tasks, int repeats, Body body) {
  const int across = (s.j + rows - 1) / rows, wide = (s.j + across - 1) / across;
  const int blocks = (tasks + repeats * across - 1) / (repeats * across), high = (s.i + blocks - 1) / blocks;
  const int along = (s.i + high - 1) / high;
  parallel(repeats * across * along, [&](int task) {
    const int j = task / along % across * wide, i = task % along * high;
    body(Tile{i, std::min(i + high, s.i), j, std::min(j + wide, s.j)}, task / (along * across));
    arrived();
  });
}

// A plane of the input, one of the 2 R + 2 that are needed at a time, and its place among them.
struct Plane {
  int p, slot;
};

// Source, the rows of the input of one tile: advance(p) is told that planes up to p are needed now, and only the
// last 2 R + 2; row(c, plane, q) is row q of channel c, range(c, plane, q) its part that is not 0.
template <class Source>
class Sweep {
 public:
  Sweep(const Shape& s, Taps i, Taps j, Taps k, Source& source, bool past_cache)
      : s_(s), i_(i), j_(j), k_(k), source_(source), past_cache_(past_cache), ring_(2 * j.radius + 2) {}

  // Floats of memory that a sweep needs.
  static std::size_t floats(const Shape& s, Taps j, Taps k) {
    return std::size_t(2 * (2 * j.radius + 2) + 1) * pitch(s) + 4 * (pitch(s) + 2 * pad(k));
  }

  // Channels 0..channels-1 of the tile; `out` begins a channel every s.size() floats.
  void operator()(Tile t, int channels, float* memory, float* out) {
    const int n = pitch(s_);
    for (int b = 0; b < 2; ++b) {
      lines_[b] = memory + std::size_t(b) * ring_ * n;
      for (int r = 0; r < 2; ++r)
        padded_[b][r] = memory + std::size_t(2 * ring_ + 1) * n + (2 * b + r) * (n + 2 * pad(k_)) + pad(k_);
      held_[b].assign(ring_, nullptr);
    }
    zero_ = memory + std::size_t(2 * ring_) * n;
    clear(zero_, 0, n);
    ranges_.assign(ring_, {});
    slots_.clear();  // a table: dividing for every row would take as long as the rows
    for (int q = t.j0 - j_.radius; q <= t.j1 + j_.radius; ++q) slots_.push_back(clip(q, s_.j) % ring_);
    for (int p = t.i0; p < t.i1; p += 2) {
      source_.advance(clip(p + 1 + i_.radius, s_.i));
      for (int c = 0; c < channels; ++c) two_planes(t, c, p, out + c * s_.size());
    }
  }

 private:
  static int pitch(const Shape& s) { return (s.k + 15) / 16 * 16; }
  static int pad(Taps k) { return (k.radius + 15) / 16 * 16; }

  void two_planes(Tile t, int c, int p, float* out) {
    int ready = clip(t.j0 - j_.radius, s_.j) - 1;  // rows up to this one have passed i
    const int planes = std::min(2, t.i1 - p), span = 2 * i_.radius + 2;
    planes_.resize(span);
    for (int m = 0; m < span; ++m) {
      const int at = clip(p + m - i_.radius, s_.i);
      planes_[m] = {at, at % span};
    }
    for (int q = t.j0; q < t.j1; q += 2) {
      const int* window = slots_.data() + q - t.j0;  // slots of rows q - R..q + 1 + R
      while (ready < clip(q + 1 + j_.radius, s_.j)) {
        ++ready;
        along_i(c, ready, slots_[ready - t.j0 + j_.radius]);
      }
      Range range;
      for (int m = 0; m < ring_; ++m) range.join(ranges_[window[m]]);
      for (int b = 0; b < planes; ++b) along_j(b, window, range);
      for (int b = 0; b < planes; ++b)
        for (int r = 0; r < std::min(2, t.j1 - q); ++r)
          along_k(padded_[b][r], range, out + (std::size_t(p + b) * s_.j + q + r) * s_.k);
    }
  }

  // Row q of the two planes, into a slot of the rings.
  void along_i(int c, int q, int slot) {
    Range range;
    rows_.resize(planes_.size());
    for (std::size_t m = 0; m < planes_.size(); ++m) {
      rows_[m] = source_.row(c, planes_[m], q);
      range.join(source_.range(c, planes_[m], q));
    }
    ranges_[slot] = range;
    float* to[2];
    for (int b = 0; b < 2; ++b) {
      to[b] = lines_[b] + std::size_t(slot) * pitch(s_);
      held_[b][slot] = range.empty() ? zero_ : to[b];
    }
    if (range.empty()) return;
    by_radius(i_.radius, [&](auto fixed) { combine_two<fixed.value>(rows_.data(), i_, range, s_.k, to); });
    for (float* line : to) {
      clear(line, 0, range.lo);
      clear(line, range.hi, pitch(s_));
    }
  }

  // Two rows of plane b of the two, from the rows in these slots, into the padded rows.
  void along_j(int b, const int* window, Range range) {
    if (range.empty()) return;
    rows_.resize(ring_);
    for (int m = 0; m < ring_; ++m) rows_[m] = held_[b][window[m]];
    by_radius(j_.radius, [&](auto fixed) {
      combine_two<fixed.value>(rows_.data(), j_, range, pitch(s_), padded_[b]);
    });
    for (float* row : padded_[b]) {
      clear(row, 0, range.lo);
      clear(row, range.hi, pitch(s_));
      std::fill(row - k_.radius, row, row[0]);
      std::fill(row + s_.k, row + s_.k + k_.radius, row[s_.k - 1]);
    }
  }

  void along_k(const float* row, Range range, float* out) {
    if (range.empty()) return clear(out, 0, s_.k, past_cache_);
    const Range wide = {std::max(0, align(range.lo - k_.radius)), std::min(align(range.hi + k_.radius + V - 1), pitch(s_))};
    rows_.resize(2 * k_.radius + 1);
    for (int m = 0; m <= 2 * k_.radius; ++m) rows_[m] = row + m - k_.radius;
    by_radius(k_.radius, [&](auto fixed) {
      if (past_cache_) combine<fixed.value, true>(rows_.data(), k_, wide, s_.k, out);
      else combine<fixed.value, false>(rows_.data(), k_, wide, s_.k, out);
    });
    clear(out, 0, wide.lo, past_cache_);
    clear(out, wide.hi, s_.k, past_cache_);
  }

  const Shape& s_;
  const Taps i_, j_, k_;
  Source& source_;
  const bool past_cache_;
  const int ring_;
  float *lines_[2], *padded_[2][2], *zero_;
  std::vector<const float*> held_[2], rows_;
  std::vector<Range> ranges_;
  std::vector<Plane> planes_;
  std::vector<int> slots_;
};

}  // namespace pirate::PIRATE_VARIANT
