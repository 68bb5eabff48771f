// Correlation of every channel with symmetric taps along each axis: see sweep.hpp.
#include "kernels.hpp"
#include "sweep.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

constexpr int kRows = 32;   // rows of a tile: its 2 R + 2 planes stay in the second cache
constexpr int kTasks = 16;  // at least so many, if there are planes enough

// Rows of one channel in memory, rows first..last-1 of which are asked for.
class Channel {
 public:
  Channel(const Shape& s, const float* x, int radius, int begin, int first, int last)
      : s_(s), x_(x), span_(2 * radius + 2), next_(begin), first_(first), rows_(last - first) {
    ranges_.resize(std::size_t(span_) * rows_);
  }
  void advance(int p) {
    for (; next_ <= p; ++next_) {
      const Plane plane = {next_, next_ % span_};
      for (int q = 0; q < rows_; ++q) ranges_[plane.slot * rows_ + q] = occupied(row(0, plane, first_ + q), s_.k);
    }
  }
  const float* row(int, Plane plane, int q) const { return x_ + (std::size_t(plane.p) * s_.j + q) * s_.k; }
  Range range(int, Plane plane, int q) const { return ranges_[plane.slot * rows_ + q - first_]; }

 private:
  const Shape& s_;
  const float* x_;
  int span_, next_, first_, rows_;
  std::vector<Range> ranges_;
};

}  // namespace

// taps_a holds n_a = R + 1 weights h_0..h_R; n_a = 0 leaves the axis alone.
void correlate(const Shape& s, int channels, const float* x, const float* taps_i, int n_i, const float* taps_j,
               int n_j, const float* taps_k, int n_k, float* out) {
  const Taps i = taps(taps_i, n_i), j = taps(taps_j, n_j), k = taps(taps_k, n_k);
  const bool past_cache = streamed(out, s.k, channels * s.size());
  over_tiles(s, kRows, kTasks, channels, [&](Tile t, int c) {
    Channel source(s, x + c * s.size(), i.radius, clip(t.i0 - i.radius, s.i), t.first(j, s.j),
                   t.last(j, s.j));
    float* memory = static_cast<float*>(scratch(sizeof(float) * Sweep<Channel>::floats(s, j, k)));
    Sweep(s, i, j, k, source, past_cache)(t, 1, memory, out + c * s.size());
  });
}

}  // namespace pirate::PIRATE_VARIANT
