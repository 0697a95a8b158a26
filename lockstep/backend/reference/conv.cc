#include <vector>

#include "lockstep/backend/reference/elements.h"
#include "lockstep/backend/reference/families.h"

namespace lockstep::reference {
namespace {

// Calls visit(place in x, place in w, place in y) for every product of a convolution.
template <typename Visit>
void for_each_product(const Conv2dOptions& o, const View& x, const View& w, const View& y, const Visit& visit) {
  Elements in(x), weight(w), out(y);
  std::int64_t height = x.shape[2], width = x.shape[3];
  std::int64_t channels = w.shape[1], outputs = w.shape[0] / o.groups;  // per group
  for_each4(y.shape, [&](std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q) {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t i = 0; i < w.shape[2]; ++i) {
        for (std::int64_t j = 0; j < w.shape[3]; ++j) {
          std::int64_t h = p * o.stride[0] + i * o.dilation[0] - o.padding[0];
          std::int64_t v = q * o.stride[1] + j * o.dilation[1] - o.padding[1];
          if (h < 0 || h >= height || v < 0 || v >= width) continue;
          visit(in.at(n, k / outputs * channels + c, h, v), weight.at(k, c, i, j), out.at(n, k, p, q));
        }
      }
    }
  });
}

// Calls visit(channel, place in y) for every element of y.
template <typename Visit>
void for_each_output(const View& y, const Visit& visit) {
  for_each4(y.shape, [&, out = Elements(y)](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    visit(c, out.at(n, c, h, w));
  });
}

class Conv final : public ConvKernels {
 public:
  Layout preferred_layout(DType, std::int64_t) const override { return Layout::plain; }

  void forward(KernelContext&, const Conv2dOptions& options, const View& x, const WeightView& w, const View& bias,
               const View& y) override {
    Elements in(x), weight(w), shift(bias), out(y);
    std::vector<double> sums(y.numel());
    for_each_product(options, x, w, y, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      sums[k] += in[i] * rounded(weight[j], x.dtype);
    });
    if (bias) {
      for_each_output(y, [&](std::int64_t c, std::int64_t k) { sums[k] += rounded(shift[c], x.dtype); });
    }
    store(sums, y);
  }

  void backward_data(KernelContext&, const Conv2dOptions& options, const View& dy, const WeightView& w,
                     const View& dx) override {
    Elements grad(dy), weight(w);
    std::vector<double> sums(dx.numel());
    for_each_product(options, dx, w, dy, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      sums[i] += grad[k] * rounded(weight[j], dy.dtype);
    });
    store(sums, dx);
  }

  void backward_weights(KernelContext&, const Conv2dOptions& options, const View& x, const View& dy, const View& dw,
                        const View& db) override {
    Elements in(x), grad(dy);
    std::vector<double> sums(dw.numel());
    for_each_product(options, x, dw, dy,
                     [&](std::int64_t i, std::int64_t j, std::int64_t k) { sums[j] += in[i] * grad[k]; });
    store(sums, dw);
    if (db) {
      std::vector<double> totals(db.numel());
      for_each_output(dy, [&](std::int64_t c, std::int64_t k) { totals[c] += grad[k]; });
      store(totals, db);
    }
  }
};

}  // namespace

std::unique_ptr<ConvKernels> make_conv() { return std::make_unique<Conv>(); }

}  // namespace lockstep::reference
