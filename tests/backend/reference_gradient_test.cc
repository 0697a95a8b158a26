// Every backward kernel of the reference back end against central differences of its forward kernel, in f64.
#include <array>
#include <numeric>

#include "tests/backend/kernel_testing.h"

namespace lockstep::testing {
namespace {

class ReferenceGradient : public ::testing::Test {
 protected:
  // A forward kernel of one output, and its backward kernel, which also reads dy (last) and the forward
  // output (last but one) and gives the gradients of all inputs in order. An absent gradient is not checked.
  void expect_gradients(const Tensors& inputs, const Shape& shape, const Kernel& forward, const Tensors& gradients,
                        const Kernel& backward) {
    TestTensor dy = random_.tensor(shape), y(shape, DType::f64);
    run(forward, inputs, {y.view()});
    Tensors with_outputs = inputs;
    with_outputs.push_back(y);
    with_outputs.push_back(dy);
    std::vector<View> out;
    for (const TestTensor& gradient : gradients) out.push_back(gradient.view());
    run(backward, with_outputs, out);

    auto loss = [&] {
      run(forward, inputs, {y.view()});
      std::vector<double> a = y.values(), b = dy.values();
      return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    };
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i]) continue;
      SCOPED_TRACE(::testing::Message() << "gradient " << i << ", shape " << gradients[i].shape().str());
      std::vector<double> numeric;
      auto* x = inputs[i].view().as<double>();
      for (std::int64_t k = 0; k < inputs[i].shape().numel(); ++k) {
        double old = x[k];
        x[k] = old + kStep;
        double above = loss();
        x[k] = old - kStep;
        double below = loss();
        x[k] = old;
        numeric.push_back((above - below) / (2 * kStep));
      }
      expect_close(gradients[i], TestTensor(gradients[i].shape(), DType::f64, Layout::plain, numeric), 1e-7);
    }
  }

  void run(const Kernel& kernel, const Tensors& inputs, std::vector<View> out) {
    std::vector<View> in;
    for (const TestTensor& tensor : inputs) in.push_back(tensor.view());
    kernel(reference_backend(), context_, in, out);
  }

  // Distinct numbers at least 0.01 apart and away from zero: no step crosses a kink or a tie.
  TestTensor spread(const Shape& shape) {
    std::vector<double> values(shape.numel());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = (i % 2 ? 1 : -1) * (0.01 * static_cast<double>(i + 1));
      std::swap(values[i], values[random_.integer(0, static_cast<std::int64_t>(i))]);
    }
    return TestTensor(shape, DType::f64, Layout::plain, values);
  }

  static TestTensor like(const TestTensor& x) { return TestTensor(x.shape(), DType::f64); }

  static constexpr double kStep = 1e-5;
  KernelContext context_;
  Random random_{7};
};

TEST_F(ReferenceGradient, Unary) {
  for (const Unary op : std::initializer_list<Unary>{UnaryOp::negate,
                                                     UnaryOp::exp,
                                                     UnaryOp::log,
                                                     UnaryOp::log1p,
                                                     UnaryOp::sqrt,
                                                     UnaryOp::square,
                                                     UnaryOp::abs,
                                                     UnaryOp::sign,
                                                     UnaryOp::reciprocal,
                                                     UnaryOp::rsqrt,
                                                     UnaryOp::sin,
                                                     UnaryOp::cos,
                                                     UnaryOp::relu,
                                                     UnaryOp::gelu,
                                                     UnaryOp::silu,
                                                     UnaryOp::sigmoid,
                                                     UnaryOp::tanh,
                                                     {UnaryOp::elu, 1.5},
                                                     {UnaryOp::leaky_relu, 0.2},
                                                     {UnaryOp::softplus, 2, 0.1},
                                                     {UnaryOp::clamp, -0.055, 0.105},
                                                     UnaryOp::expm1,
                                                     UnaryOp::log2,
                                                     UnaryOp::log10,
                                                     UnaryOp::tan,
                                                     UnaryOp::erf,
                                                     {UnaryOp::pow, 2.5},
                                                     {UnaryOp::pow, 0}}) {
    SCOPED_TRACE(static_cast<int>(op.op));
    bool positive = op.op == UnaryOp::log || op.op == UnaryOp::log1p || op.op == UnaryOp::sqrt ||
                    op.op == UnaryOp::rsqrt || op.op == UnaryOp::reciprocal || op.op == UnaryOp::pow ||
                    op.op == UnaryOp::log2 || op.op == UnaryOp::log10;
    TestTensor x = positive ? random_.tensor_between(0.5, 3, {20}) : spread({20});
    expect_gradients(
        {x}, {20},
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::Unary{op, in[0], out[0]});
        },
        {like(x)},
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::UnaryBackward{op, unary_saves_output(op.op) ? in[1] : in[0], in[2], out[0]});
        });
  }
}

