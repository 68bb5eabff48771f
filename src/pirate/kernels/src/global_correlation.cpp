// Global correlation of fixed f and warped w(x) = moving(x + U(x)), U the field at the resolution of the images:
//     g = 1 - rho,   rho = sum q (f - mf)(w - mw) / sqrt(sum q (f - mf)^2  sum q (w - mw)^2),   q: weights or 1,
//     dg/dw = q (a f + b w + c),  a = -1 / (Q sf sw),  b = rho / (Q sw^2),  c = -a mf - b mw,   Q = sum q,
// mf, mw means and sf, sw standard deviations. a, b, c are known only after the sums, but dg/dw is affine in f
// and w: so one sweep adds up the sums and the adjoints of three fields,
//     G_f = A^T [q (f - pf) grad],   G_w = A^T [q (w - pw) grad],   G_1 = A^T [q grad],
// grad the derivative of the interpolant, A the change of resolution, pf and pw pivots against cancellation; and
//     dg/dfield = a G_f + b G_w + (c + a pf + b pw) G_1.
//
// Along k the sweep goes cell by cell of the coarse grid: V consecutive cells, then for slot 0, 1, ... the fine
// voxels that lie in them. So interpolating the field and its adjoint read and write consecutive memory.
#include <algorithm>
#include <cmath>
#include <vector>

#include "background.hpp"
#include "kernels.hpp"
#include "resample.hpp"

namespace pirate::PIRATE_VARIANT {
namespace {

struct Sums {
  double q = 0, f = 0, ff = 0, w = 0, ww = 0, fw = 0;
  void operator+=(const Sums& o) {
    q += o.q, f += o.f, ff += o.ff, w += o.w, ww += o.ww, fw += o.fw;
  }
};

// Sums of q w, q w^2, q f w.
struct Moments {
  Doubles w, ww, fw;
  PIRATE_INLINE void add(Doubles qv, Doubles v, Doubles f) {
    w += qv;
    ww.add_product(qv, v);
    fw.add_product(qv, f);
  }
};

// Sums of q, q f, q f^2 over the image, by planes.
Sums fixed_sums(const Shape& s, const float* fixed, const float* weight) {
  std::vector<Sums> parts(s.i);
  parallel(s.i, [&](int i) {
    Doubles q, f, ff;
    const std::size_t start = i * s.plane();
    const int n = s.plane();
    vectors(0, n, [&](int k, auto part) PIRATE_BODY {
      const Doubles x = wide(part.load(fixed + start + k));
      if (weight) {
        const Doubles e = wide(part.load(weight + start + k));
        q += e;
        f.add_product(e, x);
        ff.add_product(e * x, x);
      } else {
        f += x;
        ff.add_product(x, x);
      }
    });
    parts[i].q = weight ? q.sum() : n;
    parts[i].f = f.sum();
    parts[i].ff = ff.sum();
  });
  Sums sums;
  for (const Sums& p : parts) sums += p;
  return sums;
}

struct Result {
  double value;
  float a, b, c;  // dg/dw = q (a (f - pf) + b (w - pw) + c)
};

Result finish(const Sums& s, double pf, double pw) {
  const double mf = s.f / s.q, mw = s.w / s.q;
  const double vf = s.ff / s.q - mf * mf, vw = s.ww / s.q - mw * mw, cov = s.fw / s.q - mf * mw;
  const double tiny = 1e-12;  // a variance below this part of the square is rounding
  if (!(vf > tiny * s.ff / s.q) || !(vw > tiny * s.ww / s.q)) return {1.0, 0.f, 0.f, 0.f};
  const double rho = cov / std::sqrt(vf * vw), a = -1 / (s.q * std::sqrt(vf * vw)), b = rho / (s.q * vw);
  return {1 - rho, float(a), float(b), float(a * (pf - mf) + b * (pw - mw))};
}

// Slots along k: the fine voxels whose lower coarse voxel is m, for m = 0..cells-1.
struct Slots {
  int cells, count, pitch;
  std::vector<std::int32_t> at;                 // [slot][cell]: fine voxel, any one where there is none
  std::vector<float> position, lower, upper, weight;  // [slot][cell]; no weight and far away where there is none
  std::vector<char> any;                        // [slot][cell / V]: whether one of these cells has the slot
  explicit Slots(const Line& line) {
    cells = std::max(line.source - 1, 1);
    pitch = (cells + V - 1) / V * V;
    std::vector<int> used(cells, 0);
    for (int t = 0; t < line.target; ++t) ++used[line.lower[t]];
    count = *std::max_element(used.begin(), used.end());
    at.assign(count * pitch, 0);
    position.assign(count * pitch, -1e9f);
    lower.assign(count * pitch, 0.f);
    upper = lower;
    weight = lower;
    any.assign(count * pitch / V, 0);
    std::fill(used.begin(), used.end(), 0);
    for (int t = 0; t < line.target; ++t) {
      const int m = line.lower[t], x = used[m]++ * pitch + m;
      at[x] = t;
      position[x] = t;
      lower[x] = 1.f - line.weight[t];
      upper[x] = weight[x] = line.weight[t];
      any[x / V] = 1;
    }
  }
};

PIRATE_INLINE vf pick(const float* row, const std::int32_t* at) {
  vf v;
  for (int l = 0; l < V; ++l) v[l] = row[at[l]];
  return v;
}

// Everything that the sweep reads; D axes, K = 3 D sums per coarse voxel.
template <int D, bool Weighted>
struct Sweep {
  static constexpr int K = 3 * D;
  const Shape &s, &t;  // images, field
  const float *fixed, *moving, *field, *weight;
  const Line &li, &lj;
  const Slots& slots;
  const Background& background;
  const Sampler<D>& sampler;
  float pf, pw, change[D];
  float* sums;  // [i][j][K][k] at the coarse resolution

