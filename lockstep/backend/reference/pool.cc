#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

// Calls visit(h, w) for every pixel of an image that lies inside the window of output (p, q).
template <typename Visit>
void for_each_in_window(const Pool2dOptions& o, const Shape& image, std::int64_t p, std::int64_t q,
                        const Visit& visit) {
  for (std::int64_t i = 0; i < o.kernel_size[0]; ++i) {
    for (std::int64_t j = 0; j < o.kernel_size[1]; ++j) {
      std::int64_t h = p * o.stride[0] - o.padding[0] + i, w = q * o.stride[1] - o.padding[1] + j;
      if (h >= 0 && h < image[2] && w >= 0 && w < image[3]) visit(h, w);
    }
  }
}

// Returns the number of elements that output (p, q) is the mean of.
double window_size(const Pool2dOptions& o, const Shape& image, std::int64_t p, std::int64_t q) {
  double size = 0;
  if (o.count_include_pad) {
    Pool2dOptions on_padded = o;
    on_padded.padding = 0;
    Shape padded = image;
    for (std::size_t i = 0; i < 2; ++i) padded[2 + static_cast<int>(i)] += 2 * o.padding[i];
    for_each_in_window(on_padded, padded, p, q, [&](std::int64_t, std::int64_t) { ++size; });
    return size;
  }
  for_each_in_window(o, image, p, q, [&](std::int64_t, std::int64_t) { ++size; });
  return size;
}

class Pool final : public PoolKernels {
 public:
  void run(KernelContext&, const kernels::MaxPool& call) override {
    Elements in(call.x), out(call.y), index(call.where);
    for_each4(call.y.shape, [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      double best = -std::numeric_limits<double>::infinity();
      std::int64_t place = -1;
      for_each_in_window(call.options, call.x.shape, p, q, [&](std::int64_t h, std::int64_t w) {
        double value = in[in.at(n, c, h, w)];
        if (place < 0 || value > best || (std::isnan(value) && !std::isnan(best))) {
          best = value;
          place = h * call.x.shape[3] + w;
        }
      });
      out.set(out.at(n, c, p, q), best);
      if (call.where) index.set(index.at(n, c, p, q), static_cast<double>(place));
    });
  }

  void run(KernelContext&, const kernels::MaxPoolBackward& call) override {
    Elements grad(call.dy), index(call.where), out(call.dx);
    std::vector<double> sums(call.dx.numel());
    for_each4(call.dy.shape, [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      std::int64_t i = grad.at(n, c, p, q);
      auto place = static_cast<std::int64_t>(index[i]);
      sums[out.at(n, c, place / call.dx.shape[3], place % call.dx.shape[3])] += grad[i];
    });
    store(sums, call.dx);
  }

  void run(KernelContext&, const kernels::AvgPool& call) override {
    Elements in(call.x), out(call.y);
    for_each4(call.y.shape, [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      double sum = 0;
      for_each_in_window(call.options, call.x.shape, p, q,
                         [&](std::int64_t h, std::int64_t w) { sum += in[in.at(n, c, h, w)]; });
      out.set(out.at(n, c, p, q), sum / window_size(call.options, call.x.shape, p, q));
    });
  }

  void run(KernelContext&, const kernels::AvgPoolBackward& call) override {
    Elements grad(call.dy), out(call.dx);
    std::vector<double> sums(call.dx.numel());
    for_each4(call.dy.shape, [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      double share = grad[grad.at(n, c, p, q)] / window_size(call.options, call.dx.shape, p, q);
      for_each_in_window(call.options, call.dx.shape, p, q,
                         [&](std::int64_t h, std::int64_t w) { sums[out.at(n, c, h, w)] += share; });
    });
    store(sums, call.dx);
  }

  void run(KernelContext&, const kernels::LpPool& call) override {
    Elements in(call.x), out(call.y);
    const double whole = static_cast<double>(call.options.kernel_size[0] * call.options.kernel_size[1]);
    for_each4(call.y.shape, [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      double sum = 0;
      for_each_in_window(call.options, call.x.shape, p, q, [&](std::int64_t h, std::int64_t w) {
        sum += std::pow(in[in.at(n, c, h, w)], call.norm_type);
      });
      const double mean = sum / window_size(call.options, call.x.shape, p, q);
      out.set(out.at(n, c, p, q), std::pow(whole * mean, 1 / call.norm_type));
    });
  }

  void run(KernelContext&, const kernels::LpPoolBackward& call) override {
    Elements in(call.x), norm(call.y), grad(call.dy), out(call.dx);
    const double whole = static_cast<double>(call.options.kernel_size[0] * call.options.kernel_size[1]);
    std::vector<double> sums(call.dx.numel());
    for_each4(call.dy.shape, [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q) {
      const std::int64_t i = grad.at(n, c, p, q);
      if (norm[i] == 0) return;
      const double size = window_size(call.options, call.x.shape, p, q);
      const double slope = grad[i] * std::pow(norm[i], 1 - call.norm_type) * whole / size;
      for_each_in_window(call.options, call.x.shape, p, q, [&](std::int64_t h, std::int64_t w) {
        const double number = in[in.at(n, c, h, w)];
        if (slope != 0 || number != 0) sums[out.at(n, c, h, w)] += slope * std::pow(number, call.norm_type - 1);
      });
    });
    store(sums, call.dx);
  }

  void run(KernelContext&, const kernels::GlobalAvgPool& call) override {
    Elements in(call.x), out(call.y);
    std::vector<double> sums(call.y.numel());
    double pixels = static_cast<double>(call.x.shape[2] * call.x.shape[3]);
    for_each4(call.x.shape, [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
      sums[out.at(n, c, 0, 0)] += in[in.at(n, c, h, w)] / pixels;
    });
    store(sums, call.y);
  }

  void run(KernelContext&, const kernels::GlobalAvgPoolBackward& call) override {
    Elements grad(call.dy), out(call.dx);
    double pixels = static_cast<double>(call.dx.shape[2] * call.dx.shape[3]);
    for_each4(call.dx.shape, [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
      out.set(out.at(n, c, h, w), grad[grad.at(n, c, 0, 0)] / pixels);
    });
  }
};

}  // namespace

std::unique_ptr<PoolKernels> make_pool() { return std::make_unique<Pool>(); }

}  // namespace lockstep::reference