TEST_F(ReferenceGradient, Matmul) {
  for (bool transpose_a : {false, true}) {
    for (bool transpose_b : {false, true}) {
      TestTensor a = random_.tensor(transpose_a ? Shape{4, 3} : Shape{3, 4});
      TestTensor b = random_.tensor(transpose_b ? Shape{5, 4} : Shape{4, 5});
      TestTensor bias = random_.tensor({5});
      auto multiply = [](Backend& backend, KernelContext& c, bool ta, bool tb, const View& x, const View& y,
                         const View& z) {
        backend.run(c, kernels::Matmul{{ta, tb}, x, y, {}, z});
      };
      expect_gradients(
          {a, b, bias}, {3, 5},
          [&](Backend& backend, KernelContext& c, Views in, Views out) {
            backend.run(c, kernels::Matmul{{transpose_a, transpose_b}, in[0], in[1], in[2], out[0]});
          },
          {like(a), like(b), like(bias)},
          [&](Backend& backend, KernelContext& c, Views in, Views out) {
            const View &dc = in[4], &da = out[0], &db = out[1];
            if (transpose_a) {
              multiply(backend, c, transpose_b, true, in[1], dc, da);
            } else {
              multiply(backend, c, false, !transpose_b, dc, in[1], da);
            }
            if (transpose_b) {
              multiply(backend, c, true, transpose_a, dc, in[0], db);
            } else {
              multiply(backend, c, !transpose_a, false, in[0], dc, db);
            }
            backend.run(c, kernels::SumTo{dc, out[2]});
          });
    }
  }
}

TEST_F(ReferenceGradient, Convolution) {
  for (int i = 0; i < 20; ++i) {
    Conv2dOptions o;
    o.groups = random_.pick({1, 1, 2, 3});
    std::int64_t kernel_h = random_.integer(1, 3), kernel_w = random_.integer(1, 3);
    for (int axis : {0, 1}) {
      o.stride[axis] = random_.integer(1, 2);
      o.padding[axis] = random_.integer(0, 2);
      o.dilation[axis] = random_.integer(1, 2);
    }
    Shape x{random_.integer(1, 2), o.groups * random_.integer(1, 2), random_.integer(5, 7), random_.integer(5, 7)};
    Shape w{o.groups * random_.integer(1, 2), x[1] / o.groups, kernel_h, kernel_w};
    Shape y{x[0], w[0], (x[2] + 2 * o.padding[0] - o.dilation[0] * (kernel_h - 1) - 1) / o.stride[0] + 1,
            (x[3] + 2 * o.padding[1] - o.dilation[1] * (kernel_w - 1) - 1) / o.stride[1] + 1};
    SCOPED_TRACE(x.str() + " " + w.str() + " " + y.str());
    Tensors inputs{random_.tensor(x), random_.tensor(w), random_.tensor({w[0]})};
    expect_gradients(
        inputs, y,
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::Conv{o, in[0], in[1], in[2], out[0]});
        },
        {like(inputs[0]), like(inputs[1]), like(inputs[2])},
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::ConvBackwardData{o, in[4], in[1], out[0]});
          b.run(c, kernels::ConvBackwardWeights{o, in[0], in[4], out[1], out[2]});
        });
  }
}

