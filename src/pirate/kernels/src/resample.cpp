// Change of resolution, corners on corners: voxel t of the target lies at t (n - 1) / (n' - 1) of the source,
//     out = (1 - w) x[lower] + w x[lower + 1],  along i, then j, then k,
// and channel c of a field is multiplied by (n'_c - 1) / (n_c - 1), voxels of the target per voxel of the source.
#include "resample.hpp"

#include <algorithm>
#include <vector>

#include "kernels.hpp"
#include "simd.hpp"

namespace pirate::PIRATE_VARIANT {

Line::Line(int source, int target) : lower(target + V), weight(target + V), source(source), target(target) {
  for (int t = 0; t < target; ++t) {
    const double p = target > 1 && source != target ? t * (double(source - 1) / (target - 1)) : t;
    const int highest = source > 1 ? source - 2 : 0;
    lower[t] = std::min(std::max(int(p), 0), highest);
    weight[t] = float(p - lower[t]);
    if (source == 1) weight[t] = 0;  // the one voxel everywhere
  }
  // For the adjoint: the target voxels that voxel m of the source feeds.
  first.resize(source + 1);
  for (int m = 0; m <= source; ++m) {
    int t = 0;
    while (t < target && lower[t] + 1 < m) ++t;
    first[m] = t;
  }
}

namespace {

void blend(const float* a, const float* b, float w, int n, float* out) {
  vectors(0, n, [&](int k, auto part) PIRATE_BODY {
    const vf x = part.load(a + k), y = part.load(b + k);
    part.store(out + k, x + w * (y - x));
  });
}

void along_k(const float* row, const Line& line, float scale, float* out) {
  vectors(0, line.target, [&](int t, auto part) PIRATE_BODY {  // lower is at most source - 2
    vf a, b;
    pairs(row, &line.lower[t], a, b);
    part.store(out + t, scale * (a + load(&line.weight[t]) * (b - a)));
  });
}

// out[m] += the part of `row` (target) that voxel m of the source fed.
void along_k_adjoint(const float* row, const Line& line, float scale, float* out) {
  for (int t = 0; t < line.target; ++t) {
    const int l = line.lower[t];
    out[l] += scale * (row[t] * (1.f - line.weight[t]));
    if (l + 1 < line.source) out[l + 1] += scale * (row[t] * line.weight[t]);
  }
}

}  // namespace

float unit_change(int source, int target) { return source > 1 ? float(double(target - 1) / (source - 1)) : 1.f; }

float unit_change(const Shape& from, const Shape& to, int channel) {
  if (channel == 0) return unit_change(from.i, to.i);
  return channel == 1 && from.d == 3 ? unit_change(from.j, to.j) : unit_change(from.k, to.k);
}

void resize_field(const Shape& from, const Shape& to, const float* field, float* out) {
  const Line li(from.i, to.i), lj(from.j, to.j), lk(from.k, to.k);
  parallel(to.d * to.i, [&](int task) {
    const int c = task / to.i, i = task % to.i;
    const float scale = unit_change(from, to, c);
    const float* a = field + c * from.size() + li.lower[i] * from.plane();
    const float* b = li.lower[i] + 1 < from.i ? a + from.plane() : a;
    float* plane = static_cast<float*>(scratch(sizeof(float) * (from.plane() + from.k)));
    float* row = plane + from.plane();
    blend(a, b, li.weight[i], from.plane(), plane);
    for (int j = 0; j < to.j; ++j) {
      const float* p = plane + std::size_t(lj.lower[j]) * from.k;
      blend(p, lj.lower[j] + 1 < from.j ? p + from.k : p, lj.weight[j], from.k, row);
      along_k(row, lk, scale, out + ((std::size_t(c) * to.i + i) * to.j + j) * to.k);
    }
  });
}

// `from` is the grid of `force`, `to` the grid of the field that resize_field took to it.
void resize_field_adjoint(const Shape& from, const Shape& to, const float* force, float* out) {
  const Line li(to.i, from.i), lj(to.j, from.j), lk(to.k, from.k);
  parallel(to.d * to.i, [&](int task) {
    const int c = task / to.i, m = task % to.i;
    const float scale = unit_change(to, from, c);
    float* plane = static_cast<float*>(scratch(sizeof(float) * (from.plane() + from.k)));
    float* row = plane + from.plane();
    std::fill(plane, plane + from.plane(), 0.f);
    auto add = [](const float* x, float w, int n, float* sum) {
      vectors(0, n, [&](int k, auto part) PIRATE_BODY { part.store(sum + k, part.load(sum + k) + w * part.load(x + k)); });
    };
    auto feeds = [](const Line& l, int t, int voxel) {  // weight of source voxel `voxel` in target voxel t
      if (l.lower[t] == voxel) return 1.f - l.weight[t];
      return l.lower[t] + 1 == voxel && voxel < l.source ? l.weight[t] : 0.f;
    };
    for (int t = li.first[m]; t < from.i && li.lower[t] <= m; ++t)
      if (const float w = feeds(li, t, m); w != 0) add(force + (std::size_t(c) * from.i + t) * from.plane(), w, from.plane(), plane);
    for (int q = 0; q < to.j; ++q) {
      std::fill(row, row + from.k, 0.f);
      for (int t = lj.first[q]; t < from.j && lj.lower[t] <= q; ++t)
        if (const float w = feeds(lj, t, q); w != 0) add(plane + std::size_t(t) * from.k, w, from.k, row);
      float* target = out + ((std::size_t(c) * to.i + m) * to.j + q) * to.k;
      std::fill(target, target + to.k, 0.f);
      along_k_adjoint(row, lk, scale, target);
    }
  });
}

}  // namespace pirate::PIRATE_VARIANT
