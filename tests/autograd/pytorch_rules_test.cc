// PyTorch's rules at the edges: tensors without axes or elements, names in messages, sizes that follow from factors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/autograd/autocast.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/functions.h"
#include "lockstep/runtime/runtime.h"
#include "tests/expect_error.h"
#include "tests/logical_tensors.h"

namespace lockstep::testing {
namespace {

class PyTorchRulesTest : public ::testing::Test {
 protected:
  using Doubles = std::vector<double>;

  Tensor tensor(const Doubles& values, const Shape& shape, DType dtype = DType::f32) {
    return make_tensor(values, shape, device_, dtype);
  }
  Tensor ids(const std::vector<std::int64_t>& values, const Shape& shape) {
    return Tensor::from(values, shape).to(device_);
  }

  Runtime runtime_{{.cpu_devices = 1, .cores_per_device = 1}};
  Device device_ = runtime_.devices()[0];
};

// Products read their inputs in the type; weights keep f32 gradients, with the bits of an input that was cast.
TEST_F(PyTorchRulesTest, AutocastComputesProductsInItsType) {
  const auto run = [&](bool autocasts) {
    Tensor w = as_leaf(tensor({0.1, 0.2, 0.3, 0.4}, {2, 2})), k = as_leaf(tensor({0.3, 0.7}, {1, 2, 1, 1}));
    const Tensor x = tensor({1.01, 2.02, 3.03, 4.04}, {2, 2});
    const AutocastGuard mode(autocasts ? std::optional(DType::bf16) : std::nullopt);
    const Tensor h = relu(linear(autocasts ? x : x.to(DType::bf16), w, {}));
    const Tensor y = conv2d(reshape(h, {1, 2, 1, 2}), k, {}), z = matmul(h, w);
    for (const Tensor* t : {&h, &y, &z}) EXPECT_EQ(t->dtype(), DType::bf16);
    const Tensor loss = sum(mse_loss(reshape(z, {4}), tensor({1, 2, 3, 4}, {4})) + mean(y.to(DType::f32)));
    EXPECT_EQ(loss.dtype(), DType::f32);
    loss.backward();
    EXPECT_EQ(w.grad().dtype(), DType::f32);
    std::vector<Doubles> all{values(loss), values(w.grad()), values(k.grad())};
    return all;
  };
  EXPECT_EQ(run(true), run(false));
  EXPECT_FALSE(autocast_dtype());
  {
    const AutocastGuard mode(DType::f16);
    const Tensor x = tensor({1, 2}, {1, 2});
    EXPECT_EQ(softmax(x).dtype(), DType::f32);
    EXPECT_EQ(bmm(x.reshape({1, 1, 2}), x.reshape({1, 2, 1})).dtype(), DType::f16);
    EXPECT_EQ(matmul(x.to(DType::f64), x.to(DType::f64).t()).dtype(), DType::f64);
    const AutocastGuard off(std::nullopt);
    EXPECT_EQ(matmul(x, x.t()).dtype(), DType::f32);
  }
  EXPECT_ERROR(AutocastGuard(DType::f64), "autocast: type f64, expected bf16 or f16");
}

// Overlapping windows have one largest element.
TEST_F(PyTorchRulesTest, UnpoolingKeepsOneOfEqualPlaces) {
  const Tensor x = tensor({1, 2, 3, 1, 2, 9, 1, 1, 1}, {1, 1, 3, 3});
  const auto [y, places] = max_pool2d_with_indices(x, {.kernel_size = 2, .stride = 1});
  EXPECT_EQ(values(max_unpool2d(y, places, {3, 3})), (Doubles{0, 2, 0, 0, 2, 9, 0, 0, 0}));
}

TEST_F(PyTorchRulesTest, ATensorWithoutAxesHasAnAxisOfOneElement) {
  for (const int dim : {0, -1}) {
    Tensor x = as_leaf(tensor({3}, {}));
    const Tensor results[] = {sum(x, dim),
                              mean(x, dim),
                              amax(x, dim),
                              amin(x, dim, true),
                              max(x, dim).values,
                              min(x, dim, true).values,
                              logsumexp(x, dim),
                              norm(x, 2, dim),
                              norm(x, std::numeric_limits<double>::infinity(), dim),
                              prod(x, dim),
                              cumsum(x, dim),
                              sort(x, dim).values,
                              topk(x, 1, dim).values,
                              squeeze(x, dim),
                              index_select(x, dim, ids({0}, {1}))};
    for (const Tensor& y : results) {
      EXPECT_EQ(y.shape(), Shape());
      EXPECT_EQ(values(y), (Doubles{3}));
    }
    Tensor total = zeros_like(x);
    for (const Tensor& y : results) total = total + y;
    total.backward();
    EXPECT_EQ(values(x.grad()), (Doubles{15}));
    for (const Tensor& y : {softmax(x, dim), var(x, dim, {.correction = 0}) + 1}) EXPECT_EQ(values(y), (Doubles{1}));
    EXPECT_EQ(values(log_softmax(x, dim)), (Doubles{0}));
    for (const Tensor& y : {argmax(x, dim), argmin(x, dim), argsort(x, dim), max(x, dim).indices, sort(x, dim).indices})
      EXPECT_EQ(values(y), (Doubles{0}));
    EXPECT_EQ(any(x, dim).item<std::uint8_t>(), 1);
    EXPECT_EQ(all(x, dim).item<std::uint8_t>(), 1);
  }
  const Tensor x = tensor({3}, {});
  EXPECT_ERROR(sum(x, 1), "sum: axis 1 of shape [], expected 0 or -1");
  EXPECT_ERROR(softmax(x, -2), "softmax: axis -2 of shape [], expected 0 or -1");
}

TEST_F(PyTorchRulesTest, AMeanOfNothingIsNotANumber) {
  Tensor x = as_leaf(tensor({}, {0, 3}));
  const Tensor target = tensor({}, {0, 3}), labels = ids({}, {0});
  for (const Tensor& loss : {mse_loss(x, target), cross_entropy(x, labels), l1_loss(x, target), nll_loss(x, labels),
                             cross_entropy(x, labels, {.label_smoothing = 0.1})}) {
    EXPECT_TRUE(std::isnan(loss.item()));
    EXPECT_EQ(loss.shape(), Shape{1});
  }
  EXPECT_EQ(mse_loss(x, target, {.reduction = Reduction::sum}).item(), 0);
  mse_loss(x, target).backward();
  EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
}

TEST_F(PyTorchRulesTest, TheLogarithmOfNoTerms) {
  const double none = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(values(logsumexp(tensor({}, {2, 0}), 1)), (Doubles{none, none}));
  EXPECT_EQ(logsumexp(tensor({}, {2, 0}), 1, true).shape(), (Shape{2, 1}));
}

TEST_F(PyTorchRulesTest, SumsOfMasksCount) {
  const Tensor mask = gt(tensor({1, 0, 1, 1}, {2, 2}), 0);
  for (const Shape& shape : {Shape{2, 2}, Shape{2}, Shape{2, 1}}) EXPECT_EQ(sum_to(mask, shape).dtype(), DType::i64);
  EXPECT_EQ(values(sum_to(mask, {2})), (Doubles{2, 1}));
}

TEST_F(PyTorchRulesTest, IndicesInAnyLayout) {
  const Tensor index = ids({0, 1, 2, 2, 1, 0, 0, 1}, {1, 2, 2, 2}), other = index.to(Layout::channels_last);
  const Tensor w = tensor({1, 2, 3, 4, 5, 6}, {3, 2});
  EXPECT_EQ(values(embedding(other, w)), values(embedding(index, w)));
  EXPECT_EQ(values(one_hot(other, 3)), values(one_hot(index, 3)));
  EXPECT_EQ(values(index_select(w, 0, other.reshape({8}))), values(index_select(w, 0, index.reshape({8}))));
}

// Places and gradients are those of PyTorch 1.13.
TEST_F(PyTorchRulesTest, DilatedPoolingNeverFindsPadding) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor x = as_leaf(tensor(Doubles(25, -kInfinity), {1, 1, 5, 5}));
  const Pool2dOptions options{.kernel_size = 2, .stride = 1, .padding = 1, .dilation = 2};
  const auto [y, places] = max_pool2d_with_indices(x, options);
  EXPECT_EQ(values(y), Doubles(25, -kInfinity));
  EXPECT_EQ(values(places),
            (Doubles{6, 5, 6, 7, 8, 1, 0, 1, 2, 3, 6, 5, 6, 7, 8, 11, 10, 11, 12, 13, 16, 15, 16, 17, 18}));
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Doubles{1, 2, 1, 1, 0, 2, 4, 2, 2, 0, 1, 2, 1, 1, 0, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0}));
  const Pool2dOptions wide{.kernel_size = 3, .stride = 2, .padding = 1, .dilation = 3};
  EXPECT_EQ(values(max_pool2d_with_indices(tensor(Doubles(36, -kInfinity), {1, 1, 6, 6}), wide).indices),
            (Doubles{14}));
  // NaN is the largest, and has its own place.
  Doubles pixels(25, -kInfinity);
  pixels[6] = std::nan("");
  const auto [largest, place] = max_pool2d_with_indices(tensor(pixels, {1, 1, 5, 5}), options);
  EXPECT_TRUE(std::isnan(values(largest)[0]));
  EXPECT_EQ(values(place)[0], 6);
  // The dilation steps over the whole image: no pixel is in the window, and the place is that of some pixel.
  const auto [none, some] = max_pool2d_with_indices(tensor({1}, {1, 1, 1, 1}), options);
  EXPECT_EQ(values(none), (Doubles{-kInfinity}));
  EXPECT_EQ(values(some), (Doubles{0}));
}