// Inputs and gradients are (x, gamma, beta, residual), of one shard that has statistics of its own.
TEST_F(ReferenceGradient, BatchNorm) {
  constexpr double kEps = 0.1;
  Shape shape{3, 2, 3, 2}, channels{2};
  constexpr std::int64_t kSamples = 3 * 3 * 2;
  for (bool relu : {false, true}) {
    for (bool residual : {false, true}) {
      SCOPED_TRACE(::testing::Message() << (relu ? "relu " : "") << (residual ? "residual" : ""));
      TestTensor mean(channels, DType::f64), m2(channels, DType::f64);
      BatchNormStats stats{kSamples, mean.view(), m2.view()};
      Tensors inputs{random_.tensor(shape), random_.tensor(channels), random_.tensor(channels),
                     residual ? random_.tensor(shape) : TestTensor()};
      expect_gradients(
          inputs, shape,
          [&](Backend& b, KernelContext& c, Views in, Views out) {
            b.run(c, kernels::NormStats{in[0], stats});
            b.run(c, kernels::Norm{in[0], stats, kEps, in[1], in[2], in[3], relu, out[0]});
          },
          {like(inputs[0]), like(inputs[1]), like(inputs[2]), residual ? like(inputs[3]) : TestTensor()},
          [&](Backend& b, KernelContext& c, Views in, Views out) {
            View y = relu ? in[4] : View{};
            b.run(c, kernels::NormBackwardStats{in[5], in[0], y, stats, kEps, out[1], out[2]});
            b.run(c, kernels::NormBackwardData{in[5], in[0], y, stats, kEps, in[1], out[2], out[1], out[0], out[3]});
          });
    }
  }
}

// Inputs and gradients are the two shards' x. The output holds both shards, one behind the other.
TEST_F(ReferenceGradient, SynchronizedBatchNorm) {
  constexpr double kEps = 0.1;
  Shape channels{2};
  TestTensor mean_a(channels, DType::f64), m2_a(channels, DType::f64), mean_b(channels, DType::f64),
      m2_b(channels, DType::f64), mean(channels, DType::f64), m2(channels, DType::f64);
  BatchNormStats a{12, mean_a.view(), m2_a.view()}, b{6, mean_b.view(), m2_b.view()};
  BatchNormStats all{18, mean.view(), m2.view()};
  Tensors inputs{random_.tensor({2, 2, 3, 2}), random_.tensor({1, 2, 3, 2})};
  TestTensor gamma = random_.tensor(channels), beta = random_.tensor(channels);
  auto shards = [](const View& view) {
    View first = view, second = view;
    first.shape = {2, 2, 3, 2};
    second.shape = {1, 2, 3, 2};
    second.data = view.as<double>() + first.numel();
    return std::array{first, second};
  };
  expect_gradients(
      inputs, {3, 2, 3, 2},
      [&](Backend& backend, KernelContext& c, Views in, Views out) {
        backend.run(c, kernels::NormStats{in[0], a});
        backend.run(c, kernels::NormStats{in[1], b});
        backend.run(c, kernels::MergeNormStats{std::array{a, b}, all});
        for (int i : {0, 1}) {
          backend.run(c, kernels::Norm{in[i], all, kEps, gamma.view(), beta.view(), {}, false, shards(out[0])[i]});
        }
      },
      {like(inputs[0]), like(inputs[1])},
      [&](Backend& backend, KernelContext& c, Views in, Views out) {
        Tensors sums(4, TestTensor(channels, DType::f64));  // dgamma and dbeta of each shard
        auto dy = shards(in[3]);
        for (int i : {0, 1}) {
          backend.run(
              c, kernels::NormBackwardStats{dy[i], in[i], {}, all, kEps, sums[2 * i].view(), sums[2 * i + 1].view()});
        }
        for (int i : {0, 1}) {
          backend.run(c, kernels::Binary{BinaryOp::add, sums[i].view(), sums[2 + i].view(), sums[i].view()});
        }
        for (int i : {0, 1}) {
          backend.run(c, kernels::NormBackwardData{
                             dy[i], in[i], {}, all, kEps, gamma.view(), sums[1].view(), sums[0].view(), out[i], {}});
        }
      });
}