  std::size_t row_size() const { return std::size_t(K) * t.k; }
  std::size_t plane_size() const { return t.j * row_size(); }

  // Cells first..last-1 of the coarse axis i. Plane `last` is shared with the next chunk: it goes to `edge`.
  Sums chunk(int first, int last, float* edge) const {
    const int wide_k = slots.pitch + V;
    const std::size_t lines = std::size_t(2) * K * wide_k;  // lower and upper parts of K rows
    const std::size_t plane = std::size_t(D) * t.j * t.k;
    float* memory = static_cast<float*>(scratch(sizeof(float) * (2 * lines + plane + D * wide_k + row_size())));
    float *acc[2] = {memory, memory + lines}, *flat = memory + 2 * lines, *row = flat + plane, *out = row + D * wide_k;
    Sums total_sums;
    std::fill(sums + first * plane_size(), sums + (first + 1) * plane_size(), 0.f);
    std::fill(row, row + D * wide_k, 0.f);
    int i = 0;
    while (i < s.i && li.lower[i] < first) ++i;
    for (int cell = first; cell < last; ++cell) {
      float* below = sums + cell * plane_size();
      float* above = cell + 1 < last ? below + plane_size() : edge;
      std::fill(above, above + plane_size(), 0.f);
      for (; i < s.i && li.lower[i] == cell; ++i) {
        flatten(i, flat);
        total_sums += sweep_plane(i, flat, acc, row, out, below, above, wide_k);
      }
    }
    return total_sums;
  }

 private:
  // The field between two coarse planes, in voxels of the images.
  __attribute__((noinline)) void flatten(int i, float* flat) const {
    const vf w = set(li.weight[i]);
    const int n = t.plane();
    for (int c = 0; c < D; ++c) {
      const float* a = field + c * t.size() + li.lower[i] * t.plane();
      const float* b = li.lower[i] + 1 < t.i ? a + n : a;
      vectors(0, n, [&](int k, auto part) PIRATE_BODY {
        const vf x = part.load(a + k), y = part.load(b + k);
        part.store(flat + std::size_t(c) * n + k, change[c] * (x + w * (y - x)));
      });
    }
  }

