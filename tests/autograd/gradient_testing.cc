#include "tests/autograd/gradient_testing.h"

#include <ostream>

#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/batch_norm.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep::testing {

void PrintTo(const Differentiable& d, std::ostream* os) { *os << d.name; }

Values random_values(const Problem& problem, Random& random) {
  Values all;
  for (const Input& input : problem.inputs) {
    all.push_back(random.uniforms(input.shape.numel(), input.low, input.high));
    if (!input.away_from_zero) continue;
    for (double& v : all.back()) v += v < 0 ? -0.1 : 0.1;
  }
  return all;
}

namespace {

DType input_dtype(const Input& input, DType dtype) { return input.master && is_half_dtype(dtype) ? DType::f32 : dtype; }

std::vector<Tensor> make_inputs(const Problem& problem, const Values& at, Device device, DType dtype) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const Input& input = problem.inputs[i];
    inputs.push_back(make_tensor(at[i], input.shape, device, input_dtype(input, dtype)));
  }
  return inputs;
}

std::vector<double> output_weights(std::int64_t n) { return Random(99).uniforms(n, -0.5, 1.5); }

double weighted_sum(const std::vector<double>& y) {
  std::vector<double> w = output_weights(static_cast<std::int64_t>(y.size()));
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += w[i] * y[i];
  return sum;
}

}  // namespace

Values rounded(const Problem& problem, Values at, DType dtype, Device device) {
  std::vector<Tensor> tensors = make_inputs(problem, at, device, dtype);
  for (std::size_t i = 0; i < at.size(); ++i) at[i] = values(tensors[i]);
  return at;
}

Values gradients(const Problem& problem, const Values& at, Device device, DType dtype) {
  std::vector<Tensor> inputs = make_inputs(problem, at, device, dtype);
  for (Tensor& t : inputs) t.set_requires_grad(true);
  Tensor y = problem.function(inputs);
  Tensor seed = make_tensor(output_weights(y.numel()), y.shape(), device, y.dtype());
  backward({&y, 1}, {&seed, 1});
  Values all;
  for (const Tensor& t : inputs) {
    check(t.grad().defined() && t.grad().shape() == t.shape() && t.grad().dtype() == t.dtype(),
          "the gradient of {} is {}", t.describe(), t.grad().describe());
    all.push_back(values(t.grad()));
  }
  all.push_back(values(y));
  return all;
}

Values central_differences(const Problem& problem, const Values& at, Device device) {
  constexpr double kStep = 1e-6;
  std::vector<Tensor> inputs = make_inputs(problem, at, device, DType::f64);
  Values all;
  for (std::size_t i = 0; i < at.size(); ++i) {
    std::vector<double> moved = at[i], gradient;
    auto loss_at = [&](std::size_t k, double value) {
      moved[k] = value;
      std::vector<Tensor> here = inputs;
      here[i] = make_tensor(moved, problem.inputs[i].shape, device, DType::f64);
      moved[k] = at[i][k];
      return weighted_sum(values(problem.function(here)));
    };
    for (std::size_t k = 0; k < moved.size(); ++k) {
      gradient.push_back((loss_at(k, at[i][k] + kStep) - loss_at(k, at[i][k] - kStep)) / (2 * kStep));
    }
    all.push_back(std::move(gradient));
  }
  return all;
}

namespace {

using In = std::span<const Tensor>;

Differentiable unary(std::string name, Tensor (*f)(const Tensor&), double low, double high, bool kink = false) {
  return {std::move(name), [=](Random& r) {
            Shape shape{r.integer(1, 4), r.integer(1, 5), r.integer(1, 3)};
            return Problem{{{.shape = shape, .low = low, .high = high, .away_from_zero = kink}},
                           [f](In in) { return f(in[0]); }};
          }};
}

// The second operand is broadcast in a random way, or the first one is.
Differentiable binary(std::string name, Tensor (*f)(const Tensor&, const Tensor&)) {
  return {std::move(name), [=](Random& r) {
            Shape full{r.integer(1, 3), r.integer(2, 4), r.integer(2, 3)};
            Shape part = r.integer(0, 1) ? Shape{full[1], full[2]} : full;
            for (int i = 0; i < part.dim(); ++i) {
              if (r.integer(0, 2) == 0) part[i] = 1;
            }
            bool swap = r.integer(0, 1) == 1;
            return Problem{{{.shape = swap ? part : full, .low = 0.5, .high = 2},
                            {.shape = swap ? full : part, .low = 0.5, .high = 2}},
                           [f](In in) { return f(in[0], in[1]); }};
          }};
}

Shape image(Random& r) { return {r.integer(1, 3), r.integer(1, 4), r.integer(4, 7), r.integer(4, 7)}; }

Problem batch_norm_problem(Random& r, const std::function<Tensor(In, const BatchNormOptions&)>& f) {
  Shape x = image(r), channels{x[1]};
  BatchNormOptions options{.relu = r.integer(0, 1) == 1};
  return {{{.shape = x},
           {.shape = channels, .low = 0.5, .high = 2, .master = true},
           {.shape = channels, .master = true},
           {.shape = x}},
          [=](In in) { return f(in, options); }};
}

Conv2dOptions conv_options(Random& r) {
  auto pair = [&](std::int64_t low, std::int64_t high) {
    return std::array<std::int64_t, 2>{r.integer(low, high), r.integer(low, high)};
  };
  return {.stride = pair(1, 2), .padding = pair(0, 2), .dilation = pair(1, 2), .groups = r.integer(1, 2)};
}

Tensor labels_for(const Tensor& logits) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < logits.size(0); ++i) labels.push_back((2 * i + 1) % logits.size(1));
  return Tensor::from(labels, {logits.size(0)}).to(logits.device());
}