TEST_F(ReferenceGradient, Pooling) {
  Shape shape{2, 2, 5, 6};
  for (const Pool2dOptions& o :
       {Pool2dOptions{}, Pool2dOptions{.kernel_size = {3, 2}, .stride = {2, 1}, .padding = {1, 0}},
        Pool2dOptions{.kernel_size = {3, 3}, .stride = {1, 2}, .padding = {1, 1}, .count_include_pad = false}}) {
    Shape y{2, 2, (5 + 2 * o.padding[0] - o.kernel_size[0]) / o.stride[0] + 1,
            (6 + 2 * o.padding[1] - o.kernel_size[1]) / o.stride[1] + 1};
    TestTensor x = spread(shape), where(y, DType::i64);
    expect_gradients(
        {x}, y,
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::MaxPool{o, in[0], out[0], where.view()});
        },
        {like(x)},
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::MaxPoolBackward{o, in[2], where.view(), out[0]});
        });
    expect_gradients(
        {x}, y,
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::AvgPool{o, in[0], out[0]});
        },
        {like(x)},
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::AvgPoolBackward{o, in[2], out[0]});
        });
  }
  TestTensor x = spread(shape);
  expect_gradients(
      {x}, {2, 2, 1, 1},
      [](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::GlobalAvgPool{in[0], out[0]});
      },
      {like(x)},
      [](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::GlobalAvgPoolBackward{in[2], out[0]});
      });
}

TEST_F(ReferenceGradient, Softmax) {
  TestTensor x = random_.tensor({4, 5});
  expect_gradients(
      {x}, {4, 5},
      [](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::Softmax{in[0], out[0]});
      },
      {like(x)},
      [](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::SoftmaxBackward{in[1], in[2], out[0]});
      });
  expect_gradients(
      {x}, {4, 5},
      [](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::LogSoftmax{in[0], out[0]});
      },
      {like(x)},
      [](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::LogSoftmaxBackward{in[1], in[2], out[0]});
      });
}

TEST_F(ReferenceGradient, Losses) {
  TestTensor x = random_.tensor({4, 5}), target = random_.tensor({4, 5}), labels = random_.integers(0, 4, {4});
  // The last rules ignore the second sample, and all with its label.
  const std::int64_t second = labels.view().as<std::int64_t>()[1];
  for (const LabelRules& rules : {LabelRules{}, LabelRules{.smoothing = 0.2}, LabelRules{.ignored = second}}) {
    TestTensor sums({3}, DType::f64);
    expect_gradients(
        {x}, {1},
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::CrossEntropy{in[0], labels.view(), rules, sums.view()});
          b.run(c, kernels::CrossEntropyMean{sums.view(), out[0]});
        },
        {like(x)},
        [&](Backend& b, KernelContext& c, Views in, Views out) {
          b.run(c, kernels::CrossEntropyBackward{in[0], labels.view(), rules, sums.view(), in[2], out[0]});
        });
  }
  expect_gradients(
      {x}, {1},
      [&](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::Mse{in[0], target.view(), out[0]});
      },
      {like(x)},
      [&](Backend& b, KernelContext& c, Views in, Views out) {
        b.run(c, kernels::MseBackward{in[0], target.view(), in[2], out[0]});
      });
}

}  // namespace
}  // namespace lockstep::testing