  __attribute__((noinline)) Sums sweep_plane(int i, const float* flat, float** acc, float* row, float* out, float* below, float* above,
                   int wide_k) const {
    const std::size_t lines = std::size_t(2) * K * wide_k;
    Moments moments;
    bool touched[2] = {false, false};
    int cell = 0;
    auto flush = [&] {  // coarse row `cell` of this plane is complete
      if (touched[0]) spread(acc[0], out, below + cell * row_size(), above + cell * row_size(), li.weight[i], wide_k);
      if (touched[0]) std::fill(acc[0], acc[0] + lines, 0.f);
      std::swap(acc[0], acc[1]);
      touched[0] = touched[1];
      touched[1] = false;
      ++cell;
    };
    std::fill(acc[0], acc[0] + lines, 0.f);
    std::fill(acc[1], acc[1] + lines, 0.f);
    for (int j = 0; j < s.j; ++j) {
      while (cell < lj.lower[j]) flush();
      for (int c = 0; c < D; ++c) {
        const float* a = flat + (std::size_t(c) * t.j + lj.lower[j]) * t.k;
        const float* b = lj.lower[j] + 1 < t.j ? a + t.k : a;
        vectors(0, t.k, [&](int k, auto part) PIRATE_BODY {
          const vf x = part.load(a + k), y = part.load(b + k);
          part.store(row + c * wide_k + k, x + lj.weight[j] * (y - x));
        });
        if (t.k == 1) row[c * wide_k + 1] = row[c * wide_k];
      }
      if (sweep_row(i, j, row, acc, wide_k, moments)) touched[0] = touched[1] = true;
    }
    while (cell < t.j) flush();
    Sums r;
    r.w = moments.w.sum(), r.ww = moments.ww.sum(), r.fw = moments.fw.sum();
    return r;
  }

  // One row of the images: samples, sums, and the K products spread over the coarse rows before and after it.
  __attribute__((noinline)) bool sweep_row(int i, int j, const float* row, float** acc, int wide_k, Moments& sum) const {
    Moments moments = sum;
    const vf u0 = set(1.f - lj.weight[j]), u1 = set(lj.weight[j]);
    const std::size_t start = (std::size_t(i) * s.j + j) * s.k;
    bool touched = false;
    for (int m = 0; m < slots.cells; m += V) {
      vf low[K], high[K];
      bool found = false;
      for (int slot = 0; slot < slots.count; ++slot) {
        const int x = slot * slots.pitch + m;
        if (!slots.any[x / V]) continue;
        const vf wk = load(&slots.weight[x]);
        vf p[D], g[D];
        for (int c = 0; c < D; ++c) {
          const vf a = load(row + c * wide_k + m), b = load(row + c * wide_k + m + 1);
          p[c] = a + wk * (b - a);
        }
        p[0] += float(i);
        if constexpr (D == 3) p[1] += float(j);
        p[D - 1] += load(&slots.position[x]);
        Cell<D> cell;
        vi corner[D];
        locate<D, false>(sampler, p, cell, corner);
        if (background.empty<D>(corner)) continue;
        if (!found)
          for (int r = 0; r < K; ++r) low[r] = high[r] = vf{};
        found = true;
        const vf v = interpolate<D, true>(sampler, moving, cell, g);
        const vf f = pick(fixed + start, &slots.at[x]);
        if constexpr (Weighted) {
          const vf q = pick(weight + start, &slots.at[x]);
          for (int c = 0; c < D; ++c) g[c] *= q;
          moments.add(wide(v) * wide(q), wide(v), wide(f));
        } else {
          moments.add(wide(v), wide(v), wide(f));
        }
        const vf below = load(&slots.lower[x]), above = load(&slots.upper[x]);
        const vf fp = f - pf, vp = v - pw;
        for (int c = 0; c < D; ++c) {
          const vf gl = g[c] * below, gu = g[c] * above;
          low[c] += fp * gl, high[c] += fp * gu;
          low[D + c] += vp * gl, high[D + c] += vp * gu;
          low[2 * D + c] += gl, high[2 * D + c] += gu;
        }
      }
      if (!found) continue;
      touched = true;
      for (int r = 0; r < K; ++r) {
        float *l0 = acc[0] + r * wide_k + m, *l1 = acc[1] + r * wide_k + m;
        float *h0 = l0 + K * wide_k, *h1 = l1 + K * wide_k;
        store(l0, load(l0) + u0 * low[r]);
        store(h0, load(h0) + u0 * high[r]);
        store(l1, load(l1) + u1 * low[r]);
        store(h1, load(h1) + u1 * high[r]);
      }
    }
    sum = moments;
    return touched;
  }