std::vector<Differentiable> elementwise() {
  return {unary("Negate", negate, -1, 1),
          unary("Exp", exp, -1, 1),
          unary("Log", log, 0.5, 2),
          unary("Sqrt", sqrt, 0.5, 2),
          unary("Square", square, -1, 1),
          unary("Abs", abs, -1, 1, true),
          unary("Relu", relu, -1, 1, true),
          unary(
              "Gelu", [](const Tensor& x) { return gelu(x); }, -2, 2),
          unary("Sigmoid", sigmoid, -2, 2),
          unary("Tanh", tanh, -2, 2),
          unary(
              "Scalars", [](const Tensor& x) { return -((x * 3 - 1) / 4 + 2); }, -1, 1),
          unary(
              "ScalarsOnTheLeft", [](const Tensor& x) { return 1 + 2.0 * (1.0 - x) - 3 / x; }, 0.5, 2),
          unary(
              "CompoundAssignment",
              [](const Tensor& x) {
                Tensor y = x * 1;  // a leaf is written in place
                y += x, y *= x, y -= 1, y /= 3;
                return y;
              },
              -1, 1),
          binary("Add", operator+),
          binary("Subtract", operator-),
          binary("Multiply", operator*),
          binary("Divide", operator/),
          {"Dropout", [](Random& r) {
             return Problem{{{.shape = {r.integer(2, 5), 7}}}, [](In in) {
                              // The same mask each time.
                              state_of(in[0].device(), "test").random()->set_step(3);
                              return dropout(in[0], 0.4);
                            }};
           }}};
}

std::vector<Differentiable> matrices_and_shapes() {
  return {{"Matmul",
           [](Random& r) {
             std::int64_t m = r.integer(1, 5), k = r.integer(1, 5), n = r.integer(1, 5);
             return Problem{{{.shape = {m, k}}, {.shape = {k, n}}}, [](In in) { return matmul(in[0], in[1]); }};
           }},
          {"Linear",
           [](Random& r) {
             std::int64_t n = r.integer(1, 5), in = r.integer(1, 5), out = r.integer(1, 5);
             Problem p{{{.shape = {n, in}}, {.shape = {out, in}, .master = true}, {.shape = {out}, .master = true}},
                       [](In in) { return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor()); }};
             if (r.integer(0, 1)) p.inputs.pop_back();
             return p;
           }},
          {"Reshape",
           [](Random& r) {
             return Problem{{{.shape = {r.integer(1, 4), 6}}}, [](In in) { return square(reshape(in[0], {2, -1})); }};
           }},
          {"Flatten",
           [](Random& r) {
             return Problem{{{.shape = image(r)}}, [](In in) { return square(flatten(in[0], 2)); }};
           }},
          {"Transpose",
           [](Random& r) {
             return Problem{{{.shape = {r.integer(1, 3), r.integer(2, 4), 2}}},
                            [](In in) { return square(transpose(in[0], 1, 2)); }};
           }},
          {"Concatenate",
           [](Random& r) {
             return Problem{{{.shape = {r.integer(1, 3), 3}}, {.shape = {r.integer(1, 3), 3}}},
                            [](In in) { return square(concatenate(in)); }};
           }},
          {"Layouts",
           [](Random& r) {
             return Problem{{{.shape = image(r)}}, [](In in) {
                              Tensor y = square(in[0].to(Layout::channels_last)) * in[0];
                              return (in[0] + exp(y)).to(Layout::plain);
                            }};
           }},
          {"DropoutInAnotherLayoutThanItsGradient",
           [](Random& r) {
             return Problem{{{.shape = image(r)}}, [](In in) {
                              state_of(in[0].device(), "test").random()->set_step(3);
                              return flatten(dropout(in[0].to(Layout::channels_last), 0.4), 1);
                            }};
           }},
          unary("Sum", sum, -1, 1),
          unary("Mean", mean, -1, 1),
          {"SumTo", [](Random& r) {
             Shape full{r.integer(1, 3), r.integer(2, 4), r.integer(2, 3)};
             return Problem{{{.shape = full}}, [full](In in) { return square(sum_to(in[0], {full[1], 1})); }};
           }}};
}

