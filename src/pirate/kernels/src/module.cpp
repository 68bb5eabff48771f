// Python's view of the kernels: addresses of dense float32 memory, which pirate/kernels/__init__.py has checked.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "pool.hpp"
#include "table.hpp"

namespace nb = nanobind;

namespace {

using pirate::Shape;
using pirate::Table;
using Address = std::uintptr_t;
using Sizes = std::vector<int>;
using Lists = std::vector<std::vector<float>>;

#ifdef PIRATE_X86
bool runs(const std::string& name) {
  __builtin_cpu_init();
  if (name == "baseline") return true;
  if (name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return name == "avx512" && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && runs("avx2");
}
const Table* const tables[] = {&pirate::avx512::table, &pirate::avx2::table, &pirate::baseline::table};
#else
bool runs(const std::string& name) { return name == "baseline"; }
const Table* const tables[] = {&pirate::baseline::table};
#endif

// The named variant, or the fastest that this machine runs.
const Table* choose(const std::string& name) {
  for (const Table* t : tables)
    if ((name.empty() || name == t->name) && runs(t->name)) return t;
  throw std::invalid_argument("no kernels called '" + name + "' that run on this machine");
}
const Table* kernels = nullptr;

const float* in(Address a) { return reinterpret_cast<const float*>(a); }
float* out(Address a) { return reinterpret_cast<float*>(a); }

Shape shape(const Sizes& n) {
  const bool sound = (n.size() == 2 || n.size() == 3) && n.back() >= 2;
  double size = 1;
  for (int m : n) size *= m >= 1 ? m : 0;
  if (!sound || size < 1 || size >= 2147483648.0) throw std::invalid_argument("unsupported shape");
  return n.size() == 3 ? Shape{n[0], n[1], n[2], 3} : Shape{n[0], 1, n[1], 2};
}

// Addresses in the order of DataTerm; 0 for what is missing.
using Addresses = std::array<Address, 6>;
pirate::DataTerm data_term(const Addresses& a) {
  return {in(a[0]), in(a[1]), in(a[2]), in(a[3]), in(a[4]), out(a[5])};
}
using Result = std::tuple<double, double, double, double, double, double>;
Result result(double value, const pirate::Moments& m) { return {value, m.q, m.f, m.ff, m.w, m.ww}; }

// One list of taps for each of i, j, k; a 2-D grid has none for j.
std::tuple<std::vector<float>, std::vector<float>, std::vector<float>> by_axis(const Sizes& n, const Lists& taps) {
  if (taps.size() != n.size()) throw std::invalid_argument("one list of taps for each axis");
  if (taps.size() == 2) return {taps[0], {}, taps[1]};
  return {taps.at(0), taps.at(1), taps.at(2)};
}

}  // namespace

NB_MODULE(_kernels, m) {
  const char* wanted = std::getenv("PIRATE_SIMD");
  kernels = choose(wanted && runs(wanted) ? wanted : "");
  const auto free = nb::call_guard<nb::gil_scoped_release>();

  m.def("threads", &pirate::threads);
  m.def("set_threads", &pirate::set_threads);
  m.def("variant", [] { return std::string(kernels->name); });
  m.def("select", [](const std::string& name) { kernels = choose(name); });
  m.def("variants", [] {
    std::vector<std::string> names;
    for (const Table* t : tables)
      if (runs(t->name)) names.emplace_back(t->name);
    return names;
  });

  m.def("warp", [](const Sizes& n, int channels, Address image, Address field, bool border, bool add, Address to) {
    kernels->warp(shape(n), channels, in(image), in(field), border, add, out(to));
  }, free);
  m.def("warp_with_gradient", [](const Sizes& n, Address image, Address field, Address warped, Address gradient) {
    kernels->warp_with_gradient(shape(n), in(image), in(field), out(warped), out(gradient));
  }, free);
  m.def("global_correlation", [](const Sizes& n, const Sizes& grid, Address fixed, Address moving, Address field,
                                 Address weight, Address gradient) {
    return kernels->global_correlation(shape(n), shape(grid), in(fixed), in(moving), in(field), in(weight),
                                       out(gradient));
  }, free);
  m.def("local_correlation", [](const Sizes& n, Address fixed, Address warped, Address weight, int radius,
                                bool squared, float epsilon, float intensity, Address gradient) {
    if (radius < 1 || radius > 64) throw std::invalid_argument("unsupported radius");
    return kernels->local_correlation(shape(n), in(fixed), in(warped), in(weight), radius, squared, epsilon, intensity,
                                      out(gradient));
  }, free);
  m.def("local_correlation_force", [](const Sizes& n, Address fixed, Address moving, Address field, int radius,
                                      bool squared, float epsilon, float intensity, bool compositional, Address force,
                                      Address weight) {
    if (radius < 1 || radius > 64) throw std::invalid_argument("unsupported radius");
    return kernels->local_correlation_force(shape(n), in(fixed), in(moving), in(field), in(weight), radius, squared,
                                            epsilon, intensity, compositional, out(force));
  }, free);
  m.def("gradient_product", [](const Sizes& n, Address warped, Address coefficient, Address to) {
    kernels->gradient_product(shape(n), in(warped), in(coefficient), out(to));
  }, free);
  m.def("squared_error", [](const Sizes& n, const Addresses& term) {
    pirate::Moments m;
    const double value = kernels->squared_error(shape(n), data_term(term), m);
    return result(value, m);
  }, free);
  m.def("correlation", [](const Sizes& n, const Addresses& term) {
    pirate::Moments m;
    const double value = kernels->correlation(shape(n), data_term(term), m);
    return result(value, m);
  }, free);
  m.def("mutual_information", [](const Sizes& n, const Addresses& term, Address bin, int bins, double low, double high) {
    if (bins < 5 || bins > 32767 || !(low < high)) throw std::invalid_argument("unsupported bins or range");
    pirate::Moments m;
    const auto* rows = reinterpret_cast<const std::uint16_t*>(bin);
    const double value = kernels->mutual_information(shape(n), data_term(term), rows, bins, low, high, m);
    return result(value, m);
  }, free);
  m.def("correlate", [](const Sizes& n, int channels, Address x, const Lists& taps, Address to) {
    const auto [i, j, k] = by_axis(n, taps);
    kernels->correlate(shape(n), channels, in(x), i.data(), i.size(), j.data(), j.size(), k.data(), k.size(), out(to));
  }, free);
  m.def("compose_adjoint", [](const Sizes& n, int items, Address outer, Address inner, Address g, Address d_outer,
                              Address d_inner) {
    kernels->compose_adjoint(shape(n), items, in(outer), in(inner), in(g), out(d_outer), out(d_inner));
  }, free);
  m.def("compose_small", [](const Sizes& n, Address field, Address update, const std::vector<float>& scale, Address to) {
    if (scale.size() != n.size()) throw std::invalid_argument("one scale for each axis");
    kernels->compose_small(shape(n), in(field), in(update), scale.data(), out(to));
  }, free);
  m.def("longest", [](const Sizes& n, Address x, const std::vector<float>& weight) {
    if (weight.size() != n.size()) throw std::invalid_argument("one weight for each channel");
    return kernels->longest(shape(n), in(x), weight.data());
  }, free);
  m.def("determinant", [](const Sizes& n, Address field, bool forward, Address to) {
    kernels->determinant(shape(n), in(field), forward, out(to));
  }, free);
  m.def("folds", [](const Sizes& n, Address field) {
    std::int64_t central, forward;
    double least;
    kernels->folds(shape(n), in(field), &central, &forward, &least);
    return std::make_tuple(central, forward, least);
  }, free);
  m.def("fold_sums", [](const Sizes& n, Address field, Address mask) {
    pirate::FoldSums s;
    kernels->fold_sums(shape(n), in(field), reinterpret_cast<const std::uint8_t*>(mask), &s);
    return std::make_tuple(s.voxels, s.folds, s.cells, s.forward_folds, s.bad_cells, s.volume, s.logs, s.squares,
                           s.least, s.largest, s.finite);
  }, free);
  m.def("mark_folds", [](const Sizes& n, Address field, float epsilon, Address marks) {
    return kernels->mark_folds(shape(n), in(field), epsilon, reinterpret_cast<std::uint8_t*>(marks));
  }, free);
  m.def("resize_field", [](const Sizes& from, const Sizes& to, Address field, Address target) {
    kernels->resize_field(shape(from), shape(to), in(field), out(target));
  }, free);
  m.def("resize_field_adjoint", [](const Sizes& from, const Sizes& to, Address force, Address target) {
    kernels->resize_field_adjoint(shape(from), shape(to), in(force), out(target));
  }, free);
  m.def("smoothness_gradient", [](const Sizes& n, Address field, Address gradient) {
    return kernels->smoothness_gradient(shape(n), in(field), out(gradient));
  }, free);
  m.def("invert", [](const Sizes& n, Address field, int iterations, float tolerance, Address inverse, Address error) {
    kernels->invert(shape(n), in(field), iterations, tolerance, out(inverse), out(error));
  }, free);
  m.def("change", [](std::int64_t n, Address a, Address b) {
    double difference, length;
    kernels->change(n, in(a), in(b), &difference, &length);
    return std::make_tuple(difference, length);
  }, free);
  m.def("triad", [](std::int64_t n, Address a, Address b, Address c) {
    kernels->triad(n, out(a), in(b), in(c));
  }, free);
}