  // Adds a complete coarse row of a fine plane to the coarse planes before and after it.
  __attribute__((noinline)) void spread(const float* acc, float* out, float* below, float* above, float weight_i, int wide_k) const {
    for (int r = 0; r < K; ++r) {  // out[m] = lower part[m] + upper part[m - 1]
      const float *low = acc + r * wide_k, *high = acc + (K + r) * wide_k;
      float* o = out + r * t.k;
      for (int m = 0; m < t.k; ++m) o[m] = m < slots.cells ? low[m] : 0.f;
      for (int m = 1; m < t.k; ++m) o[m] += high[m - 1];
    }
    const int n = row_size();
    vectors(0, n, [&](int k, auto part) PIRATE_BODY {
      const vf x = part.load(out + k);
      part.store(below + k, part.load(below + k) + (1.f - weight_i) * x);
      part.store(above + k, part.load(above + k) + weight_i * x);
    });
  }
};

template <int D, bool Weighted>
double coarse(const Shape& s, const Shape& t, const float* fixed, const float* moving, const float* field,
              const float* weight, float* gradient) {
  const Line li(t.i, s.i), lj(t.j, s.j), lk(t.k, s.k);
  const Slots slots(lk);
  const Background background(s, moving);
  const Sampler<D> sampler(s);
  Sums sums = fixed_sums(s, fixed, weight);
  const double pf = sums.q > 0 ? sums.f / sums.q : 0, pw = background.total / s.size();
  Sweep<D, Weighted> sweep{s, t, fixed, moving, field, weight, li, lj, slots, background, sampler, float(pf), float(pw), {}, nullptr};
  for (int c = 0; c < D; ++c) sweep.change[c] = unit_change(t, s, c);
  const int cells = std::max(t.i - 1, 1), chunks = std::min(cells, 16);
  const std::size_t plane = sweep.plane_size();
  sweep.sums = static_cast<float*>(scratch(sizeof(float) * plane * (std::max(t.i, 2) + chunks), 1));
  float* edges = sweep.sums + plane * std::max(t.i, 2);
  std::vector<Sums> parts(chunks);
  auto start = [&](int c) { return int(std::int64_t(cells) * c / chunks); };
  parallel(chunks, [&](int c) { parts[c] = sweep.chunk(start(c), start(c + 1), edges + c * plane); });
  for (const Sums& p : parts) sums += p;
  const Result r = finish(sums, float(pf), float(pw));
  std::vector<int> edge(t.i + 1, -1);
  for (int c = 0; c < chunks; ++c) edge[start(c + 1)] = c;
  parallel(t.i, [&](int i) {
    const bool last = t.i > 1 && i == t.i - 1;  // belongs to the last chunk's edge alone
    for (int j = 0; j < t.j; ++j) {
      const float* own = last ? nullptr : sweep.sums + i * plane + j * sweep.row_size();
      const float* more = edge[i] >= 0 ? edges + edge[i] * plane + j * sweep.row_size() : nullptr;
      for (int c = 0; c < D; ++c) {
        float* out = gradient + c * t.size() + i * t.plane() + std::size_t(j) * t.k;
        const vf a = set(r.a * sweep.change[c]), b = set(r.b * sweep.change[c]), e = set(r.c * sweep.change[c]);
        vectors(0, t.k, [&](int k, auto part) PIRATE_BODY {
          vf v[3] = {};
          for (int m = 0; m < 3; ++m) {
            if (own) v[m] += part.load(own + (m * D + c) * t.k + k);
            if (more) v[m] += part.load(more + (m * D + c) * t.k + k);
          }
          part.store(out + k, a * v[0] + b * v[1] + e * v[2]);
        });
      }
    }
  });
  return r.value;
}

// Field and images on one grid: keep w and grad, multiply when the sums are known.
template <int D>
double same_grid(const Shape& s, const float* fixed, const float* moving, const float* field, const float* weight,
                 float* gradient) {
  const Background background(s, moving);
  const Sampler<D> sampler(s);
  Sums sums = fixed_sums(s, fixed, weight);
  const double pf = sums.q > 0 ? float(sums.f / sums.q) : 0, pw = float(background.total / s.size());
  float* warped = static_cast<float*>(scratch(sizeof(float) * s.size(), 1));
  std::vector<Sums> parts(s.i);
  const std::size_t n = s.size();
  parallel(s.i, [&](int i) {
    Moments moments;
    for (int j = 0; j < s.j; ++j) {
      const std::size_t row = (std::size_t(i) * s.j + j) * s.k;
      vectors(0, s.k, [&](int k, auto part) PIRATE_BODY {
        vf p[D], g[D] = {}, v = {};
        Cell<D> cell;
        positions<D>(field + row, n, i, j, k, part, p);
        vi corner[D];
        locate<D, false>(sampler, p, cell, corner);
        if (!background.empty<D>(corner)) {
          v = interpolate<D, true>(sampler, moving, cell, g);
          if (part.n < V) v = keep_first(v, part.n);
          const Doubles q = weight ? wide(v) * wide(part.load(weight + row + k)) : wide(v);
          moments.add(q, wide(v), wide(part.load(fixed + row + k)));
        }
        part.store(warped + row + k, v);
        for (int c = 0; c < D; ++c) part.store(gradient + c * n + row + k, g[c]);
      });
    }
    parts[i].w = moments.w.sum(), parts[i].ww = moments.ww.sum(), parts[i].fw = moments.fw.sum();
  });
  for (const Sums& p : parts) sums += p;
  const Result r = finish(sums, pf, pw);
  parallel(s.i, [&](int i) {
    const std::size_t start = i * s.plane();
    const int plane = s.plane();
    vectors(0, plane, [&](int k, auto part) PIRATE_BODY {
      const std::size_t x = start + k;
      vf dw = r.a * (part.load(fixed + x) - float(pf)) + r.b * (part.load(warped + x) - float(pw)) + r.c;
      if (weight) dw *= part.load(weight + x);
      for (int c = 0; c < D; ++c) part.store(gradient + c * n + x, dw * part.load(gradient + c * n + x));
    });
  });
  return r.value;
}

}  // namespace

// `grid` is the grid of the field and the gradient; along each axis it has at most the voxels of the images.
double global_correlation(const Shape& s, const Shape& grid, const float* fixed, const float* moving,
                          const float* field, const float* weight, float* gradient) {
  if (grid.i == s.i && grid.j == s.j && grid.k == s.k)
    return s.d == 3 ? same_grid<3>(s, fixed, moving, field, weight, gradient)
                    : same_grid<2>(s, fixed, moving, field, weight, gradient);
  if (s.d == 3)
    return weight ? coarse<3, true>(s, grid, fixed, moving, field, weight, gradient)
                  : coarse<3, false>(s, grid, fixed, moving, field, weight, gradient);
  return weight ? coarse<2, true>(s, grid, fixed, moving, field, weight, gradient)
                : coarse<2, false>(s, grid, fixed, moving, field, weight, gradient);
}

}  // namespace pirate::PIRATE_VARIANT