std::vector<Differentiable> images() {
  return {{"Conv2d",
           [](Random& r) {
             Conv2dOptions o = conv_options(r);
             std::int64_t in = o.groups * r.integer(1, 2), out = o.groups * r.integer(1, 2);
             Problem p{{{.shape = {r.integer(1, 2), in, r.integer(5, 6), r.integer(5, 6)}},
                        {.shape = {out, in / o.groups, r.integer(1, 3), r.integer(1, 3)}, .master = true},
                        {.shape = {out}, .master = true}},
                       [o](In in) { return conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), o); }};
             if (r.integer(0, 1)) p.inputs.pop_back();
             return p;
           }},
          {"MaxPool2d",
           [](Random& r) {
             Pool2dOptions o{.kernel_size = {3, 2},
                             .stride = {r.integer(1, 2), 2},
                             .padding = {1, r.integer(0, 1)},
                             .ceil_mode = r.integer(0, 1) == 1};
             return Problem{{{.shape = image(r)}}, [o](In in) { return max_pool2d(in[0], o); }};
           }},
          {"AvgPool2d",
           [](Random& r) {
             Pool2dOptions o{.kernel_size = {3, 2},
                             .stride = {r.integer(1, 2), 2},
                             .padding = {1, r.integer(0, 1)},
                             .count_include_pad = r.integer(0, 1) == 1,
                             .ceil_mode = r.integer(0, 1) == 1};
             return Problem{{{.shape = image(r)}}, [o](In in) { return avg_pool2d(in[0], o); }};
           }},
          {"LpPool2d",
           [](Random& r) {
             Pool2dOptions o{.kernel_size = {3, 2}, .stride = {r.integer(1, 2), 2}, .ceil_mode = r.integer(0, 1) == 1};
             const double norm_type = r.integer(0, 1) == 1 ? 2 : 3;
             return Problem{{{.shape = image(r), .low = 0.25, .high = 2}},
                            [o, norm_type](In in) { return lp_pool2d(in[0], norm_type, o); }};
           }},
          {"GlobalAvgPool2d",
           [](Random& r) {
             return Problem{{{.shape = image(r)}}, [](In in) { return global_avg_pool2d(in[0]); }};
           }},
          {"BatchNormTrain",
           [](Random& r) {
             return batch_norm_problem(r, [](In in, const BatchNormOptions& o) {
               return batch_norm_train(in[0], in[1], in[2], in[3], o, nullptr);
             });
           }},
          {"BatchNormEval",
           [](Random& r) {
             return batch_norm_problem(r, [](In in, const BatchNormOptions& o) {
               DType dtype = in[1].dtype();
               std::int64_t c = in[1].numel();
               Tensor mean = make_tensor(Random(5).uniforms(c, -0.2, 0.2), {c}, in[0].device(), dtype);
               Tensor var = make_tensor(Random(6).uniforms(c, 0.5, 2), {c}, in[0].device(), dtype);
               return batch_norm_eval(in[0], in[1], in[2], mean, var, in[3], o);
             });
           }},
          {"BatchNormSynchronized", [](Random& r) {
             Problem p = batch_norm_problem(r, [](In in, const BatchNormOptions& o) {
               // The samples of one shard and those of the next one.
               const Device device = in[0].device();
               const std::int64_t n = in[0].size(0);
               const auto at = std::make_shared<Placement>(std::vector{n - 1, std::int64_t{1}},
                                                           std::vector<Slot>{{0, device}, {1, device}});
               return gather(batch_norm_synchronized(scatter(in[0], at), in[1], in[2], scatter(in[3], at), o, nullptr));
             });
             for (std::size_t i : {0, 3}) p.inputs[i].shape[0] = std::max<std::int64_t>(p.inputs[i].shape[0], 2);
             return p;
           }}};
}

std::vector<Differentiable> losses() {
  auto logits = [](Random& r) { return Shape{r.integer(1, 4), r.integer(2, 5)}; };
  return {{"Softmax",
           [=](Random& r) {
             return Problem{{{.shape = logits(r)}}, [](In in) { return softmax(in[0]); }};
           }},
          {"LogSoftmax",
           [=](Random& r) {
             return Problem{{{.shape = logits(r)}}, [](In in) { return log_softmax(in[0]); }};
           }},
          {"CrossEntropy",
           [=](Random& r) {
             CrossEntropyOptions o{.label_smoothing = r.integer(0, 1) * 0.1};
             return Problem{{{.shape = logits(r)}}, [o](In in) { return cross_entropy(in[0], labels_for(in[0]), o); }};
           }},
          {"MseLoss", [=](Random& r) {
             Shape shape = logits(r);
             return Problem{{{.shape = shape}, {.shape = shape}}, [](In in) { return mse_loss(in[0], in[1]); }};
           }}};
}

}  // namespace

std::vector<Differentiable> differentiable_functions() {
  std::vector<Differentiable> all;
  for (auto part : {elementwise(), matrices_and_shapes(), images(), losses(), basis_functions(), loss_functions(),
                    layer_functions()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace lockstep::testing
