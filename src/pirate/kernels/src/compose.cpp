// Composition of a field with a small update by an upwind star instead of interpolation:
//     out(x) = u(x) + sum over axes a of |d_a| (u(x + sign(d_a) e_a) - u(x)) + d(x),   |d_a| clipped to 1,
// the border voxel repeated outside. First-order equal to u(x + d) + d for |d| <= 1.
// Alone, or followed by a correlation along each axis (sweep.hpp) while the composed rows are in the cache.
#include "kernels.hpp"
#include "neighbours.hpp"
#include "sweep.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

constexpr int kRows = 24;   // rows of a tile: 2 R + 2 composed planes of it stay in the second cache for R = 2
constexpr int kTasks = 16;  // at least so many, if there are planes enough

// Row (i, j) of channel M.
template <int D, int M, bool Stream>
void star_channel(const Shape& s, const float* u, const float* d, int i, int j, float* out) {
  const std::size_t n = s.size(), row = (std::size_t(i) * s.j + j) * s.k;
  const std::ptrdiff_t plane = s.plane(), line = s.k;
  const float* r = u + M * n + row;
  const float *up_i = r - (i > 0 ? plane : 0), *down_i = r + (i + 1 < s.i ? plane : 0);
  const float *up_j = r - (j > 0 ? line : 0), *down_j = r + (j + 1 < s.j ? line : 0);
  const float *d_i = d + row, *d_j = d_i + n, *d_k = d_i + (D - 1) * n;
  const int nk = s.k;
  vectors(0, nk, [&](int k, auto part) PIRATE_BODY {
    const vf here = part.load(r + k);
    vf moved = here;
    auto towards = [&](const float* steps, bool own, vf low, vf high) PIRATE_BODY {
      const vf step = part.load(steps + k);
      moved += vmin(vabs(step), set(1.f)) * ((step < 0.f ? low : high) - here);
      if (own) moved += step;
    };
    towards(d_i, M == 0, part.load(up_i + k), part.load(down_i + k));
    if constexpr (D == 3) towards(d_j, M == 1, part.load(up_j + k), part.load(down_j + k));
    const Sides side = along_k(r, k, nk);
    towards(d_k, M == D - 1, side.low, side.high);
    if constexpr (Stream) stream(out + k, moved);
    else part.store(out + k, moved);
  });
}

// Row (i, j), channel m to out + m * step. One channel after the other: all rows at once would not find room in the
// first cache, where rows of planes and channels that lie a multiple of 4 kB apart compete.
template <int D, bool Stream>
void star_row(const Shape& s, const float* u, const float* d, int i, int j, float* out, std::size_t step) {
  star_channel<D, 0, Stream>(s, u, d, i, j, out);
  star_channel<D, 1, Stream>(s, u, d, i, j, out + step);
  if constexpr (D == 3) star_channel<D, 2, Stream>(s, u, d, i, j, out + 2 * step);
}

// The composed field, plane after plane of a tile, in a ring; rows first..last-1.
class Composed {
 public:
  Composed(const Shape& s, const float* field, const float* update, int radius, int begin, int first, int last,
           float* memory)
      : s_(s), field_(field), update_(update), span_(2 * radius + 2), next_(begin), first_(first),
        rows_(last - first), memory_(memory) {}

  // Floats of memory for `rows` rows.
  static std::size_t floats(const Shape& s, int radius, int rows) {
    return std::size_t(2 * radius + 2) * s.d * rows * pitch(s);
  }
  void advance(int p) {
    for (; next_ <= p; ++next_)
      for (int q = first_; q < first_ + rows_; ++q) {
        fetch(next_, q + kAhead);
        float* to = line(0, next_ % span_, q);
        const std::size_t step = std::size_t(rows_) * pitch(s_);
        if (s_.d == 3) star_row<3, false>(s_, field_, update_, next_, q, to, step);
        if (s_.d == 2) star_row<2, false>(s_, field_, update_, next_, q, to, step);
      }
  }
  const float* row(int c, Plane plane, int q) const { return line(c, plane.slot, q); }
  Range range(int, Plane, int) const { return {0, align(s_.k + V - 1)}; }

 private:
  static constexpr int kAhead = 2;
  static int pitch(const Shape& s) { return (s.k + 15) / 16 * 16; }
  // Row q of plane p, counted on into the next plane: short stretches of memory, the hardware would notice too late.
  void fetch(int p, int q) const {
    if (q >= first_ + rows_) q -= rows_, ++p;
    if (p + 1 >= s_.i || q >= first_ + rows_) return;
    const std::size_t here = (std::size_t(p) * s_.j + q) * s_.k;
    for (int c = 0; c < s_.d; ++c) {
      prefetch(update_ + c * s_.size() + here, s_.k);
      prefetch(field_ + c * s_.size() + s_.plane() + here, s_.k);
    }
  }
  float* line(int c, int slot, int q) const {
    return memory_ + ((std::size_t(slot) * s_.d + c) * rows_ + q - first_) * pitch(s_);
  }
  const Shape& s_;
  const float *field_, *update_;
  int span_, next_, first_, rows_;
  float* memory_;
};

}  // namespace

void compose_small(const Shape& s, const float* field, const float* update, float* out) {
  const bool past_cache = streamed(out, s.k, s.d * s.size());
  parallel(s.i, [&](int i) {
    for (int j = 0; j < s.j; ++j) {
      float* to = out + (std::size_t(i) * s.j + j) * s.k;
      if (s.d == 3 && past_cache) star_row<3, true>(s, field, update, i, j, to, s.size());
      else if (s.d == 3) star_row<3, false>(s, field, update, i, j, to, s.size());
      else star_row<2, false>(s, field, update, i, j, to, s.size());
    }
    arrived();
  });
}

// taps_a as in `correlate`.
void compose_small_correlate(const Shape& s, const float* field, const float* update, const float* taps_i, int n_i,
                             const float* taps_j, int n_j, const float* taps_k, int n_k, float* out) {
  const Taps i = taps(taps_i, n_i), j = taps(taps_j, n_j), k = taps(taps_k, n_k);
  const bool past_cache = streamed(out, s.k, s.d * s.size());
  over_tiles(s, kRows, kTasks, 1, [&](Tile t, int) {
    const int first = t.first(j, s.j), last = t.last(j, s.j);
    const std::size_t lines = Sweep<Composed>::floats(s, j, k), ring = Composed::floats(s, i.radius, last - first);
    float* memory = static_cast<float*>(scratch(sizeof(float) * (lines + ring)));
    Composed source(s, field, update, i.radius, clip(t.i0 - i.radius, s.i), first, last, memory + lines);
    Sweep(s, i, j, k, source, past_cache)(t, s.d, memory, out);
  });
}

}  // namespace pirate::PIRATE_VARIANT