TEST_F(PyTorchRulesTest, InterpolationToTheSameOrTwiceTheSize) {
  const Tensor x = tensor({1, 2, 3}, {1, 1, 1, 3});
  const auto row = [](const Tensor& y) { return values(y.select(2, 0)); };
  // floor(3 * 2.3) = 6 pixels, floor(3 * 1.3) = 3 pixels
  const Tensor twice = interpolate(x.reshape({1, 1, 1, 3}), {.scale_factor = 2.3});
  EXPECT_EQ(row(twice), (Doubles{1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(row(interpolate(x, {.scale_factor = 1.3})), (Doubles{1, 2, 3}));
  EXPECT_EQ(row(interpolate(x, {.scale_factor = 1.3, .mode = Interpolation::bilinear})), (Doubles{1, 2, 3}));
  EXPECT_EQ(row(interpolate(x, {.scale_factor = 1.3, .mode = Interpolation::area})), (Doubles{1, 2, 3}));
  EXPECT_EQ(row(interpolate(x, {.scale_factor = 1.7})), (Doubles{1, 1, 2, 2, 3}));
  // A factor moves the pixels of bicubic. Expected values are those of PyTorch 1.13.
  const InterpolateOptions cubic{.scale_factor = 1.3, .mode = Interpolation::bicubic};
  const Doubles found = row(interpolate(x, cubic)), expected{0.9322798, 1.5602663, 2.5193019};
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], expected[i], 1e-6);
  InterpolateOptions corners = cubic, sized = cubic;
  corners.align_corners = true;
  sized.scale_factor.reset();
  sized.size = {{1, 3}};
  EXPECT_EQ(row(interpolate(x, corners)), (Doubles{1, 2, 3}));
  EXPECT_EQ(row(interpolate(x, sized)), (Doubles{1, 2, 3}));
  // Also where only the other axis changes its size.
  const Tensor image = tensor({1, 2, 4, 8, 16, 32}, {1, 1, 2, 3}, DType::f64);
  const Tensor wide = interpolate(image, {.scale_factor = 1.4, .mode = Interpolation::bicubic});
  const Doubles cubics{0.413637, 0.61522, 1.183971, 1.795918, 4.662819, 6.935206, 13.346582, 20.244898};
  const Doubles pixels = values(wide);
  for (std::size_t i = 0; i < cubics.size(); ++i) EXPECT_NEAR(pixels[i], cubics[i], 1e-6);
}

TEST_F(PyTorchRulesTest, MessagesNameTheFunctionThatWasCalled) {
  const Tensor x = tensor({1, 2}, {2}), i = ids({1, 2}, {2}), three = tensor({1, 2, 3}, {3}), empty = tensor({}, {0});
  EXPECT_ERROR(gt(x, three), "gt: ");
  EXPECT_ERROR(ge(x, three), "ge: shapes ");
  EXPECT_ERROR(amin(x, 3), "amin: axis 3");
  EXPECT_ERROR(amin(empty), "amin: no elements");
  EXPECT_ERROR(mean(i), "mean: input is [2] i64");
  EXPECT_ERROR(min(empty), "min: no elements");
  EXPECT_ERROR(logsumexp(i, 0), "logsumexp: input is");
  EXPECT_ERROR(logsumexp(x, 2), "logsumexp: axis 2");
  EXPECT_ERROR(norm(x, std::numeric_limits<double>::infinity(), 1), "norm: axis 1");
  EXPECT_ERROR(norm(empty, std::numeric_limits<double>::infinity()), "norm: no elements");
  EXPECT_ERROR(any(x, 1), "any: axis 1");
  EXPECT_ERROR(all(x, {0, 0}), "all: axis 0 is named twice");
  EXPECT_ERROR(argmin(empty), "argmin: no elements");
  EXPECT_ERROR(min(empty, 0), "min: no elements");
  EXPECT_ERROR(topk(i, 3), "topk: 3 elements");
  EXPECT_ERROR(logical_and(Tensor(), x), "logical_and: ");
  EXPECT_ERROR(conv1d(tensor({1, 2}, {1, 1, 2}), tensor({1}, {1, 1, 1}), {}, {.groups = 0}), "conv1d: 0 groups");
  EXPECT_ERROR(conv_transpose2d(ids({1}, {1, 1, 1, 1}), ids({1}, {1, 1, 1, 1})), "conv_transpose2d: input is");
  EXPECT_ERROR(reshape(tensor(Doubles(15), {15}), {4, -1, 2}), "do not fit shape [4, -1, 2]");
  EXPECT_ERROR(reshape(tensor({}, {1, 3, 0}), {-1, 0}), "reshape: -1 in [-1, 0] could be any extent");
}

TEST_F(PyTorchRulesTest, BackwardFromSeveralRoots) {
  Tensor x = as_leaf(tensor({1, 2}, {2}));
  const Tensor a = x * 3, b = sum(x);
  backward({a, b}, {tensor({1, 10}, {2}), Tensor()});
  EXPECT_EQ(values(x.grad()), (Doubles{4, 31}));
}

}  // namespace
}  // namespace lockstep::testing
